"""Pictures of a sweep as PNG and SVG files, drawn from the same data as the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ahbm_jax.errors import UsageError
from ahbm_jax.report.sweep_view import marks
from ahbm_jax.report.sweep_view.colours import CANNOT, CLASS_COLOURS, COLOURS, MISSING_COLOUR
from ahbm_jax.report.sweep_view.grid import UNEVALUATED, Grid, Knob
from ahbm_jax.report.sweep_view.picture import BARS, CLASSES, FRONT, LINES, MAP, Picture
from ahbm_jax.sweeps.variables import LATENCY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
INCHES = (10.0, 6.0)
DOTS_PER_INCH = 120
LOG_SPAN = 4.0  # of values, from which on their scale is logarithmic


def save(picture: Picture, grid: Grid, path: str | Path, changes: dict[str, Any]) -> None:
    """Draw a picture, its view changed, into a file that ends in .png or .svg.

    Raises:
      UsageError: another ending, a change that is not possible, or nothing to draw.
    """
    target = Path(path)
    if target.suffix not in FORMATS:
        raise UsageError(f"`path` is {target}; a picture is PNG or SVG: end it in .png or .svg")
    view = picture.seen(grid, changes)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "ahbm", "font.size": 9.0}):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.add_subplot()
        _DRAWERS[picture.kind](figure, axes, picture, grid, view)
        figure.suptitle(picture.title, x=0.01, ha="left", fontsize=11, weight="bold")
        axes.set_title(_place(grid, view, loads=picture.kind == FRONT), loc="left", fontsize=8)
        stamp = {"Date": None} if target.suffix == ".svg" else {"Software": None}
        figure.savefig(target, metadata=stamp, dpi=DOTS_PER_INCH)


def _place(grid: Grid, view: dict[str, Any], *, loads: bool) -> str:
    """What the dimensions that are not drawn are held at; of loads alone if so asked."""
    drawn = {grid.knob(view[k]).dim for k in ("x", "y", "by") if view.get(k)}
    return ", ".join(
        f"{knob.name} {knob.labels[view['at'][knob.dim]]}"
        for knob in grid.knobs
        if knob.dim not in drawn and (knob.load or not loads)
    )


def _lines(figure: Figure, axes: Axes, picture: Picture, grid: Grid, view: dict[str, Any]) -> None:
    x = grid.knob(view["x"])
    across = np.array(x.values if x.numeric else range(len(x.values)), float)
    mark = "." if x.dim != x.name else ".-"
    found = marks.lines(grid, view)
    for i, line in enumerate(found):
        colour = COLOURS[i % len(COLOURS)]
        bound = "codes" not in line
        axes.plot(across, line["y"], "--" if bound else mark, color=colour, label=line["name"])
        if "bound" in line:
            axes.plot(across, line["bound"], "--", color=colour, linewidth=0.8)
    if any("bound" in line for line in found):
        axes.plot([], [], "--", color=CANNOT, label="largest bound")
    if view["quantity"] == LATENCY:
        _log(axes, [line["y"] for line in found if "codes" in line])
    bottom = axes.get_ylim()[0]
    for i, line in enumerate(found):
        failed = np.flatnonzero(line.get("codes", np.zeros(len(across))) > 0)
        axes.plot(
            across[failed], np.full(len(failed), bottom), "x", color=COLOURS[i % len(COLOURS)]
        )
    _axis(axes, "x", x)
    axes.set_ylabel(_named(grid, view))
    axes.legend(frameon=False, fontsize=8)


def _log(axes: Axes, values: list[np.ndarray]) -> None:
    every = np.concatenate(values)
    every = every[np.isfinite(every)]
    if every.size and every.min() > 0 and every.max() > LOG_SPAN * every.min():
        axes.set_yscale("log")


def _named(grid: Grid, view: dict[str, Any]) -> str:
    name = view["quantity"]
    if view.get("relative"):
        return f"{name} over the best at each {view['x']}"
    unit = grid.quantities[name].unit
    return f"{name}, {unit}" if unit else name


def _axis(axes: Axes, which: str, knob: Knob) -> None:
    """Ticks at the values of a knob, few enough to be read."""
    values, labels = ([each[i] for i in knob.ticks] for each in (knob.values, knob.labels))
    if not knob.numeric:
        getattr(axes, f"set_{which}ticks")(knob.ticks, labels)
    elif knob.logarithmic and knob.dim == knob.name:
        getattr(axes, f"set_{which}scale")("log", base=2)
        getattr(axes, f"set_{which}ticks")(values, labels)
    elif knob.logarithmic:
        getattr(axes, f"set_{which}scale")("log")
    getattr(axes, f"set_{which}label")(f"{knob.name}, {knob.unit}" if knob.unit else knob.name)


def _map(figure: Figure, axes: Axes, picture: Picture, grid: Grid, view: dict[str, Any]) -> None:
    from matplotlib.colors import LogNorm, Normalize

    found = marks.field(grid, view)
    z, codes = found["z"], found["codes"]
    good = z[np.isfinite(z)]
    low, high = (good.min(), good.max()) if good.size else (1.0, 1.0)
    wide = low > 0 and high > LOG_SPAN * low
    scale = LogNorm(low, high) if wide else Normalize(low, high)
    style: dict[str, Any] = {"cmap": "viridis", "norm": scale}
    if "x" in found:
        drawn = axes.scatter(found["x"], found["y"], c=z, s=12, **style)
        failed = codes > 0
        axes.scatter(found["x"][failed], found["y"][failed], color=CANNOT, marker="x", s=12)
    else:
        drawn = axes.pcolormesh(z, **style)
    _frame(axes, grid, view, found)
    figure.colorbar(drawn, label=_named(grid, view))


def _classes(
    figure: Figure, axes: Axes, picture: Picture, grid: Grid, view: dict[str, Any]
) -> None:
    from matplotlib.patches import Patch

    found = marks.field(grid, view)
    z = found["z"]
    present = [i for i in range(len(grid.limit_names)) if np.any(z == i)]
    patches = []
    for i in present:
        colour = CLASS_COLOURS[grid.limit_names[i]]
        _cells(axes, found, z == i, colour)
        patches.append(Patch(color=colour, label=grid.limit_names[i]))
    _frame(axes, grid, view, found)
    patches += [Patch(color=CANNOT, label="cannot run")] if np.any(found["codes"] > 0) else []
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _cells(axes: Axes, found: dict[str, Any], chosen: np.ndarray, colour: str) -> None:
    from matplotlib.colors import ListedColormap

    if "x" in found:
        axes.scatter(found["x"][chosen], found["y"][chosen], color=colour, s=12)
    elif np.any(chosen):
        axes.pcolormesh(np.where(chosen, 1.0, np.nan), cmap=ListedColormap([colour]))


def _frame(axes: Axes, grid: Grid, view: dict[str, Any], found: dict[str, Any]) -> None:
    """Axes of a field, and in grey what cannot run or is not evaluated yet."""
    codes = found["codes"]
    x, y = grid.knob(view["x"]), None if view["y"] is None else grid.knob(view["y"])
    if "x" in found:
        _axis(axes, "x", x)
        if y is not None:
            _axis(axes, "y", y)
        return
    _cells(axes, found, codes > 0, CANNOT)
    _cells(axes, found, codes == UNEVALUATED, MISSING_COLOUR)
    for which, knob in (("x", x), ("y", None if y is x else y)):
        ticks = [] if knob is None else knob.ticks
        labels = [] if knob is None else [knob.labels[i] for i in ticks]
        getattr(axes, f"set_{which}ticks")([i + 0.5 for i in ticks], labels)
        if knob is not None:
            title = f"{knob.name}, {knob.unit}" if knob.unit else knob.name
            getattr(axes, f"set_{which}label")(title)


def _bars(figure: Figure, axes: Axes, picture: Picture, grid: Grid, view: dict[str, Any]) -> None:
    found = marks.bars(grid, view)
    axes.barh([name for name, _ in found], [value for _, value in found], color=COLOURS[0])
    axes.axvline(0.0, color="black", linewidth=0.5)
    axes.set_xlabel("elasticity of latency")


def _front(figure: Figure, axes: Axes, picture: Picture, grid: Grid, view: dict[str, Any]) -> None:
    assert picture.fronts is not None
    cost, loads = view["cost"], picture.fronts["loads"]
    stops = [s for s in loads if all(view["at"][dim] == i for dim, i in s["at"].items())]
    if not stops:
        places = [
            " and ".join(f"{dim} {grid.knob(dim).labels[i]}" for dim, i in each["at"].items())
            for each in loads
        ]
        raise UsageError(f"no front is made at this load; allowed: {', '.join(places)}")
    stop = stops[0]
    x, y = marks.cloud(grid, cost, stop["at"])
    axes.plot(x, y, ".", color=CANNOT, markersize=3, label="all designs")
    about, points = picture.fronts["costs"][cost], stop["fronts"][cost]
    columns = [p["x"] for p in points], [p["y"] for p in points]
    steps = "steps-pre" if about["more"] else "steps-post"
    axes.plot(*columns, "o-", color=COLOURS[0], drawstyle=steps, label="front")
    _log(axes, [y])
    for knob in grid.knobs:
        if knob.name == cost:
            _axis(axes, "x", knob)
    unit = f", {about['unit']}" if about["unit"] not in ("", "1") else ""
    axes.set_xlabel(f"{cost}{unit} ({'more' if about['more'] else 'less'} is better)")
    axes.set_ylabel("latency_ns, ns")
    axes.legend(frameon=False)


_DRAWERS = {LINES: _lines, MAP: _map, CLASSES: _classes, BARS: _bars, FRONT: _front}
