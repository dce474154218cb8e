"""Engines, CPU and scheduler of the event simulation: cases of one rank worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from events.programs import (
    LATE,
    LOOP,
    STREAMED,
    WAIT,
    command,
    composite,
    elementwise,
    ex_composite,
    load,
    recv,
    run,
    scope,
    send,
    stream,
)

from ahbm_jax.interpret.record import Recorded

QUEUED = {"math.blocking": False}
ONE_RANK = {
    # CPU, DMA, MATH
    "no command": (0, [], {}),
    "loop": (1, [LOOP], {}),
    "an unused load is not awaited": (1, [load()], {}),
    "load: there at 1 + 12 + 8, then MATH": (24, [load(), elementwise("max", 8, 1)], {}),
    "loads: DMA 1..13, 13..25, there at 33": (35, [load(1), load(2), elementwise("max", 4, 2)], {}),
    "store: complete at 1 + 12 + 8": (21, [command("store", hbm_bytes=10)], {}),
    "wait for a load": (22, [load(), command("wait", reads=(1,))], {}),
    "a buffer never written is ready": (3, [elementwise("add", 8, 55)], {}),
    "MATH blocks: 1..7, 8..10": (10, [elementwise("exp", 8), elementwise("add", 5)], {}),
    "queued MATH: 1..7, then held to the start at 7; it ends at 9": (
        9,
        [elementwise("exp", 8), elementwise("add", 5), LOOP],
        QUEUED,
    ),
    "queued MATH in flight: awaited to 7, then 8..10": (
        10,
        [elementwise("exp", 8, to=1), elementwise("add", 5, 1), LOOP],
        QUEUED,
    ),
    "queued MATH by itself: to its end": (31, [LATE], QUEUED),
    "dot: 1, two sub-tiles, write-out": (
        21,
        [command("dot", rows=4, inner=8, cols=4, writes=(1,)), LOOP],
        {},
    ),
    # Composites: descriptor at 8
    "depth 1: DMA 8..20, 36..48, 64..76": (95, [STREAMED], {"gemm.stream_depth_subtiles": 1}),
    "depth 2: DMA 8..20, 20..32, 36..48": (67, [STREAMED], {}),
    "depth 3: DMA 8..20, 20..32, 32..44": (63, [STREAMED], {"gemm.stream_depth_subtiles": 3}),
    "epilogue": (68, [stream(30, inner=12, epilogue=("scale",))], {}),
    "edges count whole": (67, [stream(30, rows=1, inner=9, cols=3)], {}),
    "reuse: 2 M tiles a command, GEMM 28..44, 44..60": (63, [stream(20, rows=8, inner=8)], {}),
    "no reuse: DMA 8..20, 20..32, 36..48, 48..60": (
        79,
        [stream(20, rows=8, inner=8)],
        {"gemm.operand_reuse": False},
    ),
    "b in scratch, there at 33: GEMM 33..57": (
        60,
        [load(1), load(2), composite((1, 2), inner=12)],
        {},
    ),
    "the next one does not wait for write-out: 64..88": (91, [STREAMED, composite(inner=12)], {}),
    "unless it reads the result: 67..91": (94, [STREAMED, composite((12, 11), inner=12)], {}),
    "its result awaited by MATH": (69, [STREAMED, elementwise("max", 4, 12)], {}),
    "a wait for all": (68, [STREAMED, WAIT], {}),
    "a full queue: issued at 19 + 2": (
        38,
        [composite(), composite(), composite()],
        {"scheduler.queue_depth_composites": 2},
    ),
    "an ex_composite has a place in the queue: issued at 54 + 2": (
        73,
        [ex_composite(), composite(), composite()],
        {"scheduler.queue_depth_composites": 2},
    ),
    "room in the queue: GEMM 8..16, 16..24, 24..32": (35, [composite()] * 3, {}),
    "release by queued MATH at 31": (42, [LATE, composite(into_buffer=True)], QUEUED),
    "a new buffer needs no release: done at 20, MATH at 31": (31, [LATE, composite()], QUEUED),
    # ex_composite: V there at 28, P at 43, P V 43..51
    "P V enters at the end": (54, [ex_composite()], {}),
    "P V behind the next composite, GEMM 70..78": (89, [ex_composite(), stream(40)], {}),
    "P V at a wait, then GEMM 63..71": (74, [ex_composite(), WAIT, composite()], {}),
    "P V at a stall, then GEMM 62..70": (
        73,
        [ex_composite(), composite()],
        {"scheduler.queue_depth_composites": 1},
    ),
    "P V at use of the accumulator": (56, [ex_composite(), elementwise("max", 4, 23)], {}),
    "P V at use by a composite: GEMM 54..62": (65, [ex_composite(), composite((22, 11))], {}),
    "dot before the pending P V": (
        54,
        [ex_composite(), command("dot", rows=4, inner=4, cols=4)],
        {},
    ),
    "the accumulator awaits all composites so far, the last to 81": (
        83,
        [ex_composite(), composite(), stream(40), elementwise("max", 4, 23)],
        {},
    ),
    "no use of the accumulator: its buffer was loaded anew, there at 40": (
        61,
        [ex_composite(), load(23), command("store", reads=(23,), hbm_bytes=10)],
        {},
    ),
    "s awaited: softmax 67..98": (
        113,
        [STREAMED, ex_composite(s=12)],
        {},
    ),
    "the first O awaited, there at 81: rescale 81..85": (96, [load(23, 70), ex_composite(1)], {}),
    "the first m awaited, there at 81: softmax 81..112": (127, [load(21, 70), ex_composite(1)], {}),
    "two: softmax 43..74, rescale 74..78, P V 78..86": (89, [ex_composite(), ex_composite()], {}),
    "rescale after the previous one's completion at 89": (
        104,
        [ex_composite(60), ex_composite()],
        {},
    ),
    "V from the completion of the second last at 54: there at 114": (
        125,
        [ex_composite(), ex_composite(), ex_composite(50)],
        {},
    ),
    # Scopes
    "a scope awaits the last one's load": (22, [*scope(1, load()), *scope(1, LOOP)], {}),
    "one arena: loads at 1, 22, 43": (43, scope(1, load()) * 3, {}),
    "two arenas: loads at 1, 2, 22": (22, scope(2, load()) * 3, {}),
    "a scope awaits a pending P V": (55, [*scope(1, ex_composite()), *scope(1, LOOP)], {}),
    "a scope awaits a composite": (68, [*scope(1, STREAMED), *scope(1, LOOP)], {}),
    "a scope awaits a store": (
        22,
        [*scope(1, command("store", hbm_bytes=10)), *scope(1, LOOP)],
        {},
    ),
    "a scope awaits queued MATH": (32, [*scope(1, LATE), *scope(1, LOOP)], QUEUED),
    "an outer scope awaits what is inside inner ones": (
        22,
        [*scope(1, *scope(1, load(), depth=1)), *scope(1, LOOP)],
        {},
    ),
    "an inner scope awaits the last one of its depth": (
        22,
        scope(1, *scope(1, load(), depth=1), *scope(1, LOOP, depth=1)),
        {},
    ),
    "scopes of another depth do not matter": (2, [*scope(1, load()), *scope(1, LOOP, depth=1)], {}),
}


@pytest.mark.parametrize(("latency", "program", "changes"), ONE_RANK.values(), ids=ONE_RANK)
def test_one_rank(latency: float, program: list[Recorded], changes: dict[str, Any]) -> None:
    assert run(program, **changes).latency_ns == latency


def test_p_v_that_enters_after_p_is_ready() -> None:
    """P is ready at 43, but the CPU is held until 44: P V is on GEMM from 44 to 52."""
    late = [ex_composite(), load(23), elementwise("max", 4, 23)]
    assert run(late).latency_ns == 55


def test_busy() -> None:
    done = run([load(), STREAMED, ex_composite(), LATE, LOOP, send(0, 1, 1)], [recv(0, 1)])
    assert done.busy_ns[0, 0] == {
        "cpu": 1 + 2 + 2 + 1 + 1 + 1,
        "dma": 12 + 3 * 12 + 12,
        "gemm": 3 * 8 + 8,
        "math": 31 + 4 + 30,
        "port": 12,
    }
    assert done.busy_ns[0, 1] == {"cpu": 1, "dma": 0, "gemm": 0, "math": 0, "port": 0}
