"""Random machines and shapes for the contract suites, as cases and as points.

What is drawn first is the simplest: shipped costs, one rank, small contexts. So hypothesis shrinks
towards those, and a case that it shrank sets only the numbers that matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ahbm_jax.config.case import Case, CaseKnobs
from ahbm_jax.config.load import load_machine, load_workload
from ahbm_jax.kernel_names import resolve_kernel
from ahbm_jax.knobs import Knobs, Point, point
from ahbm_jax.machine.params import replace
from ahbm_jax.machine.placement import LAYOUTS
from ahbm_jax.tl.launch import RING_FEEDS
from ahbm_jax.tl.program import FOLDED, PER_CUBE, heads_of

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
    "pe_link.fixed_cycles": (0.0, 50.0),
    "pe_link.hop_cycles": (0.0, 30.0),
    "cube_link.overhead_cycles": (0.0, 50.0),
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
    "issue.recv_async_cycles": (0.0, 100.0),
    "issue.wait_cycles": (0.0, 50.0),
    "issue.loop_cycles": (0.0, 50.0),
}
DEPTHS = (16.0, 1.0, 2.0, 3.0, 5.0, 64.0)  # of the stream window
SHAPES = ((1, 1), (1, 2), (2, 1), (1, 3), (2, 2), (4, 1), (2, 3), (3, 2), (2, 4), (3, 3))
TILES = (16, 37, 64, 128, 256)
QUERY_TILES = (64, 16, 37, 100, 128, 256)
MACHINE = "ahbm_4sip"
# Of one storage type, which is what compiled functions are specialised to; groups of 3 to 16 heads.
WORKLOADS = ("llama3_8b", "llama3_70b", "llama3_405b", "qwen2_5_14b", "smollm2_135m")
# Of kernels that take heads one by one, and send from each rank to all others for each of them.
MANY_RANKS, FEW_RANKS, FEW_TOKENS, FEW_HEADS = 128, 8, 600, ("llama3_8b", "smollm2_135m")
_LOADED = {name: load_workload(name) for name in WORKLOADS}
_BASE = load_machine(MACHINE)

Settings = dict[str, Any]  # numbers of a machine by dotted key


@dataclass(frozen=True)
class Structure:
    """What a compiled function is specialised to, beside the kernel."""

    queue: int = 4
    messages: int = 4
    operand_reuse: bool = True
    math_blocking: bool = True
    pe_mesh: tuple[int, int] = (2, 4)
    query_length: int | None = 1  # None: a chunk of any length, in query blocks of any size
    alone: bool = False  # on one rank
    windowed: bool = False
    sinks: bool = False
    softcap: bool = False
    layout: str = LAYOUTS[0]
    level1: str = "mesh"
    level2: str = "tree"
    packed: bool = False
    ring_feed: str = RING_FEEDS[0]
    users: int = 1
    decode_users: int = 0

    def settings(self) -> Settings:
        """This structure's static choices of a machine."""
        rows, columns = self.pe_mesh
        return {
            "grid.pe_rows": rows,
            "grid.pe_cols": columns,
            "scheduler.queue_depth_composites": self.queue,
            "pe_link.queue_depth_messages": self.messages,
            "cube_link.queue_depth_messages": self.messages,
            "gemm.operand_reuse": self.operand_reuse,
            "math.blocking": self.math_blocking,
        }

    def knobs(self) -> dict[str, Any]:
        """This structure's static knobs."""
        names = ("layout", "level1", "level2", "packed", "ring_feed", "users", "sinks", "softcap")
        names += ("decode_users",)
        return {name: getattr(self, name) for name in names}


def shipped(key: str) -> Any:
    """What the machine that cases start from has for a dotted key."""
    section, field = key.split(".")
    return getattr(getattr(_BASE, section), field)


def numbers(key: str) -> SearchStrategy[float]:
    """Values of one of `RANGES`; many are whole, so that ties happen."""
    low, high = RANGES[key]
    whole = st.integers(max(math.ceil(low), 1), math.floor(high)).map(float)
    return st.just(shipped(key)) | whole | st.floats(low, high, allow_subnormal=False)


def machines(structure: Structure) -> SearchStrategy[Settings]:
    """Machines of `structure` with room for everything, as what each has unlike the shipped one."""
    drawn = {key: numbers(key) for key in RANGES}
    drawn["gemm.stream_depth_subtiles"] = st.sampled_from(DEPTHS)
    fixed = structure.settings() | {"scratch.capacity_bytes": 1e12}
    return st.fixed_dictionaries(drawn).map(
        lambda values: {k: x for k, x in sorted((values | fixed).items()) if x != shipped(k)}
    )


@st.composite
def cases(
    draw: st.DrawFn, kernel: str, variant: str, structure: Structure, longest: int = 5000
) -> Case:
    """Machines and shapes of one kernel and structure, none of them infeasible."""
    heads = heads_of(resolve_kernel(kernel, variant))
    few = heads != FOLDED
    workload = draw(st.sampled_from(FEW_HEADS if few else WORKLOADS))
    ranks, longest = (FEW_RANKS, min(longest, FEW_TOKENS)) if few else (MANY_RANKS, longest)
    shapes = [(r, c) for r, c in SHAPES if r * c <= ranks]
    if heads == PER_CUBE:
        ranks, shapes = MANY_RANKS, [s for s in SHAPES if math.prod(s) == _LOADED[workload].group]
    rows, cols = draw(st.sampled_from(shapes))
    pes = draw(st.integers(1, min(math.prod(structure.pe_mesh), ranks // (rows * cols))))
    if structure.alone and heads != PER_CUBE:
        rows = cols = pes = 1
    # Few ranks have many tiles each, and users sweep them in turn: both take long to simulate.
    most = (
        longest
        // (structure.users + structure.decode_users)
        // (1 if rows * cols * pes >= 4 else 4)
    )
    context = draw(st.integers(0, most))
    drawn = {
        "variant": variant,
        "context": context,
        "P": pes,
        "tile": draw(st.sampled_from(TILES)),
        "cache_tokens": draw(st.just(None) | st.integers(max(context, 1), context + 3000)),
        "start_cube": draw(st.integers(0, rows * cols - 1)),
        "start_pe": draw(st.integers(0, pes - 1)),
        "group_shape": (rows, cols),
    }
    given = (drawn | draw(queries(structure, context)) | structure.knobs()).items()
    return Case(
        kernel=kernel,
        machine=MACHINE,
        workload=workload,
        knobs=CaseKnobs(**{name: x for name, x in given if x != getattr(Knobs(), name)}),
        set=draw(machines(structure)),
    )


def queries(structure: Structure, context: int) -> SearchStrategy[dict[str, Any]]:
    """Which tokens ask, and how far back they look."""
    length = st.just(structure.query_length)
    if structure.query_length is None:
        length = st.integers(2, max(context, 2))
    drawn: dict[str, Any] = {}
    if structure.query_length is None:
        drawn["query_tile"] = st.sampled_from(QUERY_TILES)
    if structure.windowed:
        drawn["window"] = st.integers(1, max(context, 1))

    def with_start(length: int) -> SearchStrategy[dict[str, Any]]:
        start = st.just(None) | st.integers(0, max(context - length, 0))
        if context < length or structure.query_length == 1:
            start = st.just(None)
        return st.fixed_dictionaries(
            drawn | {"query_length": st.just(length), "query_start": start}
        )

    return length.flatmap(with_start)


def point_of(case: Case) -> Point:
    """The point of a case from `cases`."""
    return point(case.kernel, replace(_BASE, case.set), _LOADED[case.workload], case.knobs.given())


def points(
    kernel: str, variant: str, structure: Structure, longest: int = 5000
) -> SearchStrategy[Point]:
    """As `cases`, as points."""
    return cases(kernel, variant, structure, longest).map(point_of)
