"""`ahbm fit` as a user runs it, and `ahbm run` on the machine that it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import calibration
from ahbm_jax.cli import fit as command
from ahbm_jax.cli.main import main
from ahbm_jax.errors import UsageError

DISPATCH = "arch,config,num_kernel_binaries,kernel_bytes_each,dispatch_ns\n"
ROWS = [(n, b, 2000 + 150 * n + 0.08 * n * b) for n in (1, 2, 4) for b in (256, 1024, 4096, 8192)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(DISPATCH + "".join(f"a,x,{n},{b},{ns}\n" for n, b, ns in ROWS))
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_fit_then_run(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, out = tmp_path / "fit.json", tmp_path / "out"
    options = ("--data", str(data), "--json", str(result), "--out", str(out), "--plan")
    assert run("fit", "wormhole_dispatch", *options) == 0
    printed = capsys.readouterr().out
    assert "Held-out errors" in printed
    assert "Measurements that would tell most" in printed
    document = json.loads(result.read_text())
    assert {"data_hash", "rows", "starts", "seconds", "splits", "parameters"} <= set(document)
    assert set(document["splits"]["random"]) >= {"mape", "median", "p90", "roofline_mape"}
    assert document["splits"]["random"]["mape"] < 5
    keys = {"name", "value", "unit", "standard_error", "at_bound", "identifiable"}
    assert all(set(row) == keys for row in document["parameters"])
    report = (out / "wormhole_dispatch.md").read_text()
    assert "Where the model is wrong" in report
    page = (out / "wormhole_dispatch.html").read_text()
    assert page.count("data:image/png;base64,") == 1

    machine = ("--machine", str(out / "wormhole_dispatch.yaml"), "--workload", "smollm2_135m")
    point = ("microbench", "--variant", "reads", "--c", "1", "--p", "1", "--context", "8")
    assert run("run", *point, *machine, "--sequences", "100", "--json", str(result)) == 0
    assert "Extrapolated: sequences is 100; measured: 1 to 4" in capsys.readouterr().out
    assert "sequences is 100" in json.loads(result.read_text())["extrapolated"][0]


def test_bad_data_is_refused_by_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data.write_text(data.read_text() + "a,x,1,256,2300\nb,x,1,1,-4\n")
    assert run("fit", "wormhole_dispatch", "--data", str(data)) == 2
    said = capsys.readouterr().err
    assert "mine.csv:14: the same key as line 2" in said
    assert "mine.csv:15: `dispatch_ns` is -4" in said


def test_no_data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("AHBM_DATA", raising=False)
    assert run("fit", "wormhole_dispatch") == 2
    assert "set AHBM_DATA to the folder" in capsys.readouterr().err


def test_a_foreign_calibration_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.importlib, "import_module", lambda name: pytest)
    with pytest.raises(UsageError, match="another distribution's package"):
        command._ours()
    monkeypatch.undo()
    assert command._ours() is calibration
