"""Iterating blocks of queries, each of which sees some tiles more than the one before.

With one tile more in each block, a block takes longer than the one before by the time of a tile:
the time of n blocks is quadratic in n. It is found by looking, and known to go on for ever since
every clock moves together and the loops of tiles inside are regular (`maxplus`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

Array = jax.Array
Step = Callable[[Array, list[Array]], tuple[list[Array], Array]]

PERIODS = (1, 2, 4)  # blocks after which the tiles of a block begin and end alike
HISTORY = 3 * max(PERIODS)


def progress(
    step: Step,
    state: list[Array],
    start: Array,
    stop: Array,
    clocks: Sequence[bool],
    counts: Sequence[bool],
    used: Array,
) -> list[Array]:
    """State after `step(index, state) -> (state, regular)` for start <= index < stop, exactly.

    Steps are taken one by one until, for a period p and over the last three of them: all clocks of
    all ranks grew alike, by amounts in arithmetic progression, while the loops inside were regular.
    A step is homogeneous, so from equal clocks it makes equal ones, and what its loops do on the
    tiles that it has more is to add as much for each: the progression goes on. Points that never
    get there take all their steps.

    Args:
      step: one step; `regular` says where more tiles would add the same to every clock.
      state: arrays of one shape [lanes, lanes, batch].
      start: the first index, [1, 1, batch].
      stop: the index after the last.
      clocks: which of the state are clocks; the rest keeps what the steps taken left.
      counts: which of the rest are counts, which also grow in arithmetic progression.
      used: which lanes are in use.
    """
    moving = [c or k for c, k in zip(clocks, counts, strict=True)]
    is_clock = [c for c, m in zip(clocks, moving, strict=True) if m]

    def picked(state: list[Array]) -> Array:
        return jnp.stack([x for x, m in zip(state, moving, strict=True) if m])

    def one(carry: tuple) -> tuple:
        index, left, state, past, streak = carry
        active = left > 0
        after, regular = step(index, state)
        state = [jnp.where(active, a, b) for a, b in zip(after, state, strict=True)]
        streak = jnp.where(jnp.all(regular | ~used, axis=(0, 1), keepdims=True), streak + 1, 0)
        past = jnp.concatenate([past[1:], picked(state)[None]])
        left = jnp.where(active, left - 1, left)
        end, found = picked(state), left <= 0
        for period in PERIODS:
            known = _arithmetic(past, period, is_clock, used) & (streak > period) & ~found
            known = known & (jnp.floor(left / period) * period == left)
            end = jnp.where(known[None], _extrapolate(past, period, left / period), end)
            found = found | known
        ends = iter(end)
        state = [next(ends) if m else x for x, m in zip(state, moving, strict=True)]
        return index + 1, jnp.where(found, 0.0, left), state, past, streak

    first = picked(state)
    past = jnp.full((HISTORY + 1, *first.shape), jnp.nan, first.dtype).at[-1].set(first)
    left = stop - start
    begin = (start, left, state, past, jnp.zeros_like(left))
    return jax.lax.while_loop(lambda carry: jnp.any(carry[1] > 0), one, begin)[2]


def _growths(past: Array, period: int) -> list[Array]:
    """How much the state grew in the last three periods, the last first."""
    states = [past[-1 - i * period] for i in range(4)]
    return [a - b for a, b in zip(states, states[1:], strict=False)]


def _arithmetic(past: Array, period: int, is_clock: list[bool], used: Array) -> Array:
    """Where all clocks grew alike over three periods, in arithmetic progression: [1, 1, batch]."""
    flags = jnp.array(is_clock).reshape(-1, *[1] * (past.ndim - 2))
    last = past[-1]
    counts = flags & used & ~jnp.isneginf(last)
    size = jnp.max(jnp.where(counts, jnp.abs(last), 0.0), axis=(0, 1, 2), keepdims=True)
    tolerance = 16 * jnp.finfo(last.dtype).eps * size
    tolerance_of_counts = 16 * jnp.finfo(last.dtype).eps * jnp.abs(last)
    alike, means, growths = jnp.ones(counts.shape, bool), [], _growths(past, period)
    for growth in growths:
        largest = jnp.max(jnp.where(counts, growth, -jnp.inf), axis=(0, 1, 2), keepdims=True)
        alike = alike & (jnp.abs(growth - largest) <= tolerance)
        means.append(largest)
    even = jnp.abs(means[0] - 2 * means[1] + means[2]) <= 2 * tolerance
    steady = jnp.all((alike & even) | ~counts, axis=(0, 1, 2))
    tally = jnp.abs(growths[0] - 2 * growths[1] + growths[2]) <= tolerance_of_counts
    return (steady & jnp.all(tally | flags | ~used, axis=(0, 1, 2)))[None, None]


def _extrapolate(past: Array, period: int, times: Array) -> Array:
    """State `times` periods later."""
    last, before, _ = _growths(past, period)
    absent = jnp.isneginf(past[-1])
    last, before = (jnp.where(absent, 0.0, x) for x in (last, before))
    return past[-1] + times * last + times * (times + 1) / 2 * (last - before)
