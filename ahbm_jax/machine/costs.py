"""From a machine in the units of its file to costs in nanoseconds: the only unit conversion.

Every entry is a time (ns), or a time per unit of work (ns per byte, per pass). The latency of a
program is a maximum of sums of these, so it is homogeneous of degree one in them: the sum over
all entries of cost x d latency / d cost is the latency, which is how a critical path is read off.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ahbm_jax.machine.params import Machine

Costs = dict[str, Any]


def costs_ns(machine: Machine) -> Costs:
    """Costs of `machine` by name: ns, `*_byte` in ns per byte, `math.*_pass` in ns per pass."""
    cycle = 1.0 / machine.clock.frequency_ghz
    hbm = machine.hbm
    sustained = hbm.pseudo_channels_per_pe * hbm.pseudo_channel_gb_per_s * hbm.sustained_fraction
    gemm = machine.gemm
    subtile_macs = gemm.tile_m * gemm.tile_k * gemm.tile_n
    costs: Costs = {
        f"issue.{f.name.removesuffix('_cycles')}": getattr(machine.issue, f.name) * cycle
        for f in dataclasses.fields(machine.issue)
    }
    costs |= {
        "dma.issue": machine.dma.issue_cycles * cycle,
        "dma.startup": machine.dma.startup_cycles * cycle,
        "hbm.latency": hbm.access_latency_ns * 1.0,
        "hbm.byte": 1.0 / sustained,
        "scheduler.latency": machine.scheduler.latency_cycles * cycle,
        "gemm.subtile": subtile_macs / gemm.macs_per_cycle * cycle,
        "gemm.writeout": gemm.writeout_cycles * cycle,
        "gemm.epilogue": gemm.epilogue_cycles * cycle,
        "math.pass": cycle * 1.0,
        "math.exp_pass": machine.math.exp_cycles * cycle,
    }
    for name in ("pe_link", "cube_link"):
        link = getattr(machine, name)
        costs |= {
            f"{name}.overhead": link.overhead_cycles * cycle,
            f"{name}.byte": cycle / link.bytes_per_cycle,
            f"{name}.fixed": link.fixed_cycles * cycle,
            f"{name}.hop": link.hop_cycles * cycle,
        }
    if machine.device is not None:
        costs |= {
            "issue.start": machine.device.launch_cycles * cycle,
            "issue.join": machine.device.join_cycles * cycle,
            "cache.byte": 1.0 / machine.device.cache_gb_per_s,
        }
    return costs
