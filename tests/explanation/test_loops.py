"""Time a tile: by the max-plus map, by the simulated path, and by doubling the context."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ahbm_jax.config.load import load_machine, load_workload
from ahbm_jax.events import simulate_point
from ahbm_jax.explanation.loops import LoopTime, loops, transient_tiles
from ahbm_jax.explanation.maps import LaneMap
from ahbm_jax.explanation.path import steps
from ahbm_jax.explanation.resources import RESOURCES
from ahbm_jax.knobs import Point, point
from kernels import KERNELS

TOKENS, TILE = 8192, 128
ODD = {  # another bound than the shipped machine's for most variants, and times that never tie
    "hbm.access_latency_ns": 271.3,
    "dma.issue_cycles": 3.7,
    "gemm.macs_per_cycle": 1931.0,
    "math.lanes": 23.0,
    "math.exp_cycles": 6.1,
    "scheduler.latency_cycles": 61.9,
    "issue.composite_cycles": 391.0,
    "issue.ex_composite_cycles": 377.0,
    "gemm.stream_depth_subtiles": 3.0,
    "scratch.capacity_bytes": 1e9,
}
MACHINES = {"shipped": {"scratch.capacity_bytes": 1e9}, "odd": ODD}


def one_rank(kernel: Any, context: int, **knobs: Any) -> Point:
    given = {"context": context, "C": 1, "P": 1, "tile": TILE} | knobs
    return point(kernel, load_machine("ahbm_4sip"), load_workload("llama3_70b"), given)


def explained(settled: Point) -> tuple[LoopTime, ...]:
    timeline = simulate_point(settled)
    return loops(settled, timeline, steps(timeline))


def check_steady(loop: LoopTime, latency_ns: float, longer_ns: float, more_tiles: int) -> None:
    """The map, the path of commands and the growth of the latency say the same."""
    assert loop.steady
    assert loop.tile_ns == pytest.approx((longer_ns - latency_ns) / more_tiles)
    by_resource = Counter[str]()
    for command in loop.commands:
        by_resource[command.resource] += command.tile_ns
    assert sum(by_resource.values()) == pytest.approx(loop.tile_ns)
    assert sum(loop.spent_ns.values()) == pytest.approx(loop.tile_ns)
    assert loop.bound == max(loop.spent_ns, key=lambda name: loop.spent_ns[name])
    assert all(ns <= loop.tile_ns * (1 + 1e-9) for ns in loop.free_ns.values())
    for resource, ns in loop.spent_ns.items():
        assert by_resource[resource] == pytest.approx(ns, abs=1e-6)
        assert loop.free_ns[resource] >= loop.tile_ns - ns - 1e-6


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("variant", KERNELS["decode"])
def test_time_a_tile(variant: str, machine: str) -> None:
    knobs = {"variant": variant} | MACHINES[machine]
    settled, longer = (one_rank("decode", n * TOKENS, **knobs) for n in (1, 2))
    found = explained(settled)
    if variant == "one_shot":
        assert found == ()
        return
    (loop,) = found
    tiles = TOKENS // TILE
    assert (loop.rank, loop.tiles, loop.equal_tiles) == ((0, 0), tiles, tiles - 1)
    latencies = [simulate_point(each).latency_ns for each in (settled, longer)]
    check_steady(loop, *latencies, tiles)


def test_requests_share_a_map() -> None:
    alone, three = (one_rank("decode", 4096, variant="opt1", users=n) for n in (1, 3))
    (loop,), (of_three,) = explained(alone), explained(three)
    assert of_three.tile_ns == loop.tile_ns
    assert of_three.commands == loop.commands


def test_too_short_for_a_steady_state() -> None:
    (loop,) = explained(one_rank("decode", TILE, variant="opt1"))
    assert (loop.tiles, loop.equal_tiles, loop.steady, loop.commands) == (1, 0, False, ())


def test_the_rank_with_most_tiles_is_explained() -> None:
    knobs = {"variant": "opt1", "C": 2, "P": 2, "tile": 128, "start_cube": 1}
    (loop,) = explained(one_rank("decode", 3000, cache_tokens=5000, **knobs))
    # 1250 tokens a rank, CUBE 1 first: two ranks are full, one holds 500 and one none.
    assert (loop.rank[0], loop.tiles, loop.equal_tiles) == (1, 10, 8)
    assert loop.commands


def scores_then_loads(tl: Any, q: Any, k: Any, v: Any, output: Any) -> None:
    q = tl.load(q)

    def scores(tile: Any, carry: Any) -> Any:
        with tl.scratch_scope():
            tl.max(tl.composite("gemm", a=q, b=tl.ref(k, tile)))
        return carry

    def loads(tile: Any, carry: Any) -> Any:
        with tl.scratch_scope():
            tl.load(tl.ref(v, tile))
        return carry

    first = tl.loop(tl.tiles(k), scores, tl.full(*output.shape, 0.0))
    tl.store(output, tl.loop(tl.tiles(k), loads, first))


def nested(tl: Any, q: Any, k: Any, v: Any, output: Any) -> None:
    def inner(tile: Any, carry: Any) -> Any:
        tl.full(1, 1, 0.0)
        return carry

    def outer(tile: Any, carry: Any) -> Any:
        return tl.loop(tl.tiles(k), inner, carry)

    tl.store(output, tl.loop(tl.tiles(k), outer, tl.full(*output.shape, 0.0)))


def test_two_loops() -> None:
    settled, longer = (one_rank(scores_then_loads, n * TOKENS) for n in (1, 2))
    first, second = explained(settled)
    latencies = [simulate_point(each).latency_ns for each in (settled, longer)]
    growth = (latencies[1] - latencies[0]) / (TOKENS // TILE)
    assert first.tile_ns + second.tile_ns == pytest.approx(growth)
    assert [c.op for c in second.commands if c.resource == "dma"] == ["load"]
    assert sum(c.tile_ns for c in second.commands) == pytest.approx(second.tile_ns)


def test_a_nested_loop_is_part_of_the_outer_one() -> None:
    tiles = TOKENS // TILE
    (loop,) = explained(one_rank(nested, TOKENS))
    issue, passes, iteration = 4.0, 1.0, 4.0
    assert loop.tile_ns == pytest.approx(iteration + tiles * (iteration + issue + passes))
    assert (loop.tiles, loop.commands) == (None, ())


def test_transient_and_period() -> None:
    never = -np.inf
    matrix = np.array([[never, 5.0, never], [3.0, never, never], [never, never, 0.0]])
    lane = LaneMap(
        names=("a", "b"),
        matrix=matrix,
        parts=np.zeros((len(RESOURCES), 3, 3)),
        states=np.array([[0.0, 80.0], [95.0, 93.0]]),  # as if the first iteration did more
        trips=10,
        order=0,
    )
    assert lane.cycle()[0] == 4.0
    assert transient_tiles(lane) == (1, 2)
