"""Small sweeps for tests of their pictures; one compiled program serves most of them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import xarray as xr

from ahbm_jax import load_machine, load_workload, sweep
from ahbm_jax.sweeps.store import UNWRITTEN_CODE

VARIABLES = ["latency_ns", "scratch_peak_bytes", "bound_ns", "bottleneck", "elasticity"]
AXES = {
    "context": [1024, 9000, 131072],
    "tile": [64, 256, 32768],
    "hbm.access_latency_ns": [60.0, 100.0, 200.0, 400.0],
}
SAMPLE = {
    "context": [1024, 5000, 70000, 131072, 300],
    "dma.issue_cycles": [0.0, 25.0, 12.0, 40.0, 3.0],
}


def swept(axes: dict[str, Any], **more: Any) -> xr.Dataset:
    """A sweep of the decode kernel's first variant on 4 ranks."""
    machine, workload = load_machine("ahbm_4sip"), load_workload("llama3_70b")
    held = {"variant": "opt1", "C": 2, "P": 2}
    return sweep("decode", machine, workload, axes, variables=VARIABLES, **held, **more)


@functools.cache
def grid() -> xr.Dataset:
    """Three axes; tiles of 32,768 tokens do not fit."""
    return swept(AXES)


@functools.cache
def sample() -> xr.Dataset:
    """A sample beside an axis."""
    return swept({"tile": [64, 256, 32768]}, sample=SAMPLE)


@functools.cache
def one_axis() -> xr.Dataset:
    """A single axis, of which one point cannot run."""
    return grid().isel({"context": 2, "hbm.access_latency_ns": 1}, drop=True)


@functools.cache
def nothing_runs() -> xr.Dataset:
    """No point runs."""
    return grid().isel(tile=[2], context=[2])


@functools.cache
def half_done() -> xr.Dataset:
    """The longest context is not evaluated yet."""
    found = grid().copy(deep=True)
    found.result_code[2] = UNWRITTEN_CODE
    for name in set(found.data_vars) - {"result_code", "bottleneck"}:
        found[name][2] = np.nan
    found.bottleneck[2] = UNWRITTEN_CODE
    return found


def large(*shape: int) -> xr.Dataset:
    """A made-up sweep over as many axes, whose latency is 1 + the number of the point."""
    names = ["context", "tile", "hbm.access_latency_ns", "dma.issue_cycles"][: len(shape)]
    coords = {
        n: (n, np.arange(1.0, k + 1), {"units": "1"}) for n, k in zip(names, shape, strict=True)
    }
    numbers = np.arange(1.0, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    code = xr.Variable(names, np.zeros(shape, np.int8), {"flag_meanings": "ok bad_size"})
    gap = xr.Variable(names, np.broadcast_to(np.float32(0), shape))
    latency = xr.Variable(names, numbers, {"units": "ns", "long_name": "latency"})
    return xr.Dataset({"latency_ns": latency, "result_code": code, "gap": gap}, coords)
