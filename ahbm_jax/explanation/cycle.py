"""The largest cycle mean of a max-plus matrix: how fast its iteration grows in the long run."""

from __future__ import annotations

import numpy as np


def critical_cycle(matrix: np.ndarray) -> tuple[float, tuple[int, ...]]:
    """Largest mean weight of a cycle, and such a cycle, by Karp's theorem.

    D_k(v) is the heaviest walk of k arcs that ends at v. The largest mean is the maximum over v of
    the minimum over k < n of (D_n(v) - D_k(v)) / (n - k), and the walk of n arcs to the v that has
    it runs through a cycle of that mean.

    Args:
      matrix: [to, from]; `-inf` where there is no arc.

    Returns:
      The mean (`-inf` without a cycle) and the nodes, in the order in which the cycle visits them.
    """
    size = len(matrix)
    heaviest = np.full((size + 1, size), 0.0)
    came_from = np.zeros((size + 1, size), int)
    for k in range(size):
        walks = matrix + heaviest[k]
        came_from[k + 1] = walks.argmax(axis=1)
        heaviest[k + 1] = walks.max(axis=1)
    last = heaviest[-1]
    if np.all(np.isneginf(last)):
        return -np.inf, ()
    lengths = (size - np.arange(size))[:, None]
    with np.errstate(invalid="ignore"):  # -inf less -inf: of nodes that no long walk reaches
        means = np.where(np.isneginf(last), -np.inf, (last - heaviest[:-1]) / lengths).min(axis=0)
    walk = [int(means.argmax())]
    for k in range(size, 0, -1):
        walk.append(int(came_from[k, walk[-1]]))
    cycles = [(float(cycle_mean(matrix, cycle)), cycle) for cycle in _cycles(walk[::-1])]
    return max(cycles, key=lambda found: found[0])


def cycle_mean(matrix: np.ndarray, cycle: tuple[int, ...]) -> np.ndarray:
    """Mean weight of the arcs of a cycle; works on [to, from, ...] as well."""
    following = (*cycle[1:], cycle[0])
    return matrix[list(following), list(cycle)].sum(axis=0) / len(cycle)


def _cycles(walk: list[int]) -> list[tuple[int, ...]]:
    """The simple cycles that a walk is made of, apart from what leads to and between them."""
    cycles, path = [], []
    for node in walk:
        if node in path:
            start = path.index(node)
            cycles.append(tuple(path[start:]))
            path = path[:start]
        path.append(node)
    return cycles
