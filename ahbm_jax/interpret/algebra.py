"""`max` with the derivative of a critical path: all of it goes to one of the largest."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

Array = jax.Array


@jax.custom_jvp
def maximum(a: Array, b: Array) -> Array:
    """The later of two times; of equal ones the first is critical."""
    return jnp.maximum(a, b)


@maximum.defjvp
def _maximum_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    a, b = primals
    return jnp.maximum(a, b), jnp.where(a >= b, *tangents)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def largest(x: Array, axis: int) -> Array:
    """The latest of the times along `axis`; of equal ones the first is critical."""
    return jnp.max(x, axis=axis)


@largest.defjvp
def _largest_jvp(axis: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (tangent,) = primals, tangents
    index = jnp.argmax(x, axis=axis, keepdims=True)
    picked = jnp.take_along_axis(tangent, index, axis=axis)
    return jnp.max(x, axis=axis), jnp.squeeze(picked, axis=axis)
