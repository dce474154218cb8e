"""The command log of a simulation: one row a command, as an Arrow table, Parquet or CSV."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ahbm_jax.errors import UsageError
from ahbm_jax.events.timeline import Timeline
from ahbm_jax.interpret.record import Recorded
from ahbm_jax.tl.ops import MATH_OPS

GEMMS = ("composite", "ex_composite", "dot")
ONCE = ("load", "store")  # commands that move their bytes once
SIZED = (*GEMMS, *MATH_OPS, *ONCE)  # commands whose rows and columns say something
INT, LONG, FLOAT, TEXT = pa.int32(), pa.int64(), pa.float64(), pa.string()
LIST = pa.list_(pa.field("element", INT))  # named as Parquet names it

COLUMNS: tuple[tuple[str, pa.DataType, str, str], ...] = (  # name, type, unit, description
    ("command", INT, "", "number of the command, over all ranks"),
    ("cube", INT, "", "CUBE of the group"),
    ("pe", INT, "", "PE of the CUBE"),
    ("op", TEXT, "", "operation, or a mark of control: loop, scope_enter, scope_exit"),
    ("engine", TEXT, "", "what serves it: cpu, dma, gemm, math, port"),
    ("tensor", TEXT, "", "tensor in HBM that is loaded, stored or streamed"),
    ("tile", INT, "", "KV tile of the rank's shard"),
    ("rows", INT, "elements", "rows of the result"),
    ("cols", INT, "elements", "columns of the result"),
    ("inner", INT, "elements", "contraction of a GEMM"),
    ("bytes", LONG, "bytes", "to or from HBM, refetches counted, or of the message"),
    ("mesh", TEXT, "", "of a message: pe or cube"),
    ("direction", TEXT, "", "of a message"),
    ("hops", INT, "links", "of a message"),
    ("peer_cube", INT, "", "CUBE of the other end of a message"),
    ("peer_pe", INT, "", "PE of the other end of a message"),
    ("held_ns", FLOAT, "ns", "time that the CPU stood still for it, its own run included"),
    ("issued_ns", FLOAT, "ns", "end of its issue on the CPU"),
    ("start_ns", FLOAT, "ns", "first served: by an engine, or by the CPU where it has none"),
    ("end_ns", FLOAT, "ns", "complete: its data there, its message out of the port"),
    ("busy_ns", FLOAT, "ns", "time on its engines, all added, or on the CPU where it has none"),
    ("dma_start_ns", FLOAT, "ns", "start of its first DMA command"),
    ("dma_end_ns", FLOAT, "ns", "when its last DMA command left DMA; data comes a latency later"),
    ("waits_for", LIST, "", "commands that some part of it had to come after"),
)


class Served(NamedTuple):
    """What workers did for a command."""

    busy_ns: float
    dma: tuple[float, float] | None


def op_log(timeline: Timeline) -> pa.Table:
    """Every command of every rank in program order, rank by rank: row i is command i.

    That includes the marks of control, and `scope_exit`, which takes no time, so that `waits_for`
    holds row numbers. A value that a command has not is null. Fields say what they hold under
    `description`, and their `unit`; the table's metadata, the `latency_ns` and the `arbitration`.
    """
    columns = _identity(timeline) | _times(timeline)
    fields = [
        pa.field(name, kind, metadata={"description": text} | ({"unit": unit} if unit else {}))
        for name, kind, unit, text in COLUMNS
    ]
    about = {"latency_ns": repr(timeline.latency_ns), "arbitration": timeline.arbitration}
    return pa.table(
        [pa.array(columns[field.name], field.type) for field in fields],
        schema=pa.schema(fields, metadata=about),
    )


def write_op_log(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write a command log. The same table gives the same bytes.

    Args:
      table: from `op_log`.
      path: ends in `.parquet`, or in `.csv`, where `waits_for` is numbers with spaces between.

    Raises:
      UsageError: another ending.
    """
    suffix = Path(path).suffix
    if suffix not in WRITERS:
        allowed = " or ".join(WRITERS)
        raise UsageError(f"`path` is {os.fspath(path)}; a command log must end in {allowed}")
    WRITERS[suffix](table, path)


def _identity(timeline: Timeline) -> dict[str, Any]:
    """Columns that say what each command is."""
    commands, ranks = timeline.commands, timeline.ranks
    messages = [command.message for command in commands]
    peers = [
        None if m is None else m.target if m.source == rank else m.source
        for m, rank in zip(messages, ranks, strict=True)
    ]
    return {
        "command": range(len(commands)),
        "cube": [cube for cube, _ in ranks],
        "pe": [pe for _, pe in ranks],
        "op": [c.op for c in commands],
        "engine": [c.engine for c in commands],
        "tensor": [c.tensor or None for c in commands],
        "tile": [c.tile if c.tile >= 0 else None for c in commands],
        "rows": [c.rows if c.op in SIZED else None for c in commands],
        "cols": [c.cols if c.op in SIZED else None for c in commands],
        "inner": [c.inner if c.op in GEMMS else None for c in commands],
        "bytes": _bytes(timeline),
        "mesh": [m and m.mesh for m in messages],
        "direction": [m and m.direction for m in messages],
        "hops": [m and m.hops for m in messages],
        "peer_cube": [peer and peer[0] for peer in peers],
        "peer_pe": [peer and peer[1] for peer in peers],
    }


def _times(timeline: Timeline) -> dict[str, Any]:
    """Columns that say when each command was served, and after what."""
    served = _served(timeline)
    dma = [each.dma or (None, None) for each in served]
    held = [0.0] * len(timeline.commands)
    for holds in timeline.holds.values():
        for hold in holds:
            held[hold.command] += hold.end_ns - hold.start_ns
    return {
        "held_ns": held,
        "issued_ns": timeline.issued_ns,
        "start_ns": timeline.started_ns,
        "end_ns": timeline.ended_ns,
        "busy_ns": [each.busy_ns for each in served],
        "dma_start_ns": [start for start, _ in dma],
        "dma_end_ns": [end for _, end in dma],
        "waits_for": timeline.waits_for,
    }


def _served(timeline: Timeline) -> list[Served]:
    """What workers did for each command: the CPU counts where no engine did anything."""
    cpu = [0.0] * len(timeline.commands)
    engines: dict[int, float] = {}
    dma: dict[int, tuple[float, float]] = {}
    for workers in timeline.spans.values():
        for name, spans in workers.items():
            for span in spans:
                if name == "cpu":
                    cpu[span.command] += span.busy_ns
                    continue
                engines[span.command] = engines.get(span.command, 0.0) + span.busy_ns
                if name == "dma":
                    start, _ = dma.get(span.command, (span.start_ns, 0.0))
                    dma[span.command] = start, span.end_ns
    return [Served(engines.get(i, on_cpu), dma.get(i)) for i, on_cpu in enumerate(cpu)]


def _bytes(timeline: Timeline) -> list[int]:
    """Bytes to and from HBM of each command, or of its message; 0 where there are none.

    A composite may fetch its operand more than once (without `gemm.operand_reuse`), which is the
    machine's affair and not in its record. What DMA spent on bytes says how often.
    """
    spent_ns = [0.0] * len(timeline.commands)
    for command, costs in zip(timeline.marks.commands, timeline.marks.spent, strict=True):
        for name, ns in costs:
            if name == "hbm.byte":
                spent_ns[command] += ns
    of_commands = list(zip(timeline.commands, spent_ns, strict=True))
    once = (ns / c.hbm_bytes for c, ns in of_commands if c.op in ONCE and c.hbm_bytes)
    ns_a_byte = next(once, None)

    def size(c: Recorded, ns: float) -> int:
        if c.message is not None:
            return c.message.size_bytes
        return round(ns / ns_a_byte) if c.streams and ns_a_byte else c.hbm_bytes

    return [size(c, ns) for c, ns in of_commands]


def _write_parquet(table: pa.Table, path: str | os.PathLike[str]) -> None:
    pyarrow.parquet.write_table(table, os.fspath(path))


def _write_csv(table: pa.Table, path: str | os.PathLike[str]) -> None:
    texts = [" ".join(map(str, each)) for each in table["waits_for"].to_pylist()]
    place = table.schema.get_field_index("waits_for")
    text = table.set_column(place, "waits_for", pa.array(texts, pa.string()))
    pyarrow.csv.write_csv(text, os.fspath(path))


WRITERS = {".parquet": _write_parquet, ".csv": _write_csv}
