"""Which further measurements would narrow what a fit knows least about."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibration.fitting import FitResult, GroupFit

MEASUREMENTS = 5
CANDIDATES = 400
RIDGE = 1e-9  # of the largest curvature: directions that no row sees have a large, finite error


def propose(result: FitResult, count: int = MEASUREMENTS) -> list[dict[str, Any]]:
    """Measurements, one after the other, that most reduce the largest relative standard error.

    Candidates are the sizes that were measured, on and halfway between the values of each column
    and one step past its ends. A measurement is as good as the others were (its deviation has their
    robust standard deviation), so its gain follows from the Jacobian alone.

    Returns:
      Rows with `group`, `sizes`, the `parameter` whose error is largest, and that relative standard
      error `before` and `after` the measurement.
    """
    return [row for group in result.groups for row in _of_group(group, count)]


def _of_group(group: GroupFit, count: int) -> list[dict[str, Any]]:
    columns, jacobian = _candidates(group)
    noise = max(group.diagnosis.noise, 1e-6)
    kept = group.jacobian[~group.splits[0].out]
    information = kept.T @ kept / noise**2
    ridge = RIDGE * np.trace(information) + 1e-12
    names = [parameter.name for parameter in group.parameters.each]
    rows = []
    for _ in range(count):
        covariance = np.linalg.inv(information + ridge * np.eye(len(names)))
        worst = int(np.argmax(np.diag(covariance)))
        # Of adding a row j: the variance of the worst falls by (C j)_w^2 / (noise^2 + j' C j).
        moved = jacobian @ covariance
        gain = moved[:, worst] ** 2 / (noise**2 + np.sum(moved * jacobian, axis=1))
        best = int(np.argmax(gain))
        before = covariance[worst, worst]
        rows.append(
            {
                "group": group.label,
                "sizes": {name: float(x[best]) for name, x in columns.items()},
                "parameter": names[worst],
                "before": float(np.sqrt(before)),
                "after": float(np.sqrt(max(before - gain[best], 0.0))),
            }
        )
        information = information + np.outer(jacobian[best], jacobian[best]) / noise**2
    return rows


def _candidates(group: GroupFit) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Rows that could be measured, and the Jacobian of each: those of the fit itself."""
    axes = [axis for axis in group.rows.spec.axes if group.rows.columns[axis].dtype.kind == "f"]
    random = np.random.default_rng(0)
    chosen = random.permutation(len(group.rows))[:CANDIDATES]
    columns = {axis: group.rows.columns[axis][chosen] for axis in axes}
    return columns, group.jacobian[chosen]
