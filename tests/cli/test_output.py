"""What the commands print and write: rows that add up, the selected devices, whole files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ahbm_jax import load_machine, load_workload
from ahbm_jax.bench.heads import share
from ahbm_jax.cli.files import write_json
from ahbm_jax.cli.main import main
from ahbm_jax.config import shipped
from ahbm_jax.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
KEYS = {
    *("panel", "kernel", "variant", "context", "users", "users_per_group", "C", "P", "tile"),
    *(
        "latency_ns",
        "all_layers_ns",
        "tokens_per_s_bound",
        "bounds",
        "bound",
        "critical_path",
        "counts",
        "utilisation",
    ),
    *("scratch_peak_bytes", "energy_pj", "parity", "result"),
}
COUNTS = {"composite", "dma_reads", "dma_read_bytes", "sends", "recvs", "reduce_rounds"}
BENCH = """
schema: ahbm-bench-spec/1
name: tiny
machine: two_sips.yaml
workload: llama3_70b
panels:
  - name: one
    kernel: decode
    users: 1
    variants: [one_shot]
    cubes: [1]
    pes: 1
    tile_tokens: 64
    contexts_tokens: [256, 1048576]
parity:
  context_tokens: 100
"""


def ahbm(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(x) for x in arguments])
    return int(stopped.value.code or 0)


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def check_row(row: dict[str, Any]) -> None:
    assert set(row) >= KEYS
    assert math.isclose(sum(row["critical_path"].values()), row["latency_ns"], rel_tol=1e-6)
    assert set(row["counts"]) >= COUNTS
    assert row["bound"] == max(row["bounds"], key=row["bounds"].get)
    assert row["latency_ns"] >= row["bounds"][row["bound"]]
    assert all(0 <= share <= 1 for share in row["utilisation"].values())
    assert row["result"] == "ok"


def test_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.json"
    arguments = ("run", "decode", "--machine", "one_pe", "--variant", "opt1", "--context", "1k")
    assert ahbm(*arguments, "--json", file) == 0
    document = read(file)
    assert document["schema"] == "ahbm-run/1"
    assert (document["machine"], document["workload"]) == ("one_pe", "llama3_70b")
    assert (document["variant"], document["context"], document["C"]) == ("opt1", 1024, 1)
    check_row(document)
    shown = capsys.readouterr().out
    for text in ("Critical path", "Bounds", "dma.issue", "of 1,048,576 bytes"):
        assert text in shown

    assert ahbm(*arguments, "--set", "dma.issue_cycles=250", "--json", file) == 0
    assert read(file)["latency_ns"] > document["latency_ns"]


@pytest.fixture(scope="module")
def bench_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    machine = (shipped.root() / "machines" / "one_pe.yaml").read_text()
    (folder / "two_sips.yaml").write_text(machine.replace("sips: {value: 1", "sips: {value: 2"))
    (folder / "tiny.yaml").write_text(BENCH)
    return folder


def test_bench(bench_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = bench_folder / "all.json"
    assert ahbm("bench", bench_folder / "tiny.yaml", "--json", file) == 0
    document = read(file)
    assert document["schema"] == "ahbm-bench/1"
    assert document["machine"] == "one_pe"
    assert document["kv_heads_of_device"] == {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}
    feasible, infeasible = document["rows"]
    check_row(feasible)
    assert (feasible["panel"], feasible["users"], feasible["users_per_group"]) == ("one", 1, 4)
    parity = feasible["parity"]
    assert parity["E"] <= parity["E_bar"]
    assert parity["lse_error"] <= parity["lse_bar"]
    assert (parity["context"], parity["passed"]) == (100, True)

    assert set(infeasible) == set(feasible)
    assert infeasible["latency_ns"] is None
    assert "1,048,576 are there" in infeasible["result"]
    shown = capsys.readouterr().out
    assert "infeasible" in shown
    assert "Findings: fastest decode one_shot" in shown
    layers, latency = 80, feasible["latency_ns"]
    assert feasible["tokens_per_s_bound"] == pytest.approx(1e9 / (layers * latency))
    assert "80 layers of attention and nothing else" in shown


def test_devices() -> None:
    machine, workload = load_machine("ahbm_4sip"), load_workload("llama3_70b")
    assert share(machine, workload, [1, 3]).heads == {1: (2, 3), 3: (6, 7)}
    everywhere = share(machine, workload)
    assert sorted(head for heads in everywhere.heads.values() for head in heads) == list(range(8))
    per_group = [everywhere.users_per_group(8, machine.grid, cubes) for cubes in (1, 2, 4, 8)]
    assert per_group == [1, 2, 4, 8]

    few = load_workload("smollm2_135m")
    assert [len(heads) for heads in share(machine, few).heads.values()] == [1, 1, 1, 0]
    with pytest.raises(UsageError, match="without a KV head"):
        share(machine, few, [3])


def test_parity_of_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    q = rng.normal(size=(6, 1, 32))
    k, v = (rng.normal(size=(3, 70, 32)) for _ in range(2))
    np.savez(tmp_path / "in.npz", q=q, k=k, v=v, kv_len=65)
    file = tmp_path / "out.json"
    spread = ("--grid", "2,2", "--tile", "8", "--storage", "bfloat16", "--json", file)
    assert ahbm("parity", "--input", tmp_path / "in.npz", *spread) == 0
    document = read(file)
    assert (document["schema"], document["passed"]) == ("ahbm-parity/1", True)
    assert document["cases"][0]["settings"]["kv_len"] == 65


def test_wrong_numbers_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = (ROOT / "examples" / "my_decode.py").read_text()
    wrong = tmp_path / "wrong.py"
    wrong.write_text(kernel.replace("l * correction", "l"))
    rng = np.random.default_rng(2)
    x = {
        name: rng.normal(size=(2, n, 16)).astype("f4")
        for name, n in (("q", 1), ("k", 40), ("v", 40))
    }
    np.savez(tmp_path / "in.npz", **x)
    arguments = ("--input", tmp_path / "in.npz", "--tile", "8", "--json", tmp_path / "out.json")
    assert ahbm("parity", "--kernel", f"{wrong}:my_decode", *arguments) == 1
    assert not read(tmp_path / "out.json")["passed"]
    assert "FAIL input: E is" in capsys.readouterr().out


def test_example_kernel_is_right_timed_and_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = f"{ROOT / 'examples' / 'my_decode.py'}:my_decode"
    assert ahbm("parity", "--kernel", kernel, "--count", "2") == 0
    assert "31 of 31 cases pass" in capsys.readouterr().out
    file = tmp_path / "run.json"
    assert ahbm("run", kernel, "--machine", "one_pe", "--context", "1k", "--json", file) == 0
    check_row(read(file))


def test_readme_shows_the_example() -> None:
    assert (ROOT / "examples" / "my_decode.py").read_text() in (ROOT / "README.md").read_text()


def test_ops_and_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert ahbm("ops") == 0
    assert "softmax on MATH" in capsys.readouterr().out
    assert ahbm("machine", "show", "ahbm_4sip") == 0
    assert "pseudo_channel_gb_per_s" in capsys.readouterr().out


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.json"
    write_json(file, {"x": [1.5, math.inf, np.float64(2)], 3: (True, None)})
    assert read(file) == {"x": [1.5, None, 2.0], "3": [True, None]}
    with pytest.raises(AttributeError):
        write_json(file, {"x": object()})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(UsageError, match="No space left"):
        write_json(file, {})
    assert read(file)["x"][0] == 1.5
    assert list(tmp_path.iterdir()) == [file]
