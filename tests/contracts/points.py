"""Random machines and shapes for the contract suites, as points for one compiled function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ahbm_jax.config.load import load_machine, load_workload
from ahbm_jax.kernel_names import resolve_kernel
from ahbm_jax.knobs import Point, point
from ahbm_jax.machine.params import Machine, replace
from ahbm_jax.machine.placement import LAYOUTS
from ahbm_jax.tl.program import ONE, heads_of

RANGES = {  # of the machine's numbers: well past the shipped defaults on both sides
    "clock.frequency_ghz": (0.5, 2.0),
    "hbm.pseudo_channel_gb_per_s": (2.0, 100.0),
    "hbm.access_latency_ns": (0.0, 300.0),
    "dma.startup_cycles": (0.0, 400.0),
    "dma.issue_cycles": (0.0, 60.0),
    "gemm.macs_per_cycle": (256.0, 16384.0),
    "gemm.writeout_cycles": (0.0, 50.0),
    "gemm.epilogue_cycles": (0.0, 50.0),
    "math.lanes": (4.0, 512.0),
    "math.exp_cycles": (1.0, 8.0),
    "scheduler.latency_cycles": (0.0, 100.0),
    "pe_link.overhead_cycles": (0.0, 50.0),
    "pe_link.bytes_per_cycle": (1.0, 128.0),
    "pe_link.hop_cycles": (0.0, 30.0),
    "cube_link.bytes_per_cycle": (1.0, 128.0),
    "cube_link.fixed_cycles": (0.0, 50.0),
    "cube_link.hop_cycles": (0.0, 50.0),
    "issue.composite_cycles": (0.0, 400.0),
    "issue.ex_composite_cycles": (0.0, 400.0),
    "issue.math_cycles": (0.0, 50.0),
    "issue.load_cycles": (0.0, 50.0),
    "issue.store_cycles": (0.0, 50.0),
    "issue.dot_cycles": (0.0, 50.0),
    "issue.send_cycles": (0.0, 100.0),
    "issue.recv_cycles": (0.0, 100.0),
    "issue.wait_cycles": (0.0, 50.0),
    "issue.loop_cycles": (0.0, 50.0),
}
CUBES = (1, 2, 3, 4, 6, 8)
# For kernels that send from each rank to all others, once for each head: a smaller machine, fewer
# heads and tokens.
FEW = {"grid.cube_rows": 2, "grid.cube_cols": 3, "grid.pe_rows": 2, "grid.pe_cols": 3}
FEW_CUBES, FEW_PES, FEW_HEADS, FEW_TOKENS = (2, 3, 4, 6), 6, 2, 600
TILES = (16, 37, 64, 128, 256)
DEPTHS = (1, 2, 3, 5, 16, 64)


@dataclass(frozen=True)
class Structure:
    """What a compiled function is specialised to, beside the kernel."""

    queue: int = 4
    messages: int = 4
    operand_reuse: bool = True
    math_blocking: bool = True
    query_length: int = 1
    layout: str = LAYOUTS[0]
    level1: str = "mesh"
    level2: str = "tree"
    packed: bool = False
    users: int = 1

    def machine(self, base: Machine) -> Machine:
        """`base` with this structure's static choices."""
        return replace(
            base,
            {
                "scheduler.queue_depth_composites": self.queue,
                "pe_link.queue_depth_messages": self.messages,
                "cube_link.queue_depth_messages": self.messages,
                "gemm.operand_reuse": self.operand_reuse,
                "math.blocking": self.math_blocking,
            },
        )

    def knobs(self) -> dict[str, Any]:
        """This structure's static knobs."""
        names = ("query_length", "layout", "level1", "level2", "packed", "users")
        return {name: getattr(self, name) for name in names}


def draw_machine(rng: np.random.Generator, base: Machine) -> Machine:
    """A machine with every number of `RANGES` drawn; a third are whole, so that ties happen."""
    drawn = {}
    for name, (low, high) in RANGES.items():
        value = rng.uniform(low, high)
        drawn[name] = max(float(round(value)), 1.0) if rng.integers(3) == 0 else value
    drawn["gemm.stream_depth_subtiles"] = float(rng.choice(DEPTHS))
    drawn["scratch.capacity_bytes"] = 1e12
    return replace(base, drawn)


def draw_point(
    rng: np.random.Generator, kernel: Any, variant: str, structure: Structure, longest: int = 5000
) -> Point:
    """A random machine and shape of `structure`."""
    machine = draw_machine(rng, structure.machine(load_machine("ahbm_4sip")))
    workload = load_workload(str(rng.choice(["llama3_70b", "llama3_8b", "llama3_405b"])))
    cubes, pes = int(rng.choice(CUBES)), int(rng.integers(1, 9))
    if heads_of(resolve_kernel(kernel, variant)) == ONE:
        machine = replace(machine, FEW)
        workload = replace(workload, {"query_heads": FEW_HEADS * workload.kv_heads})
        cubes, pes, longest = int(rng.choice(FEW_CUBES)), 1 + pes % FEW_PES, FEW_TOKENS
    context = int(rng.integers(0, longest if cubes * pes >= 4 else longest // 4))
    spare = int(rng.choice([0, rng.integers(3000)]))
    knobs = {
        "variant": variant,
        "context": context,
        "cache_tokens": max(context + spare, 1),
        "C": cubes,
        "P": pes,
        "tile": int(rng.choice(TILES)),
        "start_cube": int(rng.integers(cubes)),
        "start_pe": int(rng.integers(pes)),
    }
    return point(kernel, machine, workload, knobs | structure.knobs())


def batch(points: list[Point]) -> list[jax.Array]:
    """Points of one static structure as arrays of one batch."""
    assert len({p.static for p in points}) == 1
    columns = zip(*(p.arrays() for p in points), strict=True)
    return [jax.numpy.concatenate(column) for column in columns]
