"""All pictures of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from ahbm_jax.errors import UsageError, nearest
from ahbm_jax.report.sweep_view.fronts import front
from ahbm_jax.report.sweep_view.grid import Grid
from ahbm_jax.report.sweep_view.page import page_of
from ahbm_jax.report.sweep_view.picture import (
    Picture,
    bottlenecks,
    curves,
    elasticities,
    heat_map,
)
from ahbm_jax.report.sweep_view.plot import save
from ahbm_jax.report.sweep_view.points import grid_of


@dataclass(frozen=True, slots=True)
class Pictures:
    """The pictures of a sweep by name: latency, map, front, bottleneck, elasticity."""

    grid: Grid
    each: dict[str, Picture]

    def save(self, name: str, path: str | Path, **changes: Any) -> None:
        """Draw a picture into a file that ends in .png or .svg.

        Args:
          name: of the picture.
          path: of the file.
          **changes: of what is shown: `x`, `y`, `by` (lines) and `quantity` by name, `relative`,
            `cost` (front), and `at`, a dictionary with values of the other knobs.

        Raises:
          UsageError: no such picture, change or kind of file, or the sweep lacks what it shows.
        """
        if name not in self.each:
            allowed = ", ".join(self.each)
            hint = nearest(name, self.each)
            raise UsageError(f"there is no picture `{name}`{hint}; allowed: {allowed}")
        save(self.each[name], self.grid, path, changes)

    def page(self, title: str) -> str:
        """One HTML page with all of them, which needs no network."""
        return page_of(self.grid, list(self.each.values()), title)


def pictures(found: xr.Dataset) -> Pictures:
    """Pictures of a sweep.

    Args:
      found: from `ahbm_jax.sweep`, or a store of it, which may be partly done. Of a large sweep
        evenly chosen points are shown.

    Raises:
      UsageError: it is not from a sweep, or has a single point.
    """
    grid = grid_of(found)
    made = (
        curves(grid),
        heat_map(grid),
        front(found, grid),
        bottlenecks(grid),
        elasticities(grid),
    )
    return Pictures(grid, {picture.name: picture for picture in made})


def report_page(found: xr.Dataset, *, title: str = "") -> str:
    """A sweep as one HTML page that needs no network; see `pictures`."""
    default = f"{found.attrs.get('kernel')} on {found.attrs.get('machine')}"
    return pictures(found).page(title or default)
