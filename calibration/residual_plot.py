"""Residuals of a fit against every axis of its format, as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from calibration.fitting import GroupFit

HELD, KEPT = "#c44e52", "#4c72b0"
COLUMNS = 3


def residual_plot(group: GroupFit, path: Path) -> None:
    """Predicted over measured latency, in percent off, against each axis and the latency itself."""
    first = group.splits[0]
    off = 100 * (first.predicted_ns / group.target_ns - 1)
    axes = {axis: group.rows.columns[axis] for axis in group.rows.spec.axes}
    axes["measured latency, us"] = group.target_ns / 1e3
    shown = {name: x for name, x in axes.items() if len(np.unique(x)) > 1}
    rows = -(-len(shown) // COLUMNS)
    figure = Figure(figsize=(4.2 * COLUMNS, 3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for place, (name, x) in zip(grid, shown.items(), strict=False):
        values = x
        if x.dtype.kind not in "fi":
            texts, values = np.unique(x, return_inverse=True)
            place.set_xticks(range(len(texts)), texts, rotation=20, fontsize=7)
        elif np.all(x > 0) and x.max() > 8 * x.min():
            place.set_xscale("log", base=2 if name in group.rows.spec.axes else 10)
        for mask, colour, label in ((~first.out, KEPT, "fitted"), (first.out, HELD, "held out")):
            place.plot(values[mask], off[mask], ".", ms=3, alpha=0.35, color=colour, label=label)
        place.axhline(0, color="black", lw=0.8)
        place.set_xlabel(name)
        place.set_ylabel("model too long, %")
    for place in grid[len(shown) :]:
        place.set_axis_off()
    grid[0].legend(fontsize=8, markerscale=3)
    figure.suptitle(group.label or group.rows.name)
    figure.savefig(path, dpi=110)
