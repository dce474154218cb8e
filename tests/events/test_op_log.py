"""The command log says of every command what the timeline says, and is the same file each time."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from events.programs import LATE, load, recv, run, send

from ahbm_jax import load_machine, load_workload
from ahbm_jax.errors import UsageError
from ahbm_jax.events import Timeline, simulate
from ahbm_jax.events.engines import subtiles
from ahbm_jax.events.op_log import op_log, write_op_log
from ahbm_jax.machine.params import replace

MACHINE, WORKLOAD = load_machine("ahbm_4sip"), load_workload("llama3_70b")
SMALL = {"context": 900, "C": 2, "P": 2, "tile": 128}
Row = dict[str, Any]


@pytest.fixture(scope="module", params=["opt3", "opt2", "dot"])
def timeline(request: pytest.FixtureRequest) -> Timeline:
    return simulate("decode", MACHINE, WORKLOAD, variant=request.param, **SMALL)


def rows_of(timeline: Timeline) -> list[Row]:
    return op_log(timeline).to_pylist()


def test_a_row_is_a_command(timeline: Timeline) -> None:
    rows = rows_of(timeline)
    assert len(rows) == len(timeline.commands)
    for number, (row, command) in enumerate(zip(rows, timeline.commands, strict=True)):
        assert row["command"] == number
        assert (row["cube"], row["pe"]) == timeline.ranks[number]
        assert (row["op"], row["engine"]) == (command.op, command.engine)
        assert row["issued_ns"] == timeline.issued_ns[number]
        assert row["start_ns"] == timeline.started_ns[number]
        assert row["end_ns"] == timeline.ended_ns[number]
        assert tuple(row["waits_for"]) == timeline.waits_for[number]


def test_what_a_command_has_not_is_null(timeline: Timeline) -> None:
    for row in rows_of(timeline):
        message = [row[name] for name in ("mesh", "direction", "hops", "peer_cube", "peer_pe")]
        assert all((x is not None) == (row["op"] in ("send", "recv")) for x in message)
        on_hbm = row["op"] in ("load", "store") or (row["engine"] == "gemm" and row["bytes"] > 0)
        assert (row["tensor"] in ("q", "k", "v", "output")) == on_hbm
        assert (row["dma_start_ns"] is not None) == on_hbm
        assert (row["inner"] is not None) == (row["engine"] == "gemm")
        assert (row["rows"] is not None) == (row["engine"] in ("dma", "gemm", "math"))
        assert row["tile"] is None or row["tile"] >= 0


def test_times_add_up(timeline: Timeline) -> None:
    rows = rows_of(timeline)
    engines = ("dma", "gemm", "math", "port")
    spent = sum(busy[name] for busy in timeline.busy_ns.values() for name in engines)
    assert sum(row["busy_ns"] for row in rows if row["engine"] != "cpu") == pytest.approx(spent)
    held = sum(x.end_ns - x.start_ns for holds in timeline.holds.values() for x in holds)
    assert sum(row["held_ns"] for row in rows) == pytest.approx(held)
    for row in rows:
        assert row["start_ns"] <= row["end_ns"]
        if row["dma_start_ns"] is not None:
            assert row["start_ns"] <= row["dma_start_ns"] < row["dma_end_ns"] < row["end_ns"]


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("variant", ["opt3", "opt2"])
def test_bytes_count_what_is_fetched_again(variant: str, reuse: bool) -> None:
    """40 query rows are two M tiles: without reuse each sub-tile of K or V is fetched for both."""
    knobs = {"query_length": 5, "gemm.operand_reuse": reuse, **SMALL}
    timeline = simulate("decode", MACHINE, WORKLOAD, variant=variant, **knobs)
    gemm = replace(MACHINE, {"gemm.operand_reuse": reuse}).gemm
    for row, command in zip(rows_of(timeline), timeline.commands, strict=True):
        if command.streams:
            assert row["bytes"] == (1 if reuse else 2) * command.hbm_bytes
            assert row["bytes"] == pytest.approx(sum(subtiles(gemm, command)[0]))
        elif command.message is None:
            assert row["bytes"] == command.hbm_bytes


def test_both_ends_of_a_message(timeline: Timeline) -> None:
    """The k-th message of a channel has one size, and each end names the other."""
    channels: dict[str, dict[tuple, list[tuple]]] = defaultdict(lambda: defaultdict(list))
    for row in rows_of(timeline):
        if row["mesh"] is not None:
            here, there = (row["cube"], row["pe"]), (row["peer_cube"], row["peer_pe"])
            channel = (here, there) if row["op"] == "send" else (there, here)
            said = (row["mesh"], row["direction"], row["hops"], row["bytes"])
            channels[row["op"]][channel].append(said)
    assert channels["send"] == channels["recv"] != {}


def test_by_hand() -> None:
    """Load: issue 0..1, DMA 1..13, data at 21; MATH on it; a message of 10 bytes."""
    late = [load(), LATE, send(0, 1, 1)]
    first, second, third, taken = rows_of(run(late, [recv(0, 1)]))
    assert (first["bytes"], first["busy_ns"], first["end_ns"]) == (10, 12.0, 21.0)
    assert (first["dma_start_ns"], first["dma_end_ns"]) == (1.0, 13.0)
    assert (second["start_ns"], second["held_ns"], second["waits_for"]) == (2.0, 30.0, [0])
    assert (third["issued_ns"], third["waits_for"]) == (33.0, [0, 1])
    assert (third["start_ns"], third["end_ns"], third["busy_ns"]) == (33.0, 45.0, 12.0)
    assert (third["peer_cube"], third["peer_pe"], third["direction"]) == (0, 1, "E")
    assert (taken["held_ns"], taken["busy_ns"], taken["waits_for"]) == (54.0, 1.0, [2])


def test_columns_say_what_they_are(timeline: Timeline) -> None:
    schema = op_log(timeline).schema
    for field in schema:
        assert field.metadata[b"description"]
        assert (field.metadata.get(b"unit") == b"ns") == field.name.endswith("_ns")
    assert schema.metadata == {
        b"latency_ns": repr(timeline.latency_ns).encode(),
        b"arbitration": b"static",
    }


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_two_runs_write_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    written = []
    for name in ("one", "two"):
        timeline = simulate("decode", MACHINE, WORKLOAD, arbitration="first_come", **SMALL)
        path = tmp_path / f"{name}.{suffix}"
        write_op_log(op_log(timeline), path)
        written.append(path.read_bytes())
    assert written[0] == written[1]


def test_read_back(timeline: Timeline, tmp_path: Path) -> None:
    table = op_log(timeline)
    write_op_log(table, tmp_path / "log.parquet")
    read = pa.parquet.read_table(tmp_path / "log.parquet")
    assert read.equals(table)
    assert read.schema.equals(table.schema, check_metadata=True)

    write_op_log(table, str(tmp_path / "log.csv"))
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["op"] for row in rows] == table["op"].to_pylist()
    assert [float(row["end_ns"]) for row in rows] == timeline.ended_ns
    waits = [tuple(map(int, row["waits_for"].split())) for row in rows]
    assert waits == timeline.waits_for


@pytest.mark.parametrize("name", ["log.txt", "log", "log.parquet.gz"])
def test_other_endings(timeline: Timeline, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}; .* \.parquet or \.csv"):
        write_op_log(op_log(timeline), tmp_path / name)
    assert not list(tmp_path.iterdir())
