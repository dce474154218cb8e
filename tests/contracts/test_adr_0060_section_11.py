"""The verification plan of ADR-0060 section 11, item by item, on the log of the event simulation.

A kernel joins an item by a row of `ROWS`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ahbm_jax
from ahbm_jax.errors import Infeasible
from ahbm_jax.events import Timeline, simulate
from ahbm_jax.interpret.record import Message, Rank, Recorded
from ahbm_jax.machine.costs import costs_ns
from ahbm_jax.machine.params import replace
from ahbm_jax.parity import measure
from ahbm_jax.tl import Context
from kernels import KERNELS
from kernels.reference import reference

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
WORKLOAD = ahbm_jax.load_workload("llama3_70b")
COSTS = costs_ns(MACHINE)

DECODE = [("decode", variant) for variant in KERNELS["decode"]]
PREFILL = [("prefill", variant) for variant in KERNELS["prefill"]]
BASELINES = [(kernel, "dot") for kernel in ("mesh_mlo", "mesh_mlo_2d", "mesh_kv")]
CHUNKED = ("prefill", "mesh_kv")  # kernels that are asked about a chunk of tokens, not one
GEMMS = {"dot": {"dot": 2}, "opt2": {"composite": 1, "ex_composite": 1}}  # of a tile
AHEAD = {"opt1": "never", "opt2": "complete", "opt3": "read", "opt3v": "read"}
ROWS: dict[str, list[tuple]] = {  # by item: kernel, variant, and what is expected of it
    "1 bytes": DECODE + PREFILL,
    "1 values": [(*row, group) for row in DECODE for group in (1, 8)]
    + [("decode", "opt3", group) for group in range(2, 8)]
    + [(*row, group) for row in PREFILL + BASELINES for group in (1, 8)],
    "2": DECODE + PREFILL,
    "2 without": BASELINES,
    "3": DECODE,
    "3 all": [("mesh_mlo", "dot", "fan-out"), ("mesh_mlo_2d", "dot", "all-reduce")],
    "4": PREFILL,
    "5": [row for row in DECODE if row[1] != "one_shot"],
    "6 identity": DECODE + PREFILL + BASELINES,
    "6 overlap": [(*row, "opt1" if "opt3" in row[1] else "") for row in DECODE if row[1] != "dot"],
    "7 offload": [(*row, GEMMS.get(row[1], {"composite": 2})) for row in DECODE + PREFILL],
    "7 ahead": [(kernel, *x) for kernel in ("decode", "prefill") for x in AHEAD.items()],
    "8": DECODE + PREFILL + BASELINES,
}


def rows(item: str) -> pytest.MarkDecorator:
    names = ("kernel", "variant", "expected")[: len(ROWS[item][0])]
    return pytest.mark.parametrize(names, ROWS[item])


def simulated(kernel: str, variant: str, *, group: int = 8, **knobs: Any) -> Timeline:
    workload = replace(WORKLOAD, {"query_heads": WORKLOAD.kv_heads * group})
    return simulate(kernel, MACHINE, workload, variant=variant, **knobs)


def block(kernel: str) -> dict[str, int]:
    """One block of query tokens for a kernel that takes several, one token for others."""
    length = 4 if kernel in CHUNKED else 1
    return {"query_length": length, "query_tile": length}


def logged(timeline: Timeline, op: str) -> list[tuple[Recorded, Rank]]:
    """Commands of a kind and their ranks, in the order in which they were issued."""
    order = sorted(range(len(timeline.commands)), key=timeline.issued_ns.__getitem__)
    commands, ranks = timeline.commands, timeline.ranks
    return [(commands[i], ranks[i]) for i in order if commands[i].op == op]


def served(timeline: Timeline, worker: str) -> Iterator[tuple[Recorded, float, int]]:
    """Each command that a worker of any rank served: its busy time and its pieces."""
    for workers in timeline.spans.values():
        for span in workers.get(worker, []):
            yield timeline.commands[span.command], span.busy_ns, span.pieces


def matches_reference(
    kernel: str, variant: str, group: int, *, context: int, tile: int, grid: tuple[int, int]
) -> bool:
    """Whether the values of one KV head are those of float64."""
    rng, dim = np.random.default_rng(group), 32
    length = 10 if kernel in CHUNKED else 1
    shapes = [(group, length, dim), (1, context, dim), (1, context, dim)]
    q, k, v = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in shapes)
    o, lse = ahbm_jax.attention(kernel, q, k, v, variant=variant, tile=tile, grid=grid)
    return measure(o, lse, reference(q, k, v), "bfloat16").passed


@rows("1 bytes")
@pytest.mark.parametrize(("cubes", "pes", "group"), [(1, 1, 8), (2, 4, 1), (2, 4, 3), (2, 4, 8)])
def test_item_1_k_and_v_are_read_once(
    kernel: str, variant: str, cubes: int, pes: int, group: int
) -> None:
    context, size = 1000, WORKLOAD.head_dim * WORKLOAD.storage_bytes
    rows = group * block(kernel)["query_length"]
    timeline = simulated(
        kernel, variant, group=group, context=context, C=cubes, P=pes, **block(kernel)
    )
    moved: Counter[bool] = Counter()
    for command, busy_ns, pieces in served(timeline, "dma"):
        bytes_ns = busy_ns - pieces * COSTS["dma.issue"]
        moved[command.op == "store"] += bytes_ns / COSTS["hbm.byte"]
    assert moved[False] == pytest.approx((2 * context + cubes * pes * rows) * size)
    assert moved[True] == pytest.approx(rows * size)


@rows("1 values")
def test_item_1_values_are_the_reference_s(kernel: str, variant: str, expected: int) -> None:
    assert matches_reference(kernel, variant, expected, context=100, tile=32, grid=(1, 2))


@rows("2")
def test_item_2_dma_reads_do_not_depend_on_g(kernel: str, variant: str) -> None:
    def work(group: int) -> tuple[int, float, int]:
        knobs = {"context": 1000, "C": 1, "P": 2, "tile": 128, "scratch.capacity_bytes": 1e9}
        timeline = simulated(kernel, variant, group=group, **knobs, **block(kernel))
        reads = sum(pieces for c, _, pieces in served(timeline, "dma") if c.op != "store")
        subtiles = sum(busy for _, busy, _ in served(timeline, "gemm")) / COSTS["gemm.subtile"]
        return reads, subtiles, sum(c.rows * c.inner * c.cols for c in timeline.commands)

    reads, subtiles, macs = work(1)
    for group in (8, 32, 64):
        m_tiles = math.ceil(group * block(kernel)["query_length"] / MACHINE.gemm.tile_m)
        assert work(group) == (reads, m_tiles * subtiles, group * macs)


@rows("2 without")
def test_item_2_what_it_replaces_reads_again_for_each_head(kernel: str, variant: str) -> None:
    def reads(group: int) -> int:
        timeline = simulated(kernel, variant, group=group, context=300, C=1, P=2, tile=128)
        return sum(command.op == "load" for command in timeline.commands)

    assert reads(8) == 8 * reads(1)


ROWS_OF_PES = {  # halves of the first row fold towards each other: messages, root
    1: ([], 0),
    2: ([(1, 0)], 0),
    3: ([(2, 1), (1, 0)], 0),
    4: ([(0, 1), (3, 2), (2, 1)], 1),
}
RECTANGLES = {1: (1, 1), 2: (1, 2), 4: (2, 2), 6: (2, 3), 8: (2, 4), 16: (4, 4)}
GROUPS = [(1, 1, False), (1, 5, False), (2, 3, True), (6, 2, False), (8, 8, True), (16, 4, False)]


def over_cubes(rows: int, cols: int) -> list[tuple[int, int]]:
    """Section 4.2: each CUBE to its neighbour nearer to the centre, along its row first."""
    out = []
    for row in range(rows):
        for col in range(cols):
            across, down = np.sign(cols // 2 - col), np.sign(rows // 2 - row)
            step = across if across else cols * down
            if step:
                out.append((row * cols + col, row * cols + col + int(step)))
    return out


def rounds(messages: list[Message], mesh: str) -> int:
    """Rounds that messages take in this order; a PE takes part in one exchange a round."""
    last: Counter[Rank] = Counter()
    for source, target in dict.fromkeys((m.source, m.target) for m in messages if m.mesh == mesh):
        if mesh == "pe":
            last[source] = last[target] = max(last[source], last[target]) + 1
        else:
            last[target] = max(last[target], last[source] + 1)
    return max(last.values(), default=0)


@rows("3")
@pytest.mark.parametrize(("cubes", "pes", "packed"), GROUPS)
def test_item_3_messages_are_the_tree_and_the_mesh(
    kernel: str, variant: str, cubes: int, pes: int, packed: bool
) -> None:
    timeline = simulated(kernel, variant, context=1000, C=cubes, P=pes, packed=packed)
    sent, taken = ([(c.message, r) for c, r in logged(timeline, op)] for op in ("send", "recv"))
    messages = [message for message, _ in sent if message is not None]

    (first_row, root), (height, width) = ROWS_OF_PES[min(pes, 4)], RECTANGLES[cubes]
    tree = [(pe, pe - 4) for pe in range(4, pes)] + first_row  # the second row folds into the first
    edges = [((c, a), (c, b), "pe") for c in range(cubes) for a, b in tree]
    edges += [((a, root), (b, root), "cube") for a, b in over_cubes(height, width)]
    expected = Counter(edges * (1 if packed else 3))
    assert Counter((m.source, m.target, m.mesh) for m in messages) == expected
    assert all(m.hops == 1 for m in messages)
    assert rounds(messages, "pe") == math.ceil(math.log2(pes))
    assert rounds(messages, "cube") == height // 2 + width // 2
    assert sent == [(m, m.source) for m in messages]
    assert Counter(taken) == Counter((m, m.target) for m in messages)
    ports = {name for workers in timeline.spans.values() for name in workers if "port" in name}
    assert sum(n for port in ports for _, _, n in served(timeline, port)) == len(messages)
    at_centre = height // 2 * width + width // 2
    assert [rank for _, rank in logged(timeline, "store")] == [(at_centre, root)]


@rows("3 all")
@pytest.mark.parametrize(("cubes", "pes"), [(1, 5), (2, 3), (4, 2)])
def test_item_3_what_it_replaces_sends_to_all(
    kernel: str, variant: str, expected: str, cubes: int, pes: int
) -> None:
    """R - 1 messages of each part for a reduce; as many from each rank, or twice as many."""
    timeline = simulated(kernel, variant, group=1, context=200, C=cubes, P=pes)
    ranks = cubes * pes
    times = {"fan-out": ranks, "all-reduce": 2}[expected]
    assert len(logged(timeline, "send")) == 3 * times * (ranks - 1)


@rows("4")
@pytest.mark.parametrize("start", [0, 100])
def test_item_4_future_tiles_are_never_issued(kernel: str, variant: str, start: int) -> None:
    """Two GEMMs for each tile of which a row of a block sees a token: about half of the grid."""
    step, tile, length = 16, 32, 320
    queries = {"query_start": start, "query_length": length, "query_tile": step}
    timeline = simulated(kernel, variant, context=start + length, tile=tile, C=1, P=1, **queries)
    gemms = sum(command.engine == "gemm" for command in timeline.commands)
    assert gemms == 2 * sum(math.ceil((start + end) / tile) for end in range(step, 321, step))


@rows("5")
def test_item_5_a_long_context_fits_by_its_scopes(
    kernel: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs = {"context": 16384, "tile": 256}
    assert matches_reference(kernel, variant, 8, grid=(1, 1), **knobs)
    timeline = simulated(kernel, variant, C=1, P=1, **knobs)
    assert timeline.records[0].scratch_peak_bytes <= MACHINE.scratch.capacity_bytes == 2**20
    monkeypatch.setattr(Context, "scratch_scope", lambda *_, **__: nullcontext())
    with pytest.raises(Infeasible, match=r"scratch \(TCM\) of one PE"):
        simulated(kernel, variant, C=1, P=1, **knobs)


Intervals = list[tuple[float, float]]


def union(pieces: Intervals) -> Intervals:
    out: Intervals = []
    for start, end in sorted(pieces):
        if out and start <= out[-1][1] + 1e-6:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def length(pieces: Intervals) -> float:
    return sum(end - start for start, end in pieces)


def under_way(timeline: Timeline, rank: Rank) -> list[Intervals]:
    """When each command of a rank was served, or its data under way, until the rank was done."""
    out: dict[int, Intervals] = {}
    marks, done = timeline.marks, timeline.finish_ns[rank]
    for end, command, spent in zip(marks.times_ns, marks.commands, marks.spent, strict=True):
        start = end - sum(ns for _, ns in spent)
        if spent and start < done and timeline.ranks[command] == rank:
            out.setdefault(command, []).append((start, min(end, done)))
    return [union(pieces) for pieces in out.values()]


def overlap_ns(commands: list[Intervals]) -> float:
    """Time by how many commands beside one are under way."""
    changes = sorted(
        (t, n) for pieces in commands for x in pieces for t, n in zip(x, (1, -1), strict=True)
    )
    at_once, before, out = 0, 0.0, 0.0
    for time, change in changes:
        out += max(at_once - 1, 0) * (time - before)
        at_once, before = at_once + change, time
    return out


@rows("6 identity")
@pytest.mark.parametrize(("cubes", "pes"), [(1, 1), (2, 2)])
def test_item_6_latency_is_the_serial_sum_less_the_overlap(
    kernel: str, variant: str, cubes: int, pes: int
) -> None:
    """And on several ranks plus the time in which a rank does nothing but wait for a message."""
    room = {"scratch.capacity_bytes": 1e9}
    timeline = simulated(kernel, variant, context=2000, C=cubes, P=pes, tile=128, **room)
    by = timeline.marks.commands
    for rank, done in timeline.finish_ns.items():
        commands = under_way(timeline, rank)
        busy = [(0.0, 0.0), *union([x for pieces in commands for x in pieces]), (done, done)]
        idle = [(a, b) for (_, a), (b, _) in pairwise(busy) if b - a > 1e-6]
        holds = [h for h in timeline.holds[rank] if timeline.commands[by[h.by]].message]
        for a, b in idle:
            assert any(h.start_ns <= a + 1e-6 and b <= h.end_ns + 1e-6 for h in holds)
        serial = sum(length(pieces) for pieces in commands)
        assert done == pytest.approx(serial - overlap_ns(commands) + length(idle))


@rows("6 overlap")
def test_item_6_composites_overlap(kernel: str, variant: str, expected: str) -> None:
    """Where named, far more than those of a variant that overlaps only as its sweep begins."""

    def overlap(variant: str) -> float:
        timeline = simulated(kernel, variant, context=2000, C=1, P=1, tile=128)
        return overlap_ns(under_way(timeline, (0, 0)))

    assert overlap(variant) > (10 * overlap(expected) if expected else 0)


@rows("7 offload")
def test_item_7_gemms_are_composites(kernel: str, variant: str, expected: dict[str, int]) -> None:
    timeline = simulated(kernel, variant, context=1000, C=1, P=1, tile=128, **block(kernel))
    kinds = Counter(command.op for command in timeline.commands)
    found = {op: kinds[op] for op in ("composite", "ex_composite", "dot") if kinds[op]}
    tiles = 1 if variant == "one_shot" else math.ceil(1000 / 128)
    assert found == {op: count * tiles for op, count in expected.items()}


def scores_of_tiles(timeline: Timeline) -> Iterator[tuple[float, float, float]]:
    """When a tile's scores were issued, when MATH first read them, when its P V was complete."""
    starts = {span.command: span.start_ns for span in timeline.spans[0, 0]["math"]}
    gemms = [i for i, c in enumerate(timeline.commands) if c.engine == "gemm"]
    scores = [i for i in gemms if timeline.commands[i].tensor == "k"]
    for i, end in zip(scores, (i for i in gemms if i not in scores), strict=True):
        buffer = timeline.commands[i].writes[0]
        readers = [j for j in starts if j > i and buffer in timeline.commands[j].reads]
        yield timeline.issued_ns[i], starts[min(readers)], timeline.ended_ns[end]


@rows("7 ahead")
def test_item_7_the_next_scores_are_issued_ahead(kernel: str, variant: str, expected: str) -> None:
    """Before the last ones are read, or their tile is complete (its arena is needed), or never."""
    timeline = simulated(kernel, variant, context=1000, C=1, P=1, tile=128, **block(kernel))
    tiles = list(pairwise(scores_of_tiles(timeline)))
    assert len(tiles) == 7
    for (_, read, complete), (issued, _, _) in tiles:
        if expected == "never":
            assert issued > complete
        else:
            assert issued < (read if expected == "read" else complete)


@rows("8")
def test_item_8_the_same_input_gives_the_same_log(kernel: str, variant: str) -> None:
    first, second = (simulated(kernel, variant, context=1500, C=4, P=5) for _ in range(2))
    for log in ("latency_ns", "commands", "issued_ns", "started_ns", "ended_ns", "spans"):
        assert getattr(first, log) == getattr(second, log)
    assert first.waits_for == second.waits_for
