"""`ahbm simulate`: a page that adds up, files that are whole or not there, an interrupt."""

from __future__ import annotations

import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from ahbm_jax import load_machine, load_workload
from ahbm_jax.cli.main import main
from ahbm_jax.events import simulate
from ahbm_jax.report.summary import cpu_ns, summary

ROOT = Path(__file__).resolve().parents[2]
POINT = ("simulate", "decode", "--context", "2k", "--c", "2", "--p", "2")
KERNELS = """
from kernels.reduce import reduce_on


def crowd(tl, q, k, v, output):
    partial = *(tl.full(output.shape[0], 1, x) for x in (0.0, 1.0)), tl.full(*output.shape, 0.0)
    reduce_on(tl, "cube", partial)  # every PE at once, and none says so
"""


def ahbm(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(x) for x in arguments])
    return int(stopped.value.code or 0)


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_page_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"log": "ops.parquet", "trace": "trace.json", "plot": "plot.svg", "json": "page.json"}
    files = {name: tmp_path / file for name, file in names.items()}
    options = [x for name, path in files.items() for x in (f"--{name}", path)]
    assert ahbm(*POINT, *options, "--plot-ranks", "1", "--set", "dma.issue_cycles=20") == 0

    document = read(files["json"])
    assert document["schema"] == "ahbm-simulate/1"
    assert (document["variant"], document["context"]) == ("opt3", 2048)
    assert (document["C"], document["P"], document["ranks"]) == (2, 2, 4)
    assert document["overrides"] == ["dma.issue_cycles=20"]
    assert document["files"] == {name: str(path) for name, path in files.items()}
    assert document["same"]
    assert math.isclose(document["timing_latency_ns"], document["latency_ns"], rel_tol=1e-9)
    assert abs(document["relative_difference"]) <= 1e-9
    assert document["finish_ns"]["last"] == document["latency_ns"]

    assert pyarrow.parquet.read_table(files["log"]).num_rows == document["commands"]
    assert read(files["trace"])["traceEvents"]
    picture = files["plot"].read_text()
    assert picture.startswith("<?xml")
    assert set(tmp_path.iterdir()) == set(files.values())
    assert files["json"].stat().st_mode & 0o777 == 0o666 & ~umask()

    shown = capsys.readouterr().out
    for text in ("the same", "static shares", "held by composite v", "DMA", *names.values()):
        assert text in shown


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    ("settings", "held"),
    [
        ({"variant": "opt3"}, {"composite k", "composite v", "math", "message"}),
        ({"variant": "dot"}, {"load q", "load k", "load v", "dot k", "dot v", "math", "message"}),
        ({"variant": "opt2"}, {"scratch scope: ex_composite v", "ex_composite v", "message"}),
        (
            {"variant": "opt2", "scheduler.queue_depth_composites": 1},
            {"composite queue: ex_composite v", "composite queue: composite k"},
        ),
    ],
    ids=["opt3", "dot", "opt2", "short queue"],
)
@pytest.mark.parametrize("arbitration", ["static", "first_come"])
def test_time_of_each_cpu_adds_up(
    settings: dict[str, Any], held: set[str], arbitration: str
) -> None:
    machine, workload = load_machine("ahbm_4sip"), load_workload("llama3_70b")
    knobs = {"context": 16384, "C": 2, "P": 4, "tile": 256, **settings}
    timeline = simulate("decode", machine, workload, arbitration=arbitration, **knobs)
    for rank, finish_ns in timeline.finish_ns.items():
        assert sum(cpu_ns(timeline, rank).values()) == pytest.approx(finish_ns, rel=1e-12)
    found = summary(timeline)
    assert held <= set(found["last_cpu_ns"])
    workers = {each["worker"].partition(".")[0]: each for each in found["busiest"]}
    for name, worker in workers.items():
        most = max(busy[name] for busy in timeline.busy_ns.values())
        assert worker["busy_ns"] == pytest.approx(most) or name == "port"
        assert worker["busy_ns"] <= most
    assert set(workers) == {"cpu", "dma", "gemm", "math", "port"}


def test_contention(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(KERNELS)
    kernel, file = f"{tmp_path / 'mine.py'}:crowd", tmp_path / "page.json"
    arguments = ("simulate", kernel, "--c", "2", "--json", file, "--arbitration")
    assert ahbm(*arguments, "first_come") == 0
    found = read(file)
    assert found["variant"] is None
    assert not found["same"]
    longer = found["latency_ns"] / found["timing_latency_ns"] - 1
    assert found["relative_difference"] == pytest.approx(longer)
    assert longer > 0.5
    assert f"{100 * longer:.0f}% longer: the model's error for contention" in (
        capsys.readouterr().out
    )
    assert ahbm(*arguments, "static") == 0
    assert read(file)["same"]


def test_a_difference_with_static_links_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ahbm_jax.cli.simulate._timing_ns", lambda point, bar: 1e4)
    assert ahbm(*POINT) == 1
    assert "% shorter. Both follow the timing contract" in capsys.readouterr().out


def test_all_files_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "ops.csv"
    kept.write_text("as it was")

    def full(timeline: object, path: Path) -> None:
        path.write_text("half of a tra")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ahbm_jax.report.trace.write_trace", full)
    files = ("--log", kept, "--trace", tmp_path / "t.json", "--json", tmp_path / "page.json")
    assert ahbm(*POINT, *files) == 2
    assert "`--trace`" in (error := capsys.readouterr().err)
    assert "No space left" in error
    assert list(tmp_path.iterdir()) == [kept]
    assert kept.read_text() == "as it was"


def test_one_rank_has_no_spread(capsys: pytest.CaptureFixture[str]) -> None:
    assert ahbm("simulate", "decode", "--machine", "one_pe", "--context", "512") == 0
    shown = capsys.readouterr().out
    assert "1 rank, simulated" in shown
    assert "Ranks are done" not in shown
    assert "port" not in shown


def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C as soon as the bar, which wants a terminal, has counted the first commands."""
    folder = tmp_path / "out"
    folder.mkdir()
    command = [sys.executable, "-m", "ahbm_jax.cli.main", "simulate", "decode", "--context", "1M"]
    for option, name in (("log", "ops.parquet"), ("trace", "trace.json"), ("json", "page.json")):
        command += [f"--{option}", str(folder / name)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
    terminal, stderr = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr) as run:
        os.close(stderr)
        seen = read_until(terminal, b"/66")  # of 66,866 commands
        assert run.poll() is None, seen
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=60)
        seen += read_until(terminal, None)
    os.close(terminal)
    assert run.returncode == 130, seen
    assert out == b""
    assert seen.endswith(b"ahbm: interrupted\r\n")
    assert b"Traceback" not in seen
    assert list(folder.iterdir()) == []


def read_until(terminal: int, text: bytes | None) -> bytes:
    """What a terminal shows until `text`, or its end."""
    seen, end = b"", time.monotonic() + 60
    while time.monotonic() < end and (text is None or text not in seen):
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
    return seen
