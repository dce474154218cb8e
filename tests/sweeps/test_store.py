from __future__ import annotations

import filecmp
from pathlib import Path

import pytest
import xarray as xr

from ahbm_jax.config.load import load_machine, load_workload
from ahbm_jax.errors import UsageError
from ahbm_jax.sweeps import store as stores
from ahbm_jax.sweeps import sweep, sweep_to_store
from ahbm_jax.sweeps.plan import Plan
from ahbm_jax.sweeps.request import Request, request

AXES = {"variant": ["opt1", "opt3"], "context": [1000, 9000, 20000], "C": [1, 2, 5]}
MACHINE, WORKLOAD = load_machine("ahbm_4sip"), load_workload("llama3_70b")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ahbm_jax.sweeps.space.BLOCK_POINTS", 3)


def asked(**changed: object) -> Request:
    given = {"axes": AXES, "variables": ["latency_ns", "scratch_peak_bytes"], "held": {}} | changed
    return request("decode", MACHINE, WORKLOAD, sample=None, **given)  # pyright: ignore


def same_files(a: Path, b: Path) -> bool:
    names = sorted(str(p.relative_to(a)) for p in a.rglob("*") if p.is_file())
    assert names == sorted(str(p.relative_to(b)) for p in b.rglob("*") if p.is_file())
    _, differ, wrong = filecmp.cmpfiles(a, b, names, shallow=False)
    return not differ and not wrong


def test_a_store_holds_what_the_sweep_in_memory_does(tmp_path: Path) -> None:
    summary = sweep_to_store(asked(), tmp_path / "s")
    variables = ["latency_ns", "scratch_peak_bytes"]
    memory = sweep("decode", MACHINE, WORKLOAD, AXES, variables=variables)
    xr.testing.assert_equal(stores.read(tmp_path / "s").load(), memory)
    assert (summary.points, summary.chunks, summary.chunks_resumed) == (18, 6, 0)
    assert summary.infeasible == 6


@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_store_that_was_stopped_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    sweep_to_store(asked(), tmp_path / "clean")
    written: list[int] = []

    def stopped(store: Path, space: object, number: int, arrays: dict) -> None:
        if len(written) == at:
            first = dict(list(arrays.items())[:1])
            write(store, space, number, first)  # in the middle of a block
            raise KeyboardInterrupt
        written.append(number)
        write(store, space, number, arrays)

    write = stores.write
    monkeypatch.setattr(stores, "write", stopped)
    with pytest.raises(KeyboardInterrupt):
        sweep_to_store(asked(), tmp_path / "s")
    monkeypatch.setattr(stores, "write", write)
    started: list[int] = []
    monkeypatch.setattr(Plan, "start", lambda p, n: (started.append(n), start(p, n))[1])
    summary = sweep_to_store(asked(), tmp_path / "s")
    assert summary.chunks_resumed == at
    assert started == [n for n in range(6) if n not in written]
    assert summary.infeasible == 6
    assert same_files(tmp_path / "clean", tmp_path / "s")


start = Plan.start


def test_a_journal_that_was_cut_off_loses_its_last_line_alone(tmp_path: Path) -> None:
    sweep_to_store(asked(), tmp_path / "s")
    journal = stores.journal_path(tmp_path / "s")
    journal.write_text(journal.read_text()[:-3])
    assert sweep_to_store(asked(), tmp_path / "s").chunks_resumed == 5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"axes": AXES | {"C": [1, 2, 4]}}, "axes_sha256"),
        ({"held": {"P": 4}}, "held"),
        ({"held": {"hbm.access_latency_ns": 90.0}}, "held"),
        ({"variables": ["latency_ns"]}, "variables"),
    ],
)
def test_another_sweep_is_not_mixed_in(tmp_path: Path, changed: dict, said: str) -> None:
    sweep_to_store(asked(), tmp_path / "s")
    with pytest.raises(UsageError, match=f"differs in {said};"):
        sweep_to_store(asked(**changed), tmp_path / "s")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    with pytest.raises(UsageError, match="no sweep's store"):
        sweep_to_store(asked(), tmp_path / "s")


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        stores.opened(tmp_path / "s", asked()),
        pytest.raises(UsageError, match="another process"),
        stores.opened(tmp_path / "s", asked()),
    ):
        pass
