from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import ahbm_jax
from ahbm_jax.cli.tune import tune as command
from ahbm_jax.config.load import load_machine, load_workload
from ahbm_jax.errors import UsageError
from ahbm_jax.search import crossover, divide_budget, front, pareto_front, tune, tuning

MACHINE, WORKLOAD = load_machine("ahbm_4sip"), load_workload("llama3_70b")
AXES = {"variant": ["opt1", "opt3"], "C": [2, 8], "tile": [128, 512, 32768]}


def latency(**knobs: object) -> float:
    return ahbm_jax.run("decode", MACHINE, WORKLOAD, **knobs).latency_ns


@given(st.integers(2, 3), st.data())
def test_a_front_is_what_no_point_beats(outputs: int, data: st.DataObject) -> None:
    row = st.tuples(*[st.integers(0, 4)] * outputs)
    values = np.array(data.draw(st.lists(row, min_size=1, max_size=30)), float)

    def beaten(i: int) -> bool:
        others = np.all(values <= values[i], axis=1) & np.any(values < values[i], axis=1)
        same = np.all(values[:i] == values[i], axis=1)
        return bool(others.any() or same.any())

    kept = [i for i in range(len(values)) if not beaten(i)]
    np.testing.assert_array_equal(front._undominated(values), kept)


def test_a_front_of_a_sweep_in_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    size = np.arange(6.0)
    found = xr.Dataset(
        {
            "result_code": (("a", "b"), np.array([[0, 0], [0, 0], [4, 0]], np.int8)),
            "latency_ns": (("a", "b"), np.array([[9.0, 5.0], [4.0, 8.0], [np.inf, 7.0]])),
            "energy_pj": (("a", "b"), size.reshape(3, 2)),
        },
        coords={"a": [10.0, 20.0, 30.0], "b": [1.0, 2.0]},
    )
    for slab in (100, 2):
        monkeypatch.setattr(front, "SLAB", slab)
        best = pareto_front(found, ["latency_ns", "energy_pj"])
        np.testing.assert_array_equal(best.latency_ns, [4, 5, 9])
        np.testing.assert_array_equal(best.a, [20, 10, 10])
        worst = pareto_front(found, ["latency_ns", "a"], maximise=["a"])
        np.testing.assert_array_equal(worst.latency_ns, [4, 7])
    with pytest.raises(UsageError, match="did you mean `energy_pj`"):
        pareto_front(found, ["latency_ns", "enrgy_pj"])


def test_a_crossover_is_where_the_winner_changes() -> None:
    a, b = {"variant": "opt3"}, {"variant": "dot"}
    found = crossover(
        "decode", MACHINE, WORKLOAD, "issue.composite_cycles", (0, 400), a, b, context=32768
    )
    (crossing,) = found
    name = "issue.composite_cycles"
    for value, winner in ((crossing.before, "a"), (crossing.value, "b")):
        times = {n: latency(context=32768, **x, **{name: value}) for n, x in (("a", a), ("b", b))}
        assert min(times, key=lambda n: times[n]) == winner
    assert crossing.winner == "b"
    assert crossing.value - crossing.before < 1e-6


def test_every_crossing_of_a_small_range_is_found() -> None:
    a, b = {"variant": "opt1", "C": 1}, {"variant": "opt1", "C": 4}
    contexts = range(925, 950)
    axes = {"C": [1, 4], "context": contexts}
    swept = ahbm_jax.sweep("decode", MACHINE, WORKLOAD, axes, variant="opt1")
    leads = swept.latency_ns.sel(C=1).values < swept.latency_ns.sel(C=4).values
    changes = [
        c for c, (x, y) in zip(contexts[1:], itertools.pairwise(leads), strict=True) if x != y
    ]
    found = crossover("decode", MACHINE, WORKLOAD, "context", (925, 949), a, b)
    assert len(changes) >= 3
    assert [crossing.value for crossing in found] == changes


@pytest.mark.parametrize("programs", [16, 1])
def test_tune_finds_the_least_of_all(monkeypatch: pytest.MonkeyPatch, programs: int) -> None:
    monkeypatch.setattr(tuning, "MOST_PROGRAMS", programs)
    found = tune("decode", MACHINE, WORKLOAD, [9000, 100_000], AXES)
    for best in found:
        ((context, _),) = best.contexts.items()
        rows = ahbm_jax.sweep("decode", MACHINE, WORKLOAD, AXES, context=context).latency_ns
        assert best.latency_ns == pytest.approx(float(rows.min()), rel=1e-5)
        assert latency(context=context, **best.knobs) == best.latency_ns
        assert best.method == ("exhaustive" if programs == 16 else "one choice at a time")
        assert best.space == 24


def test_tune_for_a_mix_and_under_a_limit() -> None:
    mix = {9000: 3.0, 100_000: 1.0}
    axes = {"variant": ["opt3"], "C": [2, 8], "tile": [128, 512]}
    (best,) = tune("decode", MACHINE, WORKLOAD, mix, axes)
    totals = {
        (c, t): sum(w * latency(variant="opt3", C=c, tile=t, context=x) for x, w in mix.items()) / 4
        for c in axes["C"]
        for t in axes["tile"]
    }
    assert best.latency_ns == pytest.approx(min(totals.values()))
    limits = {"scratch_peak_bytes": best.results[0].scratch_peak_bytes - 1}
    if best.knobs["tile"] == 512:
        (less,) = tune("decode", MACHINE, WORKLOAD, mix, axes, limits=limits)
        assert less.knobs["tile"] == 128
    with pytest.raises(UsageError, match="scratch_peak_bytes at most 10"):
        tune("decode", MACHINE, WORKLOAD, mix, axes, limits={"scratch_peak_bytes": 10})


def test_a_budget_is_spent_better_than_on_a_grid() -> None:
    spans = {"hbm.pseudo_channel_gb_per_s": (8.0, 64.0), "gemm.macs_per_cycle": (256.0, 16384.0)}
    hbm, gemm = spans
    prices, budget = {hbm: 1.0, gemm: 1 / 128}, 48.0
    held = {"context": 131072, "variant": "opt1"}
    found = divide_budget("decode", MACHINE, WORKLOAD, spans, prices, budget, starts=4, **held)
    assert found.spent <= budget * (1 + 1e-5)
    rest = np.linspace(8.0, 46.0, 39)
    grid = {hbm: rest, gemm: (budget - rest) * 128}
    swept = ahbm_jax.sweep("decode", MACHINE, WORKLOAD, {}, sample=grid, **held)
    assert found.result.latency_ns <= float(swept.latency_ns.min()) * 1.01
    with pytest.raises(UsageError, match="over the budget"):
        divide_budget("decode", MACHINE, WORKLOAD, spans, prices, 9.0, **held)


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "best.json"
    options = [
        "--axis",
        "C=2,8",
        "--axis",
        "variant=opt3",
        "--hold",
        "tile=256",
        "--json",
        str(out),
    ]
    contexts = ["--context", "8k", "--context", "128k"]
    done = CliRunner().invoke(command, ["decode", *contexts, *options], catch_exceptions=False)
    assert done.exit_code == 0
    assert "exhaustive: 4 points of 4" in done.output
    best = json.loads(out.read_text())["best"]
    assert [row["knobs"]["C"] for row in best] == [8, 8]
