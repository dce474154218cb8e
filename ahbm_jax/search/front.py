"""The points of a sweep that nothing beats in every output at once."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
import xarray as xr

from ahbm_jax.errors import UsageError, nearest

SLAB = 2**20  # points looked at together


def pareto_front(
    found: xr.Dataset, outputs: Sequence[str], *, maximise: Collection[str] = ()
) -> xr.Dataset:
    """The Pareto front of a sweep over some outputs.

    Args:
      found: from `sweep`, or a store of it.
      outputs: variables without a dimension of their own, or knobs (what a machine must have, say);
        less is better.
      maximise: those of the outputs of which more is better.

    Returns:
      The outputs over one dimension `point`, from the best to the worst of the first output, with
      every knob as a coordinate. Points that cannot run are not in it; of equal points the first.

    Raises:
      UsageError: an output that is neither, or fewer than two of them.
    """
    dims, shape = found.result_code.dims, found.result_code.shape
    _check(found, outputs, maximise)
    best, rows = np.empty((0, len(outputs))), np.empty(0, np.int64)
    total = math.prod(shape)
    signs = np.array([-1.0 if name in maximise else 1.0 for name in outputs])
    for start in range(0, total, SLAB):
        flat = np.arange(start, min(start + SLAB, total))
        place = np.unravel_index(flat, shape)
        runs = _at(found.result_code, dims, place) == 0
        flat, place = flat[runs], tuple(axis[runs] for axis in place)
        columns = [_at(found[name], dims, place).astype(float) for name in outputs]
        values = np.concatenate([best, np.stack(columns, -1) * signs])
        every = np.concatenate([rows, flat])
        keep = _undominated(values)
        best, rows = values[keep], every[keep]
    order = np.lexsort(best.T[::-1])
    place = np.unravel_index(rows[order], shape)
    at = {d: xr.DataArray(i, dims="point") for d, i in zip(dims, place, strict=True)}
    knobs = [name for name, x in found.coords.items() if set(x.dims) <= set(dims)]
    inner = found[[*knobs, *(name for name in outputs if name not in knobs)]]
    return inner.isel(at).load()


def _check(found: xr.Dataset, outputs: Sequence[str], maximise: Collection[str]) -> None:
    dims = set(found.result_code.dims)
    allowed = [
        str(name)
        for name, x in found.variables.items()
        if set(x.dims) <= dims and x.dtype.kind in "iuf" and name != "result_code"
    ]
    for name in outputs:
        if name not in allowed:
            hint = nearest(name, allowed)
            raise UsageError(f"output `{name}` is not there{hint}; allowed: {', '.join(allowed)}")
    if len(set(outputs)) < 2 or not set(maximise) <= set(outputs):
        raise UsageError(
            f"outputs are {', '.join(outputs)}, to maximise {', '.join(maximise) or 'none'}; "
            "give two or more, and maximise some of them"
        )


def _at(x: xr.DataArray, dims: Sequence[object], place: Sequence[np.ndarray]) -> np.ndarray:
    """Values of an array at points given by their indices along `dims`."""
    at = {d: xr.DataArray(i, dims="p") for d, i in zip(dims, place, strict=True) if d in x.dims}
    return np.broadcast_to(x.isel(at).values, place[0].shape if len(place) else ())


def _undominated(values: np.ndarray) -> np.ndarray:
    """Rows [n, k] of which no other is as small everywhere and smaller somewhere; in order."""
    left = np.lexsort(values.T[::-1])  # a row is dominated by an earlier one, if at all
    kept = []
    while len(left):
        first, left = left[0], left[1:]
        kept.append(first)
        left = left[np.any(values[left] < values[first], axis=1)]
    return np.sort(np.array(kept, np.int64))
