"""The pictures of a sweep: what each shows, as data that a page and a file are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ahbm_jax.errors import UsageError, nearest
from ahbm_jax.report.sweep_view.grid import Grid
from ahbm_jax.sweeps.space import SAMPLE
from ahbm_jax.sweeps.variables import ELASTICITY, LATENCY

LINES, MAP, CLASSES, BARS, FRONT, MISSING = "lines", "map", "classes", "bars", "front", "missing"
MOST_LINES = 12
LIMIT = "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture.

    Attributes:
      name: what it is called, in the page and in Python.
      title: its heading.
      kind: lines, map, classes, bars or front; missing if the sweep has not what it needs.
      says: how to read it, or how to get what it needs.
      view: the state that it is first shown in; the names of `at` are dimensions, its values
        indices.
      options: values that each entry of the view may have instead.
      fronts: of a front, what is drawn (see `fronts.py`).
    """

    name: str
    title: str
    kind: str
    says: str
    view: dict[str, Any] = field(default_factory=dict)
    options: dict[str, list[Any]] = field(default_factory=dict)
    fronts: dict[str, Any] | None = None

    def seen(self, grid: Grid, changes: dict[str, Any]) -> dict[str, Any]:
        """The view with some entries changed; values of `at` are those of the knobs.

        Raises:
          UsageError: the sweep has not what the picture needs, or a change is not possible.
        """
        if self.kind == MISSING:
            raise UsageError(f"picture `{self.name}`: {self.says}")
        view = self.view | {"at": dict(self.view["at"])}
        for name, value in changes.items():
            if name == "at":
                view["at"] |= {dim: _index(grid, dim, x) for dim, x in value.items()}
                continue
            allowed = self.options.get(name, [])
            if value not in allowed:
                raise UsageError(_refusal(self.name, name, value, self.options))
            view[name] = value
        return view


def _refusal(picture: str, name: str, value: Any, options: dict[str, Any]) -> str:
    if name not in options:
        allowed = ", ".join([*options, "at"])
        return f"picture `{picture}` has no `{name}`{nearest(name, options)}; allowed: {allowed}"
    texts = [str(x) for x in options[name]]
    hint = nearest(str(value), texts)
    return f"`{name}` is {value!r}{hint}; allowed: {', '.join(texts)}"


def _index(grid: Grid, dim: str, value: Any) -> int:
    """Where a value is along a dimension; of a sample the number of a point."""
    names = [each.name for each in grid.dims]
    if dim not in names:
        raise UsageError(f"`at` has `{dim}`{nearest(dim, names)}; allowed: {', '.join(names)}")
    if dim == SAMPLE:
        values: list[Any] = list(range(grid.dims[names.index(dim)].size))
    else:
        values = grid.knob(dim).values
    wanted = value if value in values else str(value)
    if wanted not in values:
        allowed = ", ".join(map(str, values))
        raise UsageError(f"`at` has {dim} = {value!r}, which is not drawn; allowed: {allowed}")
    return values.index(wanted)


def curves(grid: Grid) -> Picture:
    """A quantity against a knob, a line for each value of another, with the bounds."""
    x = _first_axis(grid)
    by = _names_of_lines(grid)
    quantities = [name for name in grid.quantities if not name.startswith((ELASTICITY, "bound_ns"))]
    bounded = any(name.startswith("bound_ns.") for name in grid.quantities)
    says = (
        "Dashed: the largest roofline bound of each line; with one line alone, every bound. A line "
        "far above its bound waits."
        if bounded
        else "To see the bounds, add `bound_ns` to the sweep's `variables`."
    )
    return Picture(
        name="latency",
        title="Latency and its bounds",
        kind=LINES,
        says=says + " A cross at the bottom is a point that cannot run.",
        view={
            "x": x,
            "by": next((name for name in by if name != x), None),
            "quantity": LATENCY,
            "relative": False,
            "at": first_place(grid),
        },
        options={
            "x": [knob.name for knob in grid.knobs],
            "by": [*by, None],
            "quantity": quantities,
            "relative": [False, True],
        },
    )


def heat_map(grid: Grid) -> Picture:
    """A quantity over two knobs."""
    x, y, names = _two_axes(grid)
    return Picture(
        name="map",
        title="Any two knobs",
        kind=MAP,
        says="Dark is less; the scale is logarithmic where values span more than a factor of four. "
        "Grey cannot run: its code and what it lacks are in the hover text.",
        view={
            "x": x,
            "y": y,
            "quantity": LATENCY,
            "relative": grid.knob(x).load and y is not None and not grid.knob(y).load,
            "at": first_place(grid),
        },
        options={
            "x": names,
            "y": [*names, None],
            "quantity": list(grid.quantities),
            "relative": [False, True],
        },
    )


def bottlenecks(grid: Grid) -> Picture:
    """What limits each point, over two knobs."""
    name, title = "bottleneck", "What limits each point"
    if not grid.limits:
        says = "This sweep does not say: add `bottleneck` and `bound_ns` to its `variables`."
        return Picture(name=name, title=title, kind=MISSING, says=says)
    x, y, names = _two_axes(grid)
    says = "The resource with the largest roofline bound"
    says += (
        "; `waits` where the latency is more than twice that bound: there the critical path "
        "(issue, access latency, dependencies, the reduce) is what to look at, with `ahbm explain`."
        if "bound_ns.memory" in grid.quantities
        else ". It may be far below the latency: add `bound_ns` to the sweep's `variables` to see."
    )
    return Picture(
        name=name,
        title=title,
        kind=CLASSES,
        says=says,
        view={"x": x, "y": y, "quantity": LIMIT, "at": first_place(grid)},
        options={"x": names, "y": [*names, None]},
    )


def elasticities(grid: Grid) -> Picture:
    """The latency's elasticity to each cost, at a point."""
    name, title = "elasticity", "What a cost is worth"
    if not any(each.startswith(ELASTICITY + ".") for each in grid.quantities):
        says = (
            "This sweep has no elasticities: add `elasticity` to its `variables` (it takes several "
            "times as long), or ask `ahbm run` for the critical path of one point."
        )
        return Picture(name=name, title=title, kind=MISSING, says=says)
    return Picture(
        name=name,
        title=title,
        kind=BARS,
        says="Percent of latency for each percent of a cost: its share of the critical path. "
        "Costs below half a percent everywhere are left out.",
        view={"at": first_place(grid)},
    )


def first_place(grid: Grid) -> dict[str, int]:
    """Where pictures start: the largest load, machines in the middle, there the fastest design."""
    at: dict[str, int] = {}
    for dim in grid.dims:
        knobs = [knob for knob in grid.knobs if knob.dim == dim.name]
        if all(knob.load for knob in knobs) and knobs[0].numeric:
            at[dim.name] = dim.size - 1
        elif any("." in knob.name for knob in knobs) or all(knob.load for knob in knobs):
            at[dim.name] = dim.size // 2
    latency = grid.array(grid.quantities[LATENCY].values)
    there = latency[tuple(at.get(dim.name, slice(None)) for dim in grid.dims)]
    free = [dim.name for dim in grid.dims if dim.name not in at]
    best = np.nanargmin(there) if np.any(np.isfinite(there)) else 0
    places = (int(i) for i in np.unravel_index(best, there.shape))
    at |= dict(zip(free, places, strict=True))
    return {dim.name: at[dim.name] for dim in grid.dims}


def _first_axis(grid: Grid) -> str:
    """The context, or the first knob of several numbers, or the first of all."""
    varied = [knob for knob in grid.knobs if knob.numeric and len(set(knob.values)) > 1]
    named = [knob.name for knob in varied]
    if "context" in named:
        return "context"
    return named[0] if named else max(grid.knobs, key=lambda knob: len(knob.values)).name


def _two_axes(grid: Grid) -> tuple[str, str | None, list[Any]]:
    """The two longest knobs, of which the context is across; and all there are."""
    varied = [knob for knob in grid.knobs if len(set(knob.values)) > 1]
    two = [knob.name for knob in sorted(varied, key=lambda knob: -len(set(knob.values)))][:2]
    if len(two) == 2 and two[1] == "context":
        two.reverse()
    names: list[Any] = [knob.name for knob in grid.knobs]
    return two[0], two[1] if len(two) == 2 else None, names


def _names_of_lines(grid: Grid) -> list[str]:
    """Knobs that may have a line for each value: variants first, then what software chooses."""
    few = [d.name for d in grid.dims if 1 < d.size <= MOST_LINES and d.name != SAMPLE]

    def order(name: str) -> tuple[bool, ...]:
        knob = grid.knob(name)
        return name != "variant", knob.load, "." in name

    return sorted(few, key=order)
