"""Why a design point takes as long as it takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ahbm_jax.events import simulate_point
from ahbm_jax.explanation.faster import Faster, with_faster
from ahbm_jax.explanation.loops import LoopTime, loops
from ahbm_jax.explanation.path import Step, steps
from ahbm_jax.explanation.resources import grouped
from ahbm_jax.explanation.slack import EngineUse, engines
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.knobs import Point, point
from ahbm_jax.machine.params import Machine, Workload

SAME = 1e-9  # of the latency: how far two ways to the same time may differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why one point takes as long as it takes. Times in ns.

    Attributes:
      latency_ns: of the simulation.
      timing_ns: of the timing interpreter; the same, but for rounding.
      steps: the critical path of the simulation, in order; adds up to the latency.
      spent_ns: its time by resource and cost, largest first.
      derivative_ns: the same by cost from the timing interpreter, cost x d latency / d cost.
      ties: costs of which these two differ, with by how much (the first less the second): there
        are several critical paths, and each may name another. Empty if there is one.
      engines: how busy each is, and how much slack its work has.
      faster: the latency with one resource twice as fast.
      loops: time a tile of each loop in its steady state.
    """

    kernel: str
    variant: str | None
    context: int
    users: int
    C: int
    P: int
    tile: int
    latency_ns: float
    timing_ns: float
    steps: tuple[Step, ...]
    spent_ns: dict[str, dict[str, float]]
    derivative_ns: dict[str, float]
    ties: dict[str, float]
    engines: tuple[EngineUse, ...]
    faster: tuple[Faster, ...]
    loops: tuple[LoopTime, ...]

    def row(self) -> dict[str, Any]:
        """The explanation as plain data, for JSON."""
        return asdict(self)


def explain(
    kernel: str | Kernel, machine: Machine, workload: Workload, **knobs: Any
) -> Explanation:
    """Say why a design point takes as long as it takes.

    Args:
      kernel: as in `latency_ns`.
      machine: from `load_machine`.
      workload: from `load_workload`.
      **knobs: see `Knobs`; concrete values.

    Raises:
      UsageError: a value is out of its bounds, or a name is unknown.
      Infeasible: the point needs more scratch than there is.
      Deadlock: the kernel never ends.
    """
    return explain_point(kernel, point(kernel, machine, workload, knobs))


def explain_point(kernel: str | Kernel, settled: Point) -> Explanation:
    """As `explain`, of a point of `kernel` from `ahbm_jax.knobs.point`."""
    timeline = simulate_point(settled)
    latency, path = timeline.latency_ns, steps(timeline)
    derivative, faster = with_faster(settled)
    leaves, knobs, spent = settled.leaves, settled.knobs, timeline.spent_ns()
    apart = {
        cost: spent.get(cost, 0.0) - derivative.get(cost, 0.0) for cost in {**spent, **derivative}
    }
    shipped = isinstance(kernel, str) and ".py:" not in kernel
    return Explanation(
        kernel=kernel if isinstance(kernel, str) else kernel.__name__,
        variant=knobs.variant if shipped else None,
        context=int(knobs.context),
        users=int(knobs.users),
        C=int(leaves["cube_rows"]) * int(leaves["cube_cols"]),
        P=int(knobs.P),
        tile=int(knobs.tile),
        latency_ns=latency,
        timing_ns=sum(derivative.values()),
        steps=path,
        spent_ns=grouped(spent),
        derivative_ns=derivative,
        ties={cost: ns for cost, ns in apart.items() if abs(ns) > SAME * latency},
        engines=engines(timeline),
        faster=faster,
        loops=loops(settled, timeline, path),
    )
