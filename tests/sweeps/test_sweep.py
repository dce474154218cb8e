from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
import xarray as xr

import ahbm_jax
from ahbm_jax.config.load import load_machine, load_workload
from ahbm_jax.errors import AhbmError, Infeasible, UsageError
from ahbm_jax.machine.params import Energy
from ahbm_jax.sweeps import latin, sobol, sweep

ENERGY = Energy(
    hbm_pj_per_byte=30.0, gemm_pj_per_mac=0.5, math_pj_per_element=1.0, link_pj_per_byte=5.0
)
MACHINE = dataclasses.replace(load_machine("ahbm_4sip"), energy=ENERGY)
WORKLOAD = load_workload("llama3_70b")
AXES = {
    "context": [1000, 9000, 131072],
    "variant": ["opt1", "opt3"],
    "C": [1, 5, 8],
    "tile": [256, 32768],
    "hbm.access_latency_ns": [60.0, 150.0],
}


@pytest.fixture(scope="module")
def found() -> xr.Dataset:
    return sweep("decode", MACHINE, WORKLOAD, AXES, P=4)


def points(found: xr.Dataset) -> list[dict]:
    stacked = found.result_code.stack(point=found.result_code.dims)
    return [dict(zip(stacked.point.to_index().names, p, strict=True)) for p in stacked.point.values]


def test_every_point_is_what_a_run_of_it_says(found: xr.Dataset) -> None:
    codes = found.attrs | found.result_code.attrs
    meanings = codes["flag_meanings"].split()
    runs = 0
    for at in points(found):
        here = found.sel(at)
        try:
            one = ahbm_jax.run("decode", MACHINE, WORKLOAD, P=4, **at)
        except Infeasible as short:
            assert meanings[int(here.result_code)] == "scratch_overflow"
            assert float(here.gap) == short.gap
            assert np.isinf(here.latency_ns)
            continue
        except UsageError:
            assert at["C"] == 5
            assert meanings[int(here.result_code)] == "no_rectangle"
            assert np.isinf(here.latency_ns)
            assert np.isnan(here.gap)
            continue
        runs += 1
        assert int(here.result_code) == 0
        assert float(here.gap) == 0
        np.testing.assert_allclose(here.latency_ns, one.latency_ns, rtol=1e-5)
        assert float(here.scratch_peak_bytes) == one.scratch_peak_bytes
        for resource, bound in one.bounds.items():
            np.testing.assert_allclose(here.bound_ns.sel(resource=resource), bound, rtol=1e-5)
        names = here.bottleneck.attrs["flag_meanings"].split()
        assert names[int(here.bottleneck)] == one.bound
        for engine, share in one.utilisation.items():
            np.testing.assert_allclose(here.utilisation.sel(engine=engine), share, rtol=1e-5)
        for command in here.command.values:
            np.testing.assert_allclose(
                here["count"].sel(command=command), one.counts[command], rtol=1e-6
            )
        np.testing.assert_allclose(here.energy_pj, one.energy_pj, rtol=1e-5)
    assert runs >= 8


def test_dimensions_are_named_by_knob_and_have_units(found: xr.Dataset) -> None:
    assert found.latency_ns.dims == tuple(AXES)
    assert found["hbm.access_latency_ns"].attrs["units"] == "ns"
    assert found.latency_ns.attrs["units"] == "ns"
    assert found.attrs["machine"] == "ahbm_4sip"
    assert len(found.attrs["machine_sha256"]) == 64


def test_latency_alone_is_the_same(found: xr.Dataset) -> None:
    alone = sweep("decode", MACHINE, WORKLOAD, AXES, P=4, variables=["latency_ns"])
    assert set(alone) == {"latency_ns", "result_code", "gap"}
    np.testing.assert_allclose(alone.latency_ns, found.latency_ns, rtol=1e-6)
    np.testing.assert_array_equal(alone.gap, found.gap)


def test_elasticities_are_the_critical_path() -> None:
    axes = {"context": [1000, 40000], "C": [1, 8]}
    found = sweep("decode", MACHINE, WORKLOAD, axes, variant="opt1", variables=["elasticity"])
    for at in points(found):
        path = ahbm_jax.run("decode", MACHINE, WORKLOAD, variant="opt1", **at).critical_path
        here = found.sel(at)
        assert float(here.elasticity.sum()) == pytest.approx(1, rel=1e-4)
        for cost, spent in path.items():
            share = float(here.elasticity.sel(cost=cost) * here.latency_ns)
            assert share == pytest.approx(spent, rel=1e-3, abs=1)


def test_a_sample_is_one_dimension_with_its_knobs_as_coordinates() -> None:
    spans = {"hbm.access_latency_ns": (60, 200), "context": (1024, 65536, "log")}
    columns = sobol(spans, 8, seed=3, whole=("context",))
    axes = {"variant": ["opt1", "opt3"]}
    found = sweep("decode", MACHINE, WORKLOAD, axes, sample=columns, variables=["latency_ns"])
    assert found.latency_ns.dims == ("variant", "sample")
    for i in range(8):
        at = {name: float(found[name][i]) for name in spans}
        one = ahbm_jax.run("decode", MACHINE, WORKLOAD, variant="opt1", **at)
        np.testing.assert_allclose(found.latency_ns[0, i], one.latency_ns, rtol=1e-5)


@pytest.mark.parametrize("design", [sobol, latin])
def test_designs_fill_each_stratum(design) -> None:
    (values,) = design({"x": (10.0, 1000.0, "log")}, 16, seed=1).values()
    strata = np.floor(16 * np.log(values / 10) / np.log(100)).clip(0, 15)
    assert sorted(strata) == list(range(16))


def test_static_fields_workloads_and_shapes_are_axes() -> None:
    axes = {
        "workload": ["llama3_70b", "qwen3_32b"],
        "scheduler.queue_depth_composites": [1, 4],
        "group_shape": [(1, 4), (2, 2)],
    }
    found = sweep("decode", MACHINE, WORKLOAD, axes, context=9000, variables=["latency_ns"])
    at = {"scheduler.queue_depth_composites": 1, "group_shape": "1x4"}
    here = found.latency_ns.sel(at | {"workload": "qwen3_32b"})
    del at["group_shape"]
    model = load_workload("qwen3_32b")
    one = ahbm_jax.run("decode", MACHINE, model, context=9000, group_shape=(1, 4), **at)
    np.testing.assert_allclose(here, one.latency_ns, rtol=1e-5)


def test_blocks_cover_a_space_once(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = {"context": list(range(1000, 8000, 1000)), "tile": [64, 128, 256, 512, 1024]}
    whole = sweep("decode", MACHINE, WORKLOAD, axes, variables=["latency_ns"])
    monkeypatch.setattr("ahbm_jax.sweeps.space.BLOCK_POINTS", 7)
    parts = sweep("decode", MACHINE, WORKLOAD, axes, variables=["latency_ns"])
    xr.testing.assert_identical(whole, parts)


def test_float64_where_it_is_enabled() -> None:
    axes = {"context": [1000, 131072]}
    with jax.enable_x64(True):
        found = sweep("decode", MACHINE, WORKLOAD, axes, variables=["latency_ns"])
    assert found.attrs["precision"] == "float64"


@pytest.mark.parametrize(
    ("axes", "held", "said"),
    [
        ({"contxt": [1]}, {}, "did you mean `context`"),
        ({"context": []}, {}, "no values"),
        ({"context": [1.5]}, {}, "not whole"),
        ({"context": [2**21]}, {}, "1,048,576"),
        ({"context": [1, 1]}, {}, "twice"),
        ({"context": [1024]}, {"context": 8}, "given twice"),
        ({"P": [4, 9]}, {}, "has 8 PEs"),
        ({"variant": ["opt9"]}, {}, "allowed|has:"),
        ({"hbm.access_latency_ns": [-1.0]}, {}, "access_latency_ns"),
        ({"C": [1, 2], "group_shape": [(1, 2)]}, {}, "one thing"),
        ({"context": [float("nan")]}, {}, "finite"),
    ],
)
def test_what_cannot_be_is_refused(axes: dict, held: dict, said: str) -> None:
    with pytest.raises(AhbmError, match=said):
        sweep("decode", MACHINE, WORKLOAD, axes, **held)
