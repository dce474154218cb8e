"""Pareto fronts of a sweep: latency against what a design needs, for each load."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import xarray as xr

from ahbm_jax.report.sweep_view.grid import Grid, Knob
from ahbm_jax.report.sweep_view.picture import FRONT, MISSING, Picture, first_place
from ahbm_jax.report.sweep_view.points import plain, thinned
from ahbm_jax.search.front import pareto_front
from ahbm_jax.sweeps.space import SAMPLE
from ahbm_jax.sweeps.variables import CODE, LATENCY

MOST_LOADS = 24
MOST_COSTS = 6
MOST_POINTS = 2**20  # of the sweep; of a larger one, those of the page
RESOURCES = ("C", "P")  # knobs that a design is larger by
OUTPUTS = ("energy_pj", "scratch_peak_bytes")
# Of a machine's numbers, by how they end: more costs more, or less does.
SIZES = ("_per_s", "_per_cycle", "_ghz", "_bytes", "lanes", "_composites", "_subtiles", "_per_pe")
SLOWNESS = ("_cycles", "_ns")


def front(found: xr.Dataset, grid: Grid) -> Picture:
    """Latency against each cost, and the designs that none beats in both."""
    name, title = "front", "Pareto front"
    costs = _costs(found, grid)
    if not costs or not any(_varies(knob) and not knob.load for knob in grid.knobs):
        says = (
            "No two outputs to weigh: give the sweep `scratch_peak_bytes` or `energy_pj` in its "
            "`variables`, or an axis that costs (C, P, a number of the machine)."
        )
        return Picture(name=name, title=title, kind=MISSING, says=says)
    source = found if found[CODE].size <= MOST_POINTS else thinned(found)
    places = _places(grid)
    stops = [{"at": at, "fronts": _at(source, grid, costs, at)} for at in places]
    says = "Designs that no other beats in both, at the load of the slider; pale: all designs."
    mixed = [k.name for k in grid.knobs if k.load and not _of_loads(grid, k.dim) and _varies(k)]
    if mixed:
        says += f" {', '.join(mixed)} varies within one front: its points answer unlike questions."
    start = first_place(grid)
    start |= min(places, key=lambda at: sum(abs(start[dim] - i) for dim, i in at.items()))
    return Picture(
        name=name,
        title=title,
        kind=FRONT,
        says=says,
        view={"cost": next(iter(costs)), "at": start},
        options={"cost": list(costs)},
        fronts={"costs": costs, "loads": stops},
    )


def _varies(knob: Knob) -> bool:
    return len(set(knob.values)) > 1


def _of_loads(grid: Grid, dim: str) -> bool:
    return dim != SAMPLE and all(knob.load for knob in grid.knobs if knob.dim == dim)


def _costs(found: xr.Dataset, grid: Grid) -> dict[str, dict[str, Any]]:
    """What may be weighed against latency: its title, and whether more of it is better."""
    outputs = [n for n in OUTPUTS if n in grid.quantities and len(_seen(grid, n)) > 1]
    varied = [knob for knob in grid.knobs if knob.numeric and _varies(knob)]
    machine = [k.name for k in varied if "." in k.name and k.name.endswith(SIZES + SLOWNESS)]
    larger = [knob.name for knob in varied if knob.name in RESOURCES]
    names = [*outputs[:1], *machine, *larger, *outputs[1:]][:MOST_COSTS]
    units = {knob.name: knob.unit for knob in grid.knobs}
    return {
        name: {"unit": units.get(name, found[name].attrs.get("units", "")), "more": _slow(name)}
        for name in names
    }


def _seen(grid: Grid, name: str) -> set[float | None]:
    return set(grid.quantities[name].values) - {None}


def _slow(name: str) -> bool:
    return "." in name and name.endswith(SLOWNESS)


def _places(grid: Grid) -> list[dict[str, int]]:
    """Loads that fronts are made for, evenly chosen from those of the grid."""
    loads = [dim for dim in grid.dims if _of_loads(grid, dim.name)]
    cap = max((dim.size for dim in loads), default=1)
    while math.prod(min(dim.size, cap) for dim in loads) > MOST_LOADS and cap > 1:
        cap -= 1
    stops = [
        np.unique(np.linspace(0, dim.size - 1, min(dim.size, cap)).round().astype(int)).tolist()
        for dim in loads
    ]
    names = [dim.name for dim in loads]
    return [dict(zip(names, at, strict=True)) for at in itertools.product(*stops)]


def _at(
    source: xr.Dataset, grid: Grid, costs: dict[str, Any], at: dict[str, int]
) -> dict[str, list[dict[str, Any]]]:
    """The front of each cost at one load."""
    values = {dim: grid.knob(dim).values[i] for dim, i in at.items()}
    wide = {dim: np.asarray(source[dim].values, dtype=object) for dim in values}
    index = {dim: _where(wide[dim], x) for dim, x in values.items()}
    here = source.isel(index)
    return {name: _front(here, grid, name, more=cost["more"]) for name, cost in costs.items()}


def _where(values: np.ndarray, wanted: Any) -> int:
    """Where a knob has a value; numbers of a grid are rounded."""
    if isinstance(wanted, str):
        return next(i for i, x in enumerate(values) if str(x) == wanted)
    return int(np.argmin(np.abs(values.astype(float) - wanted)))


def _front(here: xr.Dataset, grid: Grid, cost: str, *, more: bool) -> list[dict[str, Any]]:
    found = pareto_front(here, [LATENCY, cost], maximise=[cost] if more else [])
    shown = [knob for knob in grid.knobs if not _of_loads(grid, knob.dim)]
    texts = [
        ", ".join(f"{knob.name} {_text(found[knob.name].values[i])}" for knob in shown)
        for i in range(found.sizes["point"])
    ]
    columns = plain(found[cost].values), plain(found[LATENCY].values), texts
    points = [{"x": x, "y": y, "text": t} for x, y, t in zip(*columns, strict=True)]
    return sorted(points, key=lambda point: (point["x"], point["y"]))


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)
