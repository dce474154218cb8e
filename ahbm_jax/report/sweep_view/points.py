"""From a sweep's dataset to the points that pictures show: all of them, or evenly chosen ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from ahbm_jax.errors import UsageError
from ahbm_jax.report.amount import tokens
from ahbm_jax.report.sweep_view.grid import (
    LEAST_ELASTICITY,
    UNEVALUATED,
    Dim,
    Grid,
    Knob,
    Numbers,
    Quantity,
)
from ahbm_jax.sweeps.dataset import TOKENS
from ahbm_jax.sweeps.space import SAMPLE
from ahbm_jax.sweeps.store import UNWRITTEN_CODE
from ahbm_jax.sweeps.variables import CODE, ELASTICITY, LATENCY

MOST_NUMBERS = 500_000  # that a page holds: some 3 MB
SLAB = 2**24  # result codes read together
DIGITS = 6
MOST_TICKS = 16
POWERS = 8.0  # highest by lowest value, from which on a knob is spread over powers
WAITS = 2.0  # times every bound: from there on no bound says what takes the time
# What a design is asked to do; all other knobs are of the design.
LOAD = ("workload", "context", "cache_tokens", "query_length", "query_start", "users")
LOAD += ("decode_users", "sequences", "window", "sinks", "softcap")


def grid_of(found: xr.Dataset) -> Grid:
    """The points of a sweep that pictures show.

    Args:
      found: from `ahbm_jax.sweep`, or a store of it.

    Raises:
      UsageError: it is not from a sweep, or has a single point.
    """
    if CODE not in found or LATENCY not in found:
        raise UsageError(
            f"the dataset has {', '.join(map(str, found)) or 'nothing'}; one from "
            f"`ahbm_jax.sweep`, with {CODE} and {LATENCY}, is needed"
        )
    shape = found[CODE].shape
    if math.prod(shape) < 2:
        raise UsageError("the sweep has a single point: nothing varies; `ahbm run` explains one")
    chosen = thinned(found)
    codes = np.asarray(chosen[CODE].values).ravel()
    limits, limit_names = _limits(chosen)
    return Grid(
        dims=[
            Dim(name=str(d), size=n, of=of)
            for d, n, of in zip(found[CODE].dims, chosen[CODE].shape, shape, strict=True)
        ],
        knobs=_knobs(chosen),
        quantities=dict(_quantities(chosen)),
        codes=np.where(codes == UNWRITTEN_CODE, UNEVALUATED, codes).tolist(),
        gaps=plain(chosen["gap"].values),
        code_names=found[CODE].attrs["flag_meanings"].split(),
        limits=limits,
        limit_names=limit_names,
        counts=_counted(found[CODE]),
        extrapolated=_extrapolated(found),
        source=dict(found.attrs),
    )


def thinned(found: xr.Dataset, most: int = MOST_NUMBERS) -> xr.Dataset:
    """As many points as have `most` numbers: the longest dimensions lose values, evenly.

    Of a sample the first points are kept, which fill its box as evenly as all do.
    """
    shape = found[CODE].shape
    each = sum(x.size // found[CODE].size for x in found.data_vars.values())
    room = max(most // each, 2)
    cap = max(shape)
    while math.prod(min(n, cap) for n in shape) > room and cap > 1:
        cap = cap * 15 // 16
    at = {}
    for dim, n in zip(found[CODE].dims, shape, strict=True):
        even = np.unique(np.linspace(0, n - 1, min(n, cap)).round().astype(int))
        at[dim] = np.arange(min(n, cap)) if dim == SAMPLE else even
    return found.isel(at)


def plain(values: np.ndarray) -> Numbers:
    """Numbers as JSON has them: None where not finite, of few digits where not whole."""

    def short(x: float) -> float | None:
        if not math.isfinite(x):
            return None
        return int(x) if x.is_integer() else float(f"{x:.{DIGITS}g}")

    return [short(x) for x in np.asarray(values, float).ravel().tolist()]


def _knobs(chosen: xr.Dataset) -> list[Knob]:
    found = []
    for dim in chosen[CODE].dims:
        names = [n for n, x in chosen.coords.items() if x.dims == (dim,)]
        found += [_knob(str(name), str(dim), chosen[name]) for name in names]
    return found


def _knob(name: str, dim: str, x: xr.DataArray) -> Knob:
    numeric = x.dtype.kind in "iuf"
    values = [float(f"{v:.9g}") for v in x.values] if numeric else [str(v) for v in x.values]
    labels = [_label(name, v) for v in values]
    return Knob(
        name=name,
        unit="" if (unit := x.attrs.get("units", "")) == "1" else unit,
        dim=dim,
        values=values,
        labels=labels,
        ticks=_ticks(labels),
        numeric=numeric,
        logarithmic=numeric and _over_powers(x.values),
        load=name in LOAD,
    )


def _over_powers(values: np.ndarray) -> bool:
    low, high = values.min(), values.max()
    return bool(len(np.unique(values)) > 2 and low > 0 and high >= POWERS * low)


def _ticks(labels: list[str]) -> list[int]:
    """Evenly chosen labels, few enough to be read: of such choices the one of shortest labels."""
    least = -(-len(labels) // MOST_TICKS)
    choices = [range(0, len(labels), step) for step in range(least, 2 * least)]
    return list(min(choices, key=lambda at: sum(len(labels[i]) for i in at) / len(at)))


def _label(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name in TOKENS and value == int(value):
        return tokens(int(value))
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def _quantities(chosen: xr.Dataset) -> Iterator[tuple[str, Quantity]]:
    dims = chosen[CODE].dims
    for name, x in chosen.data_vars.items():
        if x.dtype.kind != "f" or name in ("gap", "count"):
            continue
        title, unit = x.attrs.get("long_name", str(name)), x.attrs.get("units", "1")
        unit = "" if unit == "1" else unit
        if x.dims == dims:
            yield str(name), Quantity(title=title, unit=unit, values=plain(x.values))
            continue
        own = x.dims[-1]
        for label in x[own].values:
            part = x.sel({own: label}).values
            if name == ELASTICITY and not np.nanmax(np.abs(part), initial=0) > LEAST_ELASTICITY:
                continue
            title = str(label) if name == ELASTICITY else f"{label}: {x.attrs['long_name']}"
            yield f"{name}.{label}", Quantity(title=title, unit=unit, values=plain(part))


def _limits(chosen: xr.Dataset) -> tuple[list[int], list[str]]:
    """What limits each point: the largest bound, or waiting where it is far from every one."""
    if "bottleneck" not in chosen:
        return [], []
    names = chosen.bottleneck.attrs["flag_meanings"].split()
    codes = chosen.bottleneck.values.ravel()
    if "bound_ns" in chosen:
        with np.errstate(invalid="ignore"):
            far = chosen[LATENCY].values > WAITS * np.max(chosen.bound_ns.values, axis=-1)
        codes = np.where((codes >= 0) & far.ravel(), len(names), codes)
    return codes.tolist(), [*names, "waits"]


def _counted(codes: xr.DataArray) -> dict[int, int]:
    """Points by code, read a slab at a time."""
    found: dict[int, int] = {}
    for part in _slabs(codes):
        for code, count in zip(*np.unique(part, return_counts=True), strict=True):
            key = UNEVALUATED if code == UNWRITTEN_CODE else int(code)
            found[key] = found.get(key, 0) + int(count)
    return found


def _extrapolated(found: xr.Dataset) -> int | None:
    if "extrapolated" not in found:
        return None
    return sum(int((part == 1).sum()) for part in _slabs(found.extrapolated))


def _slabs(x: xr.DataArray) -> Iterator[np.ndarray]:
    step = max(1, SLAB * x.shape[0] // x.size)
    for start in range(0, x.shape[0], step):
        yield x[start : start + step].values
