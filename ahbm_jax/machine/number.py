"""Integer arithmetic for numbers that are integers of one rank or arrays over many.

Arrays may be of a floating type that holds integers: exact up to 2^24 in float32, where a quotient
below 2^24 never rounds up to the next integer.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

Number = Any


def where(condition: Any, a: Number, b: Number) -> Number:
    """`a` where `condition` holds, else `b`."""
    if isinstance(condition, bool):
        return a if condition else b
    return jnp.where(condition, a, b)


def maximum(a: Number, b: Number) -> Number:
    """The larger of two."""
    return where(a > b, a, b)


def minimum(a: Number, b: Number) -> Number:
    """The smaller of two."""
    return where(a < b, a, b)


def clip(x: Number, low: Number, high: Number) -> Number:
    """`x`, at least `low` and at most `high`."""
    return minimum(maximum(x, low), high)


def floordiv(a: Number, b: Number) -> Number:
    """floor(a / b)."""
    if _floating(a) or _floating(b):
        return jnp.floor(a / b)
    return a // b


def cdiv(a: Number, b: Number) -> Number:
    """ceil(a / b)."""
    if _floating(a) or _floating(b):
        return jnp.ceil(a / b)
    return -(-a // b)


def mod(a: Number, b: Number) -> Number:
    """a - b floor(a / b), in [0, b)."""
    return a - b * floordiv(a, b)


def whole(x: Number) -> Number:
    """A number that holds an integer, as one."""
    return x if isinstance(x, int) else jnp.asarray(x).astype(jnp.int32)


def look_up(table: np.ndarray, *indices: Number) -> Number:
    """`table[indices]` for integers or arrays of them, which broadcast."""
    if all(isinstance(index, int) for index in indices):
        return table[indices].item()
    return jnp.asarray(table)[indices]


def _floating(x: Number) -> bool:
    return isinstance(x, float) or (hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating))
