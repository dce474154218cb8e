"""`max`: hard, with the derivative of a critical path, or smooth, with a temperature.

The hard one gives all of its derivative to one of the largest. The smooth one is the logarithm of a
sum of exponentials: it is above the hard one by up to a few temperatures, and its derivative goes
to every time in proportion to how close it is to the largest.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import jax.numpy as jnp

Array = jax.Array
_temperatures: list[Array] = []  # of the traces under way; the last one counts


@contextmanager
def smooth(temperature_ns: Array) -> Iterator[None]:
    """Inside, maxima are smooth; the temperature is that of each point of the batch, above 0."""
    _temperatures.append(temperature_ns)
    try:
        yield
    finally:
        _temperatures.pop()


def maximum(a: Array, b: Array) -> Array:
    """The later of two times; of equal ones the first is critical."""
    if _temperatures:
        return _log_sum(jnp.stack(jnp.broadcast_arrays(a, b)), 0)
    return _maximum(a, b)


def largest(x: Array, axis: int) -> Array:
    """The latest of the times along `axis`; of equal ones the first is critical."""
    return _log_sum(x, axis) if _temperatures else _largest(x, axis)


def _log_sum(x: Array, axis: int) -> Array:
    """`-inf` where all are, with a derivative of 0 there."""
    top = jax.lax.stop_gradient(jnp.max(x, axis=axis, keepdims=True))
    absent = jnp.isneginf(top)
    top, x = jnp.where(absent, 0.0, top), jnp.where(absent, 0.0, x)
    t = _temperatures[-1].reshape(*(1,) * (x.ndim - 1), -1)  # the batch is last
    out = top + t * jnp.log(jnp.sum(jnp.exp((x - top) / t), axis=axis, keepdims=True))
    return jnp.squeeze(jnp.where(absent, -jnp.inf, out), axis=axis)


@jax.custom_jvp
def _maximum(a: Array, b: Array) -> Array:
    return jnp.maximum(a, b)


@_maximum.defjvp
def _maximum_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    a, b = primals
    return jnp.maximum(a, b), jnp.where(a >= b, *tangents)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _largest(x: Array, axis: int) -> Array:
    return jnp.max(x, axis=axis)


@_largest.defjvp
def _largest_jvp(axis: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (tangent,) = primals, tangents
    index = jnp.argmax(x, axis=axis, keepdims=True)
    picked = jnp.take_along_axis(tangent, index, axis=axis)
    return jnp.max(x, axis=axis), jnp.squeeze(picked, axis=axis)
