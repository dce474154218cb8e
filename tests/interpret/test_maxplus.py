"""Iterating a max-plus map: equal to plain steps, whatever route is taken."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahbm_jax.interpret import maxplus
from ahbm_jax.interpret.maxplus import iterate, product

SIZE, BATCH = 4, 5


def random_map(seed: int, density: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A [to, from, batch] matrix, constants [to, batch] and a start [from, batch]."""
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(0, 10, (SIZE, SIZE, BATCH)).round(int(rng.integers(3)))
    matrix[rng.random(matrix.shape) > density] = -np.inf
    # Each clock is at least its old self: an engine does not run backwards.
    for i in range(SIZE):
        matrix[i, i] = np.maximum(matrix[i, i], 0.0)
    constants = rng.uniform(0, 60, (SIZE, BATCH))
    constants[rng.random(constants.shape) > 0.5] = -np.inf
    return matrix, constants, rng.uniform(0, 20, (SIZE, BATCH))


def plainly(matrix: np.ndarray, constants: np.ndarray, x: np.ndarray, n: np.ndarray) -> np.ndarray:
    out = x.copy()
    for b in range(BATCH):
        for _ in range(int(n[b])):
            step = np.max(matrix[:, :, b] + out[None, :, b], axis=1)
            out[:, b] = np.maximum(step, constants[:, b])
    return out


def by_iterate(
    matrix: np.ndarray, constants: np.ndarray, x: np.ndarray, n: np.ndarray
) -> np.ndarray:
    def step(x: tuple, aux: tuple, offset: float) -> tuple[tuple, tuple]:
        stacked = jnp.stack(x)
        moved = jnp.max(jnp.asarray(matrix) + stacked[None], axis=1)
        shift = jnp.reshape(jnp.asarray(offset, moved.dtype), (1, -1))
        return tuple(jnp.maximum(moved, jnp.asarray(constants) + shift)), aux

    with jax.enable_x64(True):
        end, _, _ = jax.jit(lambda x, n: iterate(step, tuple(x), (), n))(
            jnp.asarray(x), jnp.asarray(n, jnp.float64)
        )
    return np.stack(end)


@given(st.integers(0, 10**6), st.sampled_from([0.3, 0.6, 1.0]), st.integers(0, 300))
def test_equals_plain_steps(seed: int, density: float, most: int) -> None:
    matrix, constants, x = random_map(seed, density)
    n = np.random.default_rng(seed).integers(0, most + 1, BATCH)
    np.testing.assert_allclose(
        by_iterate(matrix, constants, x, n), plainly(matrix, constants, x, n), rtol=1e-12
    )


def test_powers_alone_equal_plain_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maxplus, "BLOCKS", 0)  # no step is taken: all goes through powers
    matrix, constants, x = random_map(3, 0.6)
    n = np.array([0, 1, 2, 63, 1000])
    np.testing.assert_allclose(
        by_iterate(matrix, constants, x, n), plainly(matrix, constants, x, n), rtol=1e-12
    )


def test_long_cycle_is_not_taken_for_growth() -> None:
    """Clocks that take turns in a cycle of five repeat only after five iterations."""
    matrix = np.full((5, 5, 1), -np.inf)
    for i, weight in enumerate((1.0, 9.0, 2.0, 30.0, 4.0)):
        matrix[(i + 1) % 5, i] = weight
    start = np.zeros((5, 1))

    def step(x: tuple, aux: tuple, offset: float) -> tuple[tuple, tuple]:
        return tuple(jnp.max(jnp.asarray(matrix) + jnp.stack(x)[None], axis=1)), aux

    with jax.enable_x64(True):
        end, _, _ = iterate(step, tuple(jnp.asarray(start)), (), jnp.array([503.0]))
    expected = start[:, 0]
    for _ in range(503):
        expected = np.max(matrix[:, :, 0] + expected[None], axis=1)
    np.testing.assert_allclose(np.stack(end)[:, 0], expected)


def test_product_is_associative_and_linear() -> None:
    a, b, c = (random_map(seed, 0.7)[0] for seed in (1, 2, 3))
    left = product(product(a, b), c)
    chex.assert_trees_all_close(left, product(a, product(b, c)), rtol=1e-5)
    shifted = product(a + 5.0, b)
    chex.assert_trees_all_close(shifted, product(a, b) + 5.0, rtol=1e-5)
