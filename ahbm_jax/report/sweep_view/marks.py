"""What a view of a sweep shows: the numbers of its marks. The page's script does the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ahbm_jax.report.sweep_view.grid import LEAST_ELASTICITY, Grid, Knob
from ahbm_jax.report.sweep_view.picture import LIMIT
from ahbm_jax.sweeps.space import SAMPLE
from ahbm_jax.sweeps.variables import ELASTICITY, LATENCY

BOUNDS = "bound_ns."


def selected(grid: Grid, values: list[Any], at: dict[str, int], dims: tuple[str, ...]) -> Any:
    """Values of the points at a place, over the dimensions `dims`, in that order."""
    array = grid.array(values)
    names = [dim.name for dim in grid.dims]
    rest = tuple(slice(None) if name in dims else at[name] for name in names)
    left = [name for name in names if name in dims]
    return np.transpose(array[rest], [left.index(name) for name in dims])


def lines(grid: Grid, view: dict[str, Any]) -> list[dict[str, Any]]:
    """Each line: name, values y [x], bound [x], codes [x]; bounds alone have no codes."""
    x, by, quantity = grid.knob(view["x"]), view["by"], view["quantity"]
    if by == x.dim:
        by = None
    dims = (x.dim,) if by is None else (by, x.dim)

    def rows(values: list[Any]) -> np.ndarray:
        return np.atleast_2d(selected(grid, values, view["at"], dims))

    y = rows(grid.quantities[quantity].values)
    bounds = {n: rows(q.values) for n, q in grid.quantities.items() if n.startswith(BOUNDS)}
    bounds = {} if quantity != LATENCY else bounds
    names = [quantity] if by is None else [f"{by} {label}" for label in grid.knob(by).labels]
    codes = rows(grid.codes)
    if view["relative"]:
        least = _least(y)
        y, bounds = y / least, {name: b / least for name, b in bounds.items()}
    found = [{"name": n, "y": y[i], "codes": codes[i]} for i, n in enumerate(names)]
    if len(found) == 1:
        return [*found, *({"name": n.removeprefix(BOUNDS), "y": b[0]} for n, b in bounds.items())]
    for i, line in enumerate(found if bounds else []):
        line["bound"] = np.max([b[i] for b in bounds.values()], axis=0)
    return found


def _least(y: np.ndarray) -> np.ndarray:
    """The least value over the first axis; nan where there is none."""
    least = np.min(np.where(np.isnan(y), np.inf, y), axis=0)
    return np.where(np.isinf(least), np.nan, least)


def field(grid: Grid, view: dict[str, Any]) -> dict[str, Any]:
    """A quantity z over two knobs: cells [y, x] of two axes, else points with an x and y each."""
    x, y = grid.knob(view["x"]), grid.knob(view["y"] or view["x"])
    dims = (x.dim,) if y.dim == x.dim else (y.dim, x.dim)
    quantity = view["quantity"]
    values = grid.limits if quantity == LIMIT else grid.quantities[quantity].values
    z = np.atleast_2d(selected(grid, values, view["at"], dims))
    codes = np.atleast_2d(selected(grid, grid.codes, view["at"], dims))
    if SAMPLE in dims:
        down, across = np.indices(z.shape)
        own = across if len(dims) == 1 else down
        return {"z": z, "codes": codes, "x": _numbers(x)[across], "y": _numbers(y)[own]}
    if view.get("relative") and len(dims) == 2:
        z = z / _least(z)
    return {"z": z, "codes": codes}


def _numbers(knob: Knob) -> np.ndarray:
    """A knob's values; of texts their places."""
    return np.array(knob.values if knob.numeric else range(len(knob.values)), float)


def bars(grid: Grid, view: dict[str, Any]) -> list[tuple[str, float]]:
    """Each cost and its elasticity at a place, the largest last; small ones are left out."""
    found = []
    for name, quantity in grid.quantities.items():
        if name.startswith(ELASTICITY + "."):
            value = float(selected(grid, quantity.values, view["at"], ()))
            if not math.isnan(value) and abs(value) >= LEAST_ELASTICITY:
                found.append((quantity.title, value))
    return sorted(found, key=lambda bar: abs(bar[1]))


def cloud(grid: Grid, cost: str, at: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Cost and latency of all points at a load, [points] each."""
    names = [dim.name for dim in grid.dims]
    here = tuple(at.get(name, slice(None)) for name in names)
    latency = grid.array(grid.quantities[LATENCY].values)
    if cost in grid.quantities:
        costs = grid.array(grid.quantities[cost].values)
    else:
        knob = grid.knob(cost)
        shape = [-1 if name == knob.dim else 1 for name in names]
        costs = np.broadcast_to(np.reshape(knob.values, shape), grid.shape)
    return costs[here].ravel(), latency[here].ravel()
