"""Which further measurements would narrow what a fit knows least about."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from calibration.fitting import FitResult, GroupFit
from calibration.model import Model
from calibration.parameters import Parameters
from calibration.search import Searcher

MEASUREMENTS = 5
CANDIDATES = 300
RIDGE = 1e-9  # of the information: directions that no row sees have a large, finite error


def propose(result: FitResult, count: int = MEASUREMENTS) -> list[dict[str, Any]]:
    """Measurements, one after the other, that most reduce the largest relative standard error.

    Candidates are measured rows with one of their sizes moved: to a value that others have, between
    two of those, or to twice the largest or half the smallest. A measurement is taken to be as good
    as the others were (its deviation has their robust standard deviation), so what it would tell
    follows from the Jacobian alone.

    Returns:
      Rows with `group`, `sizes`, the `parameter` whose error is largest, and that relative standard
      error `before` and `after` the measurement.
    """
    return [row for group in result.groups for row in _of_group(group, count)]


def _of_group(group: GroupFit, count: int) -> list[dict[str, Any]]:
    columns, rows = _candidates(group)
    jacobian = _jacobian(group, columns, rows)
    noise = max(group.diagnosis.noise, 1e-6)
    kept = group.jacobian[~group.splits[0].out]
    information = kept.T @ kept / noise**2
    ridge = RIDGE * np.trace(information) + 1e-12
    names = [parameter.name for parameter in group.parameters.each]
    axes = [axis for axis in group.rows.spec.axes if columns[axis].dtype.kind == "f"]
    proposed = []
    for _ in range(count):
        covariance = np.linalg.inv(information + ridge * np.eye(len(names)))
        worst = int(np.argmax(np.diag(covariance)))
        # One row j more lowers the variance of the worst by (C j)_w^2 / (noise^2 + j' C j).
        moved = jacobian @ covariance
        gain = moved[:, worst] ** 2 / (noise**2 + np.sum(moved * jacobian, axis=1))
        best = int(np.argmax(gain))
        before = covariance[worst, worst]
        sizes = {axis: float(columns[axis][best]) for axis in axes}
        proposed.append(
            {
                "group": group.label,
                "sizes": {axis: size for axis, size in sizes.items() if np.isfinite(size)},
                "parameter": names[worst],
                "before": float(np.sqrt(before)),
                "after": float(np.sqrt(max(before - gain[best], 0.0))),
            }
        )
        information = information + np.outer(jacobian[best], jacobian[best]) / noise**2
    return proposed


def _candidates(group: GroupFit) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of rows that could be measured, and the number of the measured row each is from."""
    rows, random = group.rows, np.random.default_rng(0)
    by = {parameter.free.by for parameter in group.parameters.each}
    axes = [a for a in rows.spec.axes if rows.columns[a].dtype.kind == "f" and a not in by]
    base = random.integers(0, len(rows), CANDIDATES)
    columns = {name: column[base].copy() for name, column in rows.columns.items()}
    for axis in axes:
        values = np.unique(rows.columns[axis][np.isfinite(rows.columns[axis])])
        if len(values) < 2:
            continue
        between = np.round(np.sqrt(values[1:] * values[:-1]))
        ends = np.maximum(np.round([values[0] / 2, values[-1] * 2]), 1)
        choice = random.choice(np.concatenate([values, between, ends]), CANDIDATES)
        moves = random.integers(0, len(axes), CANDIDATES) == axes.index(axis)
        columns[axis] = np.where(moves, choice, columns[axis])
    sizes = rows.spec.sizes(columns)
    good = np.ones(CANDIDATES, bool)
    for name in ("group", "query_start"):
        if name in sizes:
            good &= (sizes[name] >= 0) & (sizes[name] == np.floor(sizes[name]))
    good &= sizes["group"] >= 1
    return {name: column[good] for name, column in columns.items()}, base[good]


def _jacobian(group: GroupFit, columns: dict[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Of log latency by log parameter, of the candidates; 0 for those that cannot run."""
    own = group.parameters
    of_row = {key: each[rows] if len(each) > 1 else each for key, each in own.of_row.items()}
    candidates = Model(
        base=group.model.base,
        sizes=group.rows.spec.sizes(columns),
        parameters=Parameters(own.each, of_row),
    )
    with jax.enable_x64(True):
        found = Searcher(candidates).slopes(group.splits[0].logs)
    return np.where(np.isfinite(found), found, 0.0)
