"""Robust deviations of log latency: quadratic when small, linear when large (soft L1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array
SCALE = 0.05  # of a deviation that is neither: 5 %


def robust(deviation: Array, scale: float = SCALE) -> Array:
    """Values whose squares add up to the robust loss of log-ratios, in units of `scale`.

    With r = deviation / scale the loss is 2 (sqrt(1 + r^2) - 1): r^2 for small r, 2 |r| for large.
    """
    r = deviation / scale
    squared = r * r
    # 2 (sqrt(1 + s) - 1) = s f with f = 2 / (sqrt(1 + s) + 1), which has a slope at 0.
    return r * jnp.sqrt(2.0 / (jnp.sqrt(1.0 + squared) + 1.0))
