"""The oracle itself, pinned by cases worked out by hand on a machine of small round costs."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

import pytest
from contracts.walk import Walk, walk

from ahbm_jax.config.load import load_machine
from ahbm_jax.interpret.record import Message, RankRecord, Recorded
from ahbm_jax.machine.params import replace
from ahbm_jax.tl.ops import OPS

# DMA: 2 + 1 a byte, data 8 later. GEMM: sub-tiles of 4 x 4 x 4 in 8, write-out 3, epilogue 1.
# MATH: 4 lanes, 1 a pass, 3 for exp. A descriptor is 6 after its issue. Ports: 2 + 1 a byte,
# arrival 5 + 4 a hop later. Issue costs 1, and 2 for composites.
COSTS = {
    "clock.frequency_ghz": 1.0,
    "hbm.pseudo_channels_per_pe": 1,
    "hbm.pseudo_channel_gb_per_s": 1.0,
    "hbm.sustained_fraction": 1.0,
    "hbm.access_latency_ns": 5.0,
    "dma.issue_cycles": 2,
    "dma.startup_cycles": 3,
    **{f"gemm.tile_{axis}": 4 for axis in "mkn"},
    "gemm.macs_per_cycle": 8,
    "gemm.writeout_cycles": 3,
    "gemm.epilogue_cycles": 1,
    "gemm.stream_depth_subtiles": 2,
    "gemm.operand_reuse": True,
    "math.lanes": 4,
    "math.exp_cycles": 3,
    "math.blocking": True,
    "scheduler.latency_cycles": 6,
    "scheduler.queue_depth_composites": 3,
    "pe_link.overhead_cycles": 2,
    "pe_link.bytes_per_cycle": 1,
    "pe_link.fixed_cycles": 5,
    "pe_link.hop_cycles": 4,
    "pe_link.queue_depth_messages": 4,
    **{f"issue.{op}_cycles": 1 for op in {spec.issue for spec in OPS.values()} | {"loop"}},
    "issue.composite_cycles": 2,
    "issue.ex_composite_cycles": 2,
}
MACHINE = replace(load_machine("one_pe"), COSTS)

QUEUED = {"math.blocking": False}


def command(op: str, **fields: Any) -> Recorded:
    return Recorded(op=op, engine=OPS[op].engine if op in OPS else "cpu", **fields)


def load(buffer: int = 1, size: int = 10) -> Recorded:
    return command("load", writes=(buffer,), hbm_bytes=size)


def elementwise(op: str, elements: int, *reads: int, to: int = 90) -> Recorded:
    return command(op, reads=reads, writes=(to,), elements=elements)


def composite(reads: tuple[int, ...] = (10, 11), to: int = 12, **fields: Any) -> Recorded:
    """Of one sub-tile, with b in scratch, unless `fields` say otherwise."""
    sizes = {"rows": 4, "inner": 4, "cols": 4}
    return command("composite", reads=reads, writes=(to,), **(sizes | fields))


def stream(size: int, to: int = 12, **fields: Any) -> Recorded:
    return composite((10,), to, hbm_bytes=size, streams=True, **fields)


def ex_composite(size: int = 10, s: int = 20) -> Recorded:
    """4 x 4 x 4: 31 of softmax, 4 of rescale, one sub-tile of P V; buffers 21, 22, 23."""
    sizes = {"rows": 4, "inner": 4, "cols": 4, "hbm_bytes": size}
    acc = (21, 22, 23)
    return command(
        "ex_composite", reads=(s, *acc), writes=acc, streams=True, into_buffer=True, **sizes
    )


def message(source: int, target: int, size: int = 10, hops: int = 1, sharers: int = 1) -> Message:
    return Message(
        mesh="pe",
        direction="E" if source < target else "W",
        source=(0, source),
        target=(0, target),
        hops=hops,
        size_bytes=size,
        sharers=sharers,
    )


def send(source: int, target: int, *reads: int, **fields: int) -> Recorded:
    return command("send", reads=reads, message=message(source, target, **fields))


def recv(source: int, target: int, to: int = 30, op: str = "recv") -> Recorded:
    return command(op, writes=(to,), message=message(source, target))


def scope(buffers: int, *inside: Recorded, depth: int = 0) -> list[Recorded]:
    marks = {"depth": depth, "buffers": buffers}
    return [command("scope_enter", **marks), *inside, command("scope_exit", **marks)]


LOOP, WAIT = command("loop"), command("wait")
LATE = elementwise("exp", 40)  # 30 on MATH
STREAMED = stream(30, inner=12)  # three stream commands of 10 bytes


def run(*programs: list[Recorded], **changes: Any) -> Walk:
    """Walk one program a PE."""
    records = [RankRecord(rank=(0, pe), commands=program) for pe, program in enumerate(programs)]
    return walk(replace(MACHINE, changes), records)


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
    "no use of the accumulator: its buffer was loaded anew": (
        54,
        [ex_composite(), load(23), elementwise("max", 4, 23)],
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
    "scopes of another depth do not matter": (2, [*scope(1, load()), *scope(1, LOOP, depth=1)], {}),
}


@pytest.mark.parametrize(("latency", "program", "changes"), ONE_RANK.values(), ids=ONE_RANK)
def test_one_rank(latency: float, program: list[Recorded], changes: dict[str, Any]) -> None:
    assert run(program, **changes).latency_ns == latency


@pytest.mark.parametrize(
    ("fields", "left", "taken"),
    [({}, 13, 22), ({"hops": 2}, 13, 26), ({"sharers": 3}, 33, 42)],
)
def test_message(fields: dict[str, int], left: float, taken: float) -> None:
    done = run([send(0, 1, **fields)], [recv(0, 1)])
    assert done.finish_ns == {(0, 0): left, (0, 1): taken + 1}
    assert done.latency_ns == taken + 1


def test_a_message_waits_for_a_late_receiver() -> None:
    assert run([send(0, 1)], [LATE, recv(0, 1)]).finish_ns[0, 1] == 32


@pytest.mark.parametrize(
    ("depth", "left", "received"),
    [(1, 43, 53), (2, 25, 35)],  # taken at 31 and 52, or at 31 and 34
)
def test_back_pressure(depth: int, left: float, received: float) -> None:
    sender, receiver = [send(0, 1)] * 2, [LATE, *[recv(0, 1)] * 2]
    done = run(sender, receiver, **{"pe_link.queue_depth_messages": depth})
    assert done.finish_ns == {(0, 0): left, (0, 1): received}


def test_back_pressure_is_of_the_direction_whoever_receives() -> None:
    far = with_fields(send(0, 2), message=message(0, 2, hops=2))
    programs = [send(0, 1), far], [LATE, recv(0, 1)], [recv(0, 2)]
    done = run(*programs, **{"pe_link.queue_depth_messages": 1})
    assert done.finish_ns == {(0, 0): 43, (0, 1): 32, (0, 2): 57}


def test_a_blocked_port_holds_neither_cpu_nor_other_ports() -> None:
    """Rank 1 takes what came from 0 only after a message that depends on 0's port west."""
    middle = [send(1, 2), send(1, 2), send(1, 0)]
    left, right = [recv(1, 0), send(0, 2)], [recv(0, 2), recv(1, 2), recv(1, 2)]
    done = run(left, middle, right, **{"pe_link.queue_depth_messages": 1})
    # West: 3..15, there at 24. From 0: 26..38, there at 47. Then 48, which frees 48..60.
    assert done.finish_ns == {(0, 0): 38, (0, 1): 60, (0, 2): 70}


def test_recv_async_holds_nothing_but_its_users() -> None:
    receiver = [recv(0, 1, op="recv_async"), elementwise("exp", 8), elementwise("add", 4, 30)]
    assert run([send(0, 1)], receiver).finish_ns[0, 1] == 24  # 1, 2..8, 22 + 1 + 1


def test_the_scheduler_awaits_recv_async_not_the_cpu() -> None:
    """What the composite awaits is sent in answer to a later command: GEMM 45..53."""
    asks = [recv(1, 0, op="recv_async"), composite((30, 11)), send(0, 1)]
    done = run(asks, [recv(0, 1), send(1, 0)])
    assert done.finish_ns == {(0, 0): 59, (0, 1): 39}  # 4..16, 25, 27..39, 48..56


def test_a_scope_awaits_a_send_until_it_has_left() -> None:
    done = run([*scope(1, send(0, 1)), *scope(1, LOOP)], [recv(0, 1)])
    assert done.finish_ns[0, 0] == 14


def test_a_scope_awaits_recv_async() -> None:
    receiver = [*scope(1, recv(0, 1, op="recv_async")), *scope(1, LOOP)]
    assert run([send(0, 1)], receiver).finish_ns[0, 1] == 23


def test_send_awaits_its_operand() -> None:
    assert run([load(), send(0, 1, 1)], [recv(0, 1)]).finish_ns == {(0, 0): 34, (0, 1): 44}


@pytest.mark.parametrize(
    "programs",
    [
        ([recv(1, 0), send(0, 1)], [recv(0, 1), send(1, 0)]),
        ([send(0, 1), send(0, 1)], []),
        ([recv(1, 0)], []),
    ],
    ids=["both receive first", "never taken", "never sent"],
)
def test_deadlock(programs: tuple[list[Recorded], ...]) -> None:
    with pytest.raises(RuntimeError, match="deadlock"):
        run(*programs, **{"pe_link.queue_depth_messages": 1})


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
