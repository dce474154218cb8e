"""The event simulation: the recorded commands of all ranks, run as SimPy processes.

An oracle for the timing interpreter: same record, same costs, another mechanism. Nothing here is
`max` and `+` over clocks; engines take commands from queues, credits come back when there is room,
and time passes by itself.
"""

from ahbm_jax.events.simulation import ARBITRATIONS, Deadlock, simulate, simulate_point
from ahbm_jax.events.timeline import Timeline

__all__ = ["ARBITRATIONS", "Deadlock", "Timeline", "simulate", "simulate_point"]
