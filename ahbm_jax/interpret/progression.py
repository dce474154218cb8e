"""Iterating blocks of queries, each of which sees some tiles more than the one before.

With some tiles more in each block, a block takes longer than the one before by the time of those:
the time of n blocks is quadratic in n. It is found by looking, and known to go on for ever where
every clock moves together and the loops of tiles inside are regular (`maxplus`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
# (index, clocks and the rest relative to base, base) -> (the same after a step, regular)
Step = Callable[[Array, list[Array], Array], tuple[list[Array], Array]]
EUCLID_STEPS = 36  # enough for numbers below 2^24


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """What the arrays of a state are: clocks, counts (which add up), or neither.

    `late` clocks are those that hold what another clock was a step ago.
    """

    clocks: Sequence[bool]
    late: Sequence[bool]
    counts: Sequence[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Steps start <= index < stop, each [1, 1, batch].

    Attributes:
      start: the first index.
      stop: the index after the last.
      period: steps after which blocks begin and end alike with regard to tiles.
      until: of an index, one after it up to which all steps are of a kind: they see as many tiles,
        or the same number more each. By default all are.
    """

    start: Array
    stop: Array
    period: Array
    until: Callable[[Array], Array] | None = None

    def limit(self, index: Array) -> Array:
        """The index after the last step that is of a kind with that at `index`."""
        if self.until is None:
            return self.stop
        return jnp.minimum(self.stop, jnp.maximum(self.until(index), index + 1))


def progress(step: Step, state: list[Array], span: Span, kinds: Kinds) -> tuple[list[Array], Array]:
    """State after `step` for all indices of `span`, exactly; and whether more would add the same.

    Steps are taken one by one until, at the end of three periods in a row, the clocks of all ranks
    in use stood alike, having moved by amounts in arithmetic progression, while the loops inside
    were regular. A step is homogeneous, so from equal clocks it makes equal ones, and what its
    loops do on the tiles that it has more is to add as much for each: the progression goes on. As
    many whole periods of that kind as are left are then added at once. Points that never get there
    take all their steps. A late clock falls behind by what the steps grow, so nobody will wait for
    it.

    Between steps clocks are kept relative to the latest of them, the base, whose moves are summed
    with compensation: long after 0 float32 would round each step's time away.

    Args:
      step: one step, at an index [1, 1, batch] and a base; `regular` says, for each lane, whether
        more tiles would add the same to every clock.
      state: arrays of one shape [lanes, lanes, batch], clocks `-inf` in lanes that are not in use.
        What is neither a clock nor a count keeps what the steps taken left.
      span: the steps.
      kinds: of the arrays of the state.

    Returns:
      The state, and for each point whether every kind of steps, unless there was one alone, ended
      in such a progression: then one step more of it would have added as much again, or as much
      more.
    """
    clocks, late, counts = (_where_true(each) for each in (kinds.clocks, kinds.late, kinds.counts))
    moving = [i for i in clocks if i not in late]
    start = jnp.broadcast_to(span.start, (1, 1, state[0].shape[-1]))
    stop, period = span.stop, span.period

    def one(carry: tuple) -> tuple:
        index, origin, limit, state, base, moved, past, streak, steady = carry
        active = index < stop
        after, regular = step(index, state, base.total)
        latest = _latest([after[i] for i in clocks])
        after = _shifted(after, clocks, latest)
        state = [jnp.where(active, a, b) for a, b in zip(after, state, strict=True)]
        base = base.plus(jnp.where(active, latest, 0.0))
        moved = moved + jnp.where(active, latest, 0.0)
        streak = jnp.where(jnp.all(regular, axis=(0, 1), keepdims=True), streak + 1, 0.0)
        index = jnp.where(active, index + 1, index)
        taken = index - origin
        whole = active & (jnp.floor(taken / period) * period == taken)
        times = jnp.floor((limit - index) / period)
        marks = [_Mark(state, moved), *past]
        regular = _arithmetic(marks, moving, late, counts) & whole & (streak > period)
        known = regular & (times > 0)
        ahead, leap = _extrapolated(marks, times, late, counts)
        state = [jnp.where(known, a, b) for a, b in zip(ahead, state, strict=True)]
        base = base.plus(jnp.where(known, leap, 0.0))
        index = jnp.where(known, index + times * period, index)
        turned = active & (index == limit)
        steady = steady & (~turned | regular | (taken == 1.0))
        past = jax.tree.map(lambda a, b: jnp.where(whole, a, b), marks[:2], past)
        past = jax.tree.map(lambda x: jnp.where(turned, jnp.nan, x), past)
        streak, moved = (
            jnp.where(ends, 0.0, x) for ends, x in ((turned, streak), (whole | turned, moved))
        )
        origin = jnp.where(turned, index, origin)
        limit = jnp.where(turned, span.limit(index), limit)
        return index, origin, limit, state, base, moved, past, streak, steady

    zero = jnp.zeros_like(start)
    latest = _latest([state[i] for i in clocks])
    state = _shifted(state, clocks, latest)
    unknown = _Mark([jnp.full_like(x, jnp.nan) for x in state], jnp.full_like(start, jnp.nan))
    limit = jnp.broadcast_to(span.limit(start), start.shape)
    marks, steady = [unknown, unknown], jnp.ones_like(start, bool)
    begin = (start, start, limit, state, _Sum(latest, zero), zero, marks, zero, steady)
    end = jax.lax.while_loop(lambda carry: jnp.any(carry[0] < stop), one, begin)
    _, _, _, state, base, *_, steady = end
    return _shifted(state, clocks, -base.total), steady


class _Sum(NamedTuple):
    """A sum with what rounding took from it (Kahan)."""

    total: Array
    lost: Array

    def plus(self, x: Array) -> _Sum:
        x = x - self.lost
        total = self.total + x
        return _Sum(total, (total - self.total) - x)


class _Mark(NamedTuple):
    """The state at the end of a period, and by how much the base moved in it."""

    state: list[Array]
    moved: Array


def _where_true(flags: Sequence[bool]) -> list[int]:
    return [i for i, flag in enumerate(flags) if flag]


def _latest(clocks: list[Array]) -> Array:
    return jnp.max(jnp.stack(clocks), axis=(0, 1, 2))[None, None]


def _shifted(state: list[Array], clocks: list[int], by: Array) -> list[Array]:
    return [x - by if i in clocks else x for i, x in enumerate(state)]


def block_period(block: Array, tile: Array) -> Array:
    """Blocks of `block` tokens after which one begins at a tile of `tile` tokens as before."""

    def euclid(_: int, pair: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = pair
        rest = jnp.where(b > 0, a - jnp.floor(a / jnp.maximum(b, 1.0)) * b, 0.0)
        return jnp.where(b > 0, b, a), jnp.where(b > 0, rest, b)

    common, _ = jax.lax.fori_loop(0, EUCLID_STEPS, euclid, tuple(jnp.broadcast_arrays(tile, block)))
    return tile / common


def _arithmetic(marks: list[_Mark], steady: list[int], late: list[int], counts: list[int]) -> Array:
    """Whether the last three periods were in arithmetic progression: [1, 1, batch]."""
    moves = [mark.moved for mark in marks]
    eps = jnp.finfo(moves[0].dtype).eps
    tolerance = 32 * eps * moves[0]
    good = jnp.abs(moves[0] - 2 * moves[1] + moves[2]) <= tolerance

    def hold(values: list[Array], tolerance: Array) -> Array:
        """Whether the last value is as one expects, `-inf` always."""
        near = (jnp.abs(values[0]) <= tolerance) | jnp.isneginf(values[1])
        return jnp.all(near, axis=(0, 1), keepdims=True)

    for i in (*steady, *late, *counts):
        x = [mark.state[i] for mark in marks]
        if i in steady:
            good = good & hold([x[0] - x[1], x[0]], tolerance)
            good = good & hold([x[1] - x[2], x[0]], tolerance)
        else:
            own = tolerance if i in late else 32 * eps * jnp.abs(x[0])
            good = good & hold([x[0] - 2 * x[1] + x[2], x[0]], own)
    return good


def _extrapolated(
    marks: list[_Mark], times: Array, late: list[int], counts: list[int]
) -> tuple[list[Array], Array]:
    """The state `times` periods after the first of `marks`, and how much the base moves."""
    state = list(marks[0].state)
    for i in (*late, *counts):
        x = [mark.state[i] for mark in marks]
        grown = jnp.where(jnp.isneginf(x[0]), 0.0, x[0] - x[1])
        bend = grown - jnp.where(jnp.isneginf(x[1]), 0.0, x[1] - x[2]) if i in counts else 0.0
        state[i] = x[0] + times * grown + times * (times + 1) / 2 * bend
    last, before = marks[0].moved, marks[1].moved
    return state, times * last + times * (times + 1) / 2 * (last - before)
