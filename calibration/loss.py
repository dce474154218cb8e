"""Robust deviations of log latency: quadratic when small, linear when large (soft L1)."""

from __future__ import annotations

import numpy as np

SCALE = 0.05  # of a deviation that is neither: 5 %


def robust(deviation: np.ndarray, scale: float = SCALE) -> tuple[np.ndarray, np.ndarray]:
    """Values whose squares add up to the robust loss of log-ratios, in units of `scale`.

    With r = deviation / scale the loss is 2 (sqrt(1 + r^2) - 1): r^2 for small r, 2 |r| for large.

    Returns:
      The values, and their derivative by the deviation.
    """
    r = deviation / scale
    root = np.sqrt(1.0 + r * r)
    # 2 (sqrt(1 + s) - 1) = s f with f = 2 / (sqrt(1 + s) + 1), which has a slope at 0.
    factor = np.sqrt(2.0 / (root + 1.0))
    # d/dr of r f^(1/2) is r / root over the value, since the loss is its square.
    return r * factor, 1.0 / (root * factor * scale)
