"""Fits: of hidden costs from simulated latencies, and of measurements where there are any."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from calibration_tables import FREE, HIDDEN, simulated

import ahbm_jax
import calibration
from ahbm_jax.config.fit import Fit, Free, Split
from ahbm_jax.config.load import load_fit, sources
from ahbm_jax.errors import ConfigError, UsageError
from calibration.machine_file import machine_files, write_machines
from calibration.proposal import propose

SPEC = Fit(
    name="hidden",
    data="none.csv",
    format="transactions",
    machine="wormhole",
    kernel="microbench",
    variant="reads",
    parameters=FREE,
    splits=(Split(name="random", kind="random", share=0.2),),
    starts=3,
)


def noisy(seed: int, noise: float) -> dict[str, Any]:
    table = dict(simulated())
    factor = np.exp(noise * np.random.default_rng(seed).standard_normal(len(table["arch"])))
    return table | {"latency_cycles": (np.array(table["latency_cycles"]) * factor).tolist()}


def test_hidden_costs_are_recovered() -> None:
    result = calibration.fit(SPEC, simulated())
    document = result.document()
    assert document["starts_agreeing"] == SPEC.starts
    assert document["splits"]["random"]["mape"] < 0.01
    for row in document["parameters"]:
        assert row["value"] == pytest.approx(HIDDEN[row["name"]], rel=1e-3), row
        assert row["identifiable"]
        assert not row["at_bound"]
    assert document["unseen"] == []
    again = calibration.fit(SPEC, simulated()).document()
    assert again["parameters"] == document["parameters"]  # by seed


def test_what_the_data_cannot_see_is_said() -> None:
    """Issue of a load and of a loop iteration are always paid together."""
    both = (*FREE[:3], Free(key="issue.loop_cycles", low=1.0, high=400.0, start=20.0))
    result = calibration.fit(dataclasses.replace(SPEC, parameters=both), simulated())
    document = result.document()
    found = {row["name"]: row["identifiable"] for row in document["parameters"]}
    assert not found["issue.loop_cycles"]
    assert not found["issue.load_cycles"]
    assert found["hbm.sustained_fraction"]
    (said,) = document["unseen"]
    assert "issue.load_cycles" in said
    assert "issue.loop_cycles" in said


def test_a_fitted_machine_loads_and_says_where_from(tmp_path: Path) -> None:
    result = calibration.fit(SPEC, noisy(0, 0.01))
    (path,) = write_machines(result, tmp_path)
    machine, origin = ahbm_jax.load_machine(path), sources(path)
    for row in result.document()["parameters"]:
        section, field = row["name"].split(".")
        assert getattr(getattr(machine, section), field) == pytest.approx(row["value"], rel=1e-5)
        assert result.data.hash in origin[row["name"]]
        assert "split `random`" in origin[row["name"]]
    assert machine.validity is not None
    assert (machine.validity.least_sequences, machine.validity.most_sequences) == (1, 64)
    assert list(machine_files(result)) == [path.name]


def test_a_fitted_machine_drives_runs_and_sweeps(tmp_path: Path) -> None:
    (path,) = write_machines(calibration.fit(SPEC, simulated()), tmp_path)
    machine = ahbm_jax.load_machine(path)
    model = dataclasses.replace(
        ahbm_jax.load_workload("smollm2_135m"), query_heads=1, kv_heads=1, head_dim=1
    )
    knobs = {"variant": "reads", "C": 1, "P": 1, "sequences": 16}
    run = ahbm_jax.run("microbench", machine, model, context=1024, **knobs)
    table = simulated()
    rows = list(zip(table["num_transactions"], table["transaction_bytes"], strict=True))
    measured_ns = table["latency_cycles"][rows.index((16, 2048))]  # the clock is 1 GHz
    assert run.latency_ns == pytest.approx(measured_ns, rel=1e-3)
    axes = {"context": [1024, 2048], "dma.startup_cycles": [HIDDEN["dma.startup_cycles"], 5000.0]}
    swept = ahbm_jax.sweep("microbench", machine, model, axes, **knobs)["latency_ns"]
    assert float(swept[0, 0]) == pytest.approx(measured_ns, rel=1e-3)
    assert float(swept[0, 1] - swept[0, 0]) == pytest.approx(5000 - 310, rel=1e-3)


def test_the_plan_narrows_the_widest() -> None:
    result = calibration.fit(SPEC, noisy(1, 0.01))
    rows = propose(result, 3)
    widest = max(result.document()["parameters"], key=lambda r: r["standard_error"] / r["value"])
    assert rows[0]["parameter"] == widest["name"]
    assert all(row["after"] < row["before"] for row in rows)


def test_bad_specs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    text = (Path(__file__).parents[2] / "configs" / "fits" / "wormhole_dispatch.yaml").read_text()
    cases = [
        ("format: dispatch", "format: dispach", "dispatch"),
        ("high: 20000", "high: 10", "not above `low` 100"),
        ("issue.load_cycles", "issue.lod_cycles", "did you mean `issue.load_cycles`"),
        ("kind: random", "kind: randm", "random, group or beyond"),
        ("machine: wormhole", "machine: wormhol", "did you mean `wormhole`"),
        ("name: wormhole_dispatch", "name: wormhole_dispatch\nstart: 3", "unknown key"),
    ]
    for old, new, said in cases:
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(ConfigError) as caught:
            load_fit(path)
        assert said in str(caught.value), new
    path.write_text(text.replace("start: 2000", "start: 200000"))
    with pytest.raises(UsageError, match="begins at 200000; it must be between"):
        calibration.fit(path, _dispatch())


def _dispatch() -> dict[str, Any]:
    return {
        "arch": ["a"] * 6,
        "config": ["x"] * 6,
        "num_kernel_binaries": [1, 2, 3, 1, 2, 3],
        "kernel_bytes_each": [256, 256, 256, 4096, 4096, 4096],
        "dispatch_ns": [2500.0, 2600.0, 2700.0, 2900.0, 3100.0, 3600.0],
    }


measured = pytest.mark.skipif(
    not os.environ.get("AHBM_DATA"), reason="AHBM_DATA names no folder of measurements"
)


@measured
def test_reads_of_a_wormhole(tmp_path: Path) -> None:
    spec = dataclasses.replace(load_fit("wormhole_reads"), starts=1)
    spec = dataclasses.replace(spec, where=spec.where | {"memory": "L1", "num_peers": 1})
    document = calibration.fit(spec).document()
    errors = document["splits"]["random: one_from_one_read, L1"]
    assert errors["mape"] < 3 < 10 < errors["roofline_mape"]
    assert not any(row["at_bound"] for row in document["parameters"])
    assert json.dumps(document)
    assert not jax.config.jax_enable_x64  # which is the fit's own affair
