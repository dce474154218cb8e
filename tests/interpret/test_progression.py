"""Blocks whose loops grow: the certified progression against all the steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ahbm_jax.interpret.progression import Kinds, Span, block_period, progress

Array = jax.Array
KINDS = Kinds(clocks=[True, True, True], late=[False, False, True], counts=[False] * 3)


def span(stop: int, period: int = 1, turn: int = 0) -> Span:
    first, last, step = (jnp.full((1, 1, 1), float(x)) for x in (0, stop, period))

    def until(index: Array) -> Array:
        return jnp.where(index < turn, float(turn), last)

    return Span(start=first, stop=last, period=step, until=until)


def plain(step: Callable[..., tuple[list[Array], Array]], state: list[Array], stop: int) -> list:
    for index in range(stop):
        state, _ = step(jnp.full((1, 1, 1), float(index)), state, jnp.zeros((1, 1, 1)))
    return [float(x[0, 0, 0]) for x in state]


def blocks(tile: float, tiles: Callable[[Array], Array]) -> Callable:
    """A block on a fast and a slow engine, `tiles(index)` tiles long; the last clock is late."""

    def step(index: Array, state: list[Array], base: Array) -> tuple[list[Array], Array]:
        fast, slow, _ = state
        count = tiles(index)
        grown = jnp.maximum(fast + 3.0, slow) + count * tile
        return [grown - 2.0, grown, slow], count >= 2

    return step


def begin() -> list[Array]:
    return [jnp.full((1, 1, 1), x) for x in (5.0, 0.0, -jnp.inf)]


@pytest.mark.parametrize("stop", [0, 1, 5, 40, 1000])
@pytest.mark.parametrize(
    ("tiles", "period"),
    [
        (lambda i: i, 1),
        (lambda i: jnp.floor(i / 3), 3),
        (lambda i: 2 * i + jnp.mod(i, 2), 2),
    ],
    ids=["one more each", "one more each three", "uneven"],
)
def test_progression_is_all_the_steps(tiles: Callable, period: int, stop: int) -> None:
    with jax.enable_x64(True):
        step = blocks(1.7, tiles)
        jumped, _ = progress(step, begin(), span(stop, period), KINDS)
        expected = plain(step, begin(), stop)
    np.testing.assert_allclose([float(x[0, 0, 0]) for x in jumped], expected, rtol=1e-13)


@pytest.mark.parametrize("turn", [1, 7, 30])
def test_growth_that_ends_at_the_turn(turn: int) -> None:
    with jax.enable_x64(True):
        step = blocks(1.7, lambda i: jnp.minimum(i, turn))
        jumped, _ = progress(step, begin(), span(300, turn=turn), KINDS)
        expected = plain(step, begin(), 300)
    np.testing.assert_allclose([float(x[0, 0, 0]) for x in jumped], expected, rtol=1e-13)


def test_few_steps_are_taken_where_it_is_regular() -> None:
    taken = []
    inner = blocks(1.7, lambda i: i)

    def step(index: Array, state: list[Array], base: Array) -> tuple[list[Array], Array]:
        jax.debug.callback(lambda: taken.append(1))
        return inner(index, state, base)

    with jax.enable_x64(True):
        jax.block_until_ready(progress(step, begin(), span(10_000), KINDS))
    assert len(taken) < 12


def test_float32_keeps_long_sums() -> None:
    step = blocks(1.7, lambda i: i)
    with jax.enable_x64(True):
        exact, _ = progress(step, begin(), span(4000), KINDS)
    rounded, _ = progress(step, [x.astype(jnp.float32) for x in begin()], span(4000), KINDS)
    np.testing.assert_allclose(float(rounded[1][0, 0, 0]), float(exact[1][0, 0, 0]), rtol=1e-5)


@pytest.mark.parametrize(("tile", "block"), [(256, 32), (256, 100), (37, 64), (64, 64), (100, 300)])
def test_period_is_that_of_the_tiles(tile: int, block: int) -> None:
    period = int(block_period(jnp.float32(block), jnp.float32(tile)))
    assert period == tile // math.gcd(tile, block)
