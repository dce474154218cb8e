"""Iterating a max-plus linear map n times in O(log n), or in a few steps where it is regular.

A state is a tuple of clocks, arrays of one shape with the batch last. One iteration is
x -> A x (max-plus), plus constants: clocks from outside the loop, which the step receives shifted
by `offset` so that they form one more coordinate and the map stays linear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ahbm_jax.interpret.algebra import largest

Array = jax.Array
Clocks = tuple[Array, ...]
Step = Callable[[Clocks, Any, Any], tuple[Clocks, Any]]

PERIODS = (1, 2, 3)  # increments that repeat after this many iterations are recognised
BLOCK = 2 * max(PERIODS)  # iterations between two looks for a period
BLOCKS = 8  # looks before powers take over


def iterate(step: Step, x: Clocks, aux: Any, n: Array) -> tuple[Clocks, Any, Array]:
    """State after `n` iterations of `step(x, aux, offset) -> (x, aux)`, exactly.

    Also returns where the state is known to have become regular, so that a multiple of the period
    more of iterations would add the same to every clock.

    Plain steps are taken until, for a period p, the state has grown by the same amount eta in
    every coordinate in each of the last two periods. Then it does so for ever: a map that is
    homogeneous sends x + eta to A x + eta, and no constant can be on a maximum that grew. So the
    rest is (n - k) / p periods of eta. Points with no such period within `BLOCKS` looks go
    through binary powers of the augmented matrix.

    Args:
      step: one iteration.
      x: clocks, all of one shape [..., batch]; `-inf` means "no constraint".
      aux: numbers that the first iteration sets and the others repeat.
      n: iterations, a float array of that shape; may differ from point to point.
    """
    n = jnp.broadcast_to(n, x[0].shape)

    def block(carry: tuple) -> tuple:
        x, aux, left, looks, known = carry

        def one(carry: tuple, i: Array) -> tuple:
            active = i < left
            x, aux = carry
            moved = step(x, aux, 0.0)
            kept = jax.tree.map(lambda new, old: jnp.where(active, new, old), moved, carry)
            return kept, jnp.stack(kept[0])

        (_, aux), history = jax.lax.scan(one, (x, aux), jnp.arange(BLOCK, dtype=n.dtype))
        states = jnp.concatenate([jnp.stack(x)[None], history])
        whole = left >= BLOCK  # all steps were taken
        left = jnp.maximum(left - BLOCK, 0.0)
        end, found = states[-1], left <= 0
        for period in PERIODS:
            regular = _is_regular(states, period) & whole
            known = known | regular
            regular = regular & ~found
            end = jnp.where(regular[None], _extrapolate(states, period, left), end)
            found = found | regular
        return tuple(end), aux, jnp.where(found, 0.0, left), looks + 1, known

    def unfinished(carry: tuple) -> Array:
        _, _, left, looks, _ = carry
        return jnp.any(left > 0) & (looks < BLOCKS)

    begin = (x, aux, n, 0, jnp.zeros(n.shape, bool))
    x, aux, left, _, known = jax.lax.while_loop(unfinished, block, begin)
    x = jax.lax.cond(jnp.any(left > 0), lambda: _powers(step, x, aux, left), lambda: x)
    return x, aux, known


def _is_regular(states: Array, period: int) -> Array:
    """Whether all clocks grew by one amount over each of the last two periods."""
    last, middle, first = (states[-1 - i * period] for i in range(3))
    recent, before = last - middle, middle - first
    size = jnp.max(jnp.where(jnp.isfinite(last), jnp.abs(last), 0.0), axis=0)
    tolerance = 8 * jnp.finfo(recent.dtype).eps * size
    eta = jnp.max(jnp.where(jnp.isnan(recent), -jnp.inf, recent), axis=0)
    same = (jnp.abs(recent - eta[None]) <= tolerance[None]) & (
        jnp.abs(before - eta[None]) <= tolerance[None]
    )
    return jnp.all(same | jnp.isneginf(last), axis=0)  # -inf constrains nothing, then or later


def _extrapolate(states: Array, period: int, left: Array) -> Array:
    """State after `left` more iterations of a map whose states repeat with `period`."""
    whole = jnp.ceil(left / period)
    back = (whole * period - left)[None]  # the state this many iterations ago, plus whole periods
    absent = jnp.isneginf(states[-1])
    growth = jnp.where(absent, 0.0, states[-1] - jnp.where(absent, 0.0, states[-1 - period]))
    origin = states[-1]
    for b in range(1, period):
        origin = jnp.where(back == b, states[-1 - b], origin)
    return origin + whole[None] * growth


def augmented_matrix(step: Step, x: Clocks, aux: Any) -> Array:
    """The matrix of `step` as [to, from, ..., batch]; the last coordinate is the constant."""
    size = len(x) + 1
    units = jnp.where(jnp.eye(size, dtype=x[0].dtype) > 0, 0.0, -jnp.inf)

    def column(unit: Array) -> Array:
        unit = unit.reshape(size, *(1,) * x[0].ndim)
        vector = tuple(jnp.broadcast_to(unit[i], x[0].shape) for i in range(size - 1))
        image, _ = step(vector, aux, unit[-1])
        return jnp.stack([*image, jnp.broadcast_to(unit[-1], x[0].shape)])

    return jnp.moveaxis(jax.vmap(column)(units), 0, 1)


def _powers(step: Step, x: Clocks, aux: Any, n: Array) -> Clocks:
    """State after `n` iterations by binary powers of the augmented max-plus matrix."""
    matrix = augmented_matrix(step, x, aux)
    vector = jnp.stack([*x, jnp.zeros_like(x[0])])

    def bit(carry: tuple) -> tuple:
        matrix, vector, left = carry
        moved = largest(matrix + vector[None], 1)
        odd = left % 2 == 1
        return product(matrix, matrix), jnp.where(odd[None], moved, vector), jnp.floor(left / 2)

    _, vector, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[2] > 0), bit, (matrix, vector, n))
    return tuple(vector[:-1])


def product(a: Array, b: Array) -> Array:
    """Max-plus matrix product of [I, J, ...] and [J, K, ...], batch axes last."""
    rows = [largest(a[i][:, None] + b, 0) for i in range(a.shape[0])]
    return jnp.stack(rows)
