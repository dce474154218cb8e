"""Karp's algorithm against all simple cycles."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahbm_jax.explanation.cycle import critical_cycle, cycle_mean

INF = float("inf")


def largest_mean(matrix: np.ndarray) -> float:
    nodes = range(len(matrix))
    cycles = (cycle for k in nodes for cycle in permutations(nodes, k + 1))
    return max(float(cycle_mean(matrix, cycle)) for cycle in cycles)


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([0.2, 0.5, 1.0]))
def test_mean_is_the_largest_and_the_cycle_has_it(seed: int, size: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(0, 10, (size, size)).round(int(rng.integers(3)))
    matrix[rng.random(matrix.shape) > density] = -INF
    mean, cycle = critical_cycle(matrix)
    assert mean == pytest.approx(largest_mean(matrix))
    assert len(set(cycle)) == len(cycle)
    if cycle:
        assert float(cycle_mean(matrix, cycle)) == mean


def test_no_cycle() -> None:
    assert critical_cycle(np.array([[-INF, 3.0], [-INF, -INF]])) == (-INF, ())


def test_two_arcs() -> None:
    mean, cycle = critical_cycle(np.array([[1.0, 5.0], [3.0, -INF]]))
    assert (mean, sorted(cycle)) == (4.0, [0, 1])
