"""Programs of recorded commands, on a machine of small round costs, to be worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

from ahbm_jax.config.load import load_machine
from ahbm_jax.events import Timeline
from ahbm_jax.events.simulation import execute
from ahbm_jax.interpret.record import Message, Rank, RankRecord, Recorded
from ahbm_jax.machine.params import replace
from ahbm_jax.tl.ops import OPS

# DMA: 2 + 1 a byte, data 8 later. GEMM: sub-tiles of 4 x 4 x 4 in 8, write-out 3, epilogue 1.
# MATH: 4 lanes, 1 a pass, 3 for exp. A descriptor is 6 after its issue. Ports: 2 + 1 a byte,
# arrival 5 + 4 a hop later. Issue costs 1, and 2 for composites.
LINK = {
    "overhead_cycles": 2,
    "bytes_per_cycle": 1,
    "fixed_cycles": 5,
    "hop_cycles": 4,
    "queue_depth_messages": 4,
}
ISSUE = load_machine("one_pe").issue
COSTS = {
    "grid.pe_cols": 4,
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
    **{f"{mesh}_link.{name}": value for mesh in ("pe", "cube") for name, value in LINK.items()},
    **{f"issue.{field.name}": 1 for field in dataclasses.fields(ISSUE)},
    "issue.composite_cycles": 2,
    "issue.ex_composite_cycles": 2,
}
MACHINE = replace(load_machine("one_pe"), COSTS)
Programs = dict[Rank, list[Recorded]]


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


def run(*programs: list[Recorded], **changes: Any) -> Timeline:
    """One program a PE of one CUBE, on `MACHINE` with `changes`."""
    return run_ranks({(0, pe): program for pe, program in enumerate(programs)}, **changes)


def run_ranks(programs: Programs, *, arbitration: str = "static", **changes: Any) -> Timeline:
    """One program a rank, of a row of CUBEs."""
    records = [RankRecord(rank=rank, commands=program) for rank, program in programs.items()]
    columns = 1 + max(cube for cube, _ in programs)
    machine = replace(MACHINE, changes)
    return execute(machine, records, cube_columns=columns, arbitration=arbitration)
