"""Cycles: through every position once, one hop at a time wherever the mesh has such a cycle."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from ahbm_jax.machine.cycle import cycle
from ahbm_jax.machine.topology import Position

RECTANGLES = [(r, c, r * c) for r in range(1, 6) for c in range(1, 6)]
RAGGED = [(2, c, n) for c in (1, 2, 3, 4, 8) for n in range(1, 2 * c + 1)]
SIZES = sorted({*RECTANGLES, *RAGGED})
MOST = {False: (5, 5), True: (2, 8)}  # the largest mesh, of CUBEs and of PEs


def at(index: int, size: tuple[int, int, int]) -> Position:
    rows, cols, count = size
    return Position(row=index // cols, col=index % cols, rows=rows, cols=cols, count=count)


def edges(size: tuple[int, int, int]) -> dict[int, tuple[int, int]]:
    """(successor, hops) of each position; each sends once and receives once in a turn."""
    plan = cycle(*MOST[size[1] > 5 or size[2] < size[0] * size[1]])
    found: dict[int, tuple[int, int]] = {}
    if not plan.sends(at(0, size)):
        return found
    for index in range(size[2]):
        assert plan.sends(at(index, size))
        [(route, _)] = plan.routes(at(index, size), outgoing=True)
        target = at(index, size).moved(*route.offset)
        assert plan.routes(target, outgoing=False) == [(route, True)]
        assert plan.receives(target), "a message without a receiver"
        found[index] = target.index, route.distance
    return found


@pytest.mark.parametrize("size", SIZES)
def test_one_cycle_through_every_position(size: tuple[int, int, int]) -> None:
    found = edges(size)
    if size[2] == 1:
        assert found == {}
        return
    seen, here = [], 0
    for _ in range(size[2]):
        seen.append(here)
        here = found[here][0]
    assert here == 0
    assert sorted(seen) == list(range(size[2]))


def longest(size: tuple[int, int, int]) -> int:
    """Hops of the one edge that may be long, by what the mesh allows."""
    _, cols, count = size
    full, last = divmod(count, cols)
    if full + (last > 0) == 1 or cols == 1:
        return max(count - 1, 1)
    if last:  # back to the end of a second row of `last`
        return cols - last + 1
    return 2 if full % 2 and cols % 2 else 1


@pytest.mark.parametrize("size", SIZES)
def test_at_most_one_long_edge(size: tuple[int, int, int]) -> None:
    hops = sorted(h for _, h in edges(size).values())
    assert all(h == 1 for h in hops[:-1])
    if hops:
        assert hops[-1] == longest(size)


def test_three_by_three() -> None:
    found, here, order = edges((3, 3, 9)), 0, []
    for _ in range(9):
        order.append(divmod(here, 3))
        here = found[here][0]
    assert order == [(0, 0), (0, 2), (0, 1), (1, 1), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0)]


def test_one_position_below_a_row_is_reached_round_a_corner() -> None:
    """It has one neighbour in a straight line, and a cycle needs two."""
    [(route, _)] = cycle(2, 4).routes(at(3, (2, 4, 5)), outgoing=True)
    assert (route.direction, route.hops, route.turn) == ("W", 3, ("S", 1))
    assert edges((2, 4, 5))[3] == (4, 4)


@pytest.mark.parametrize("size", SIZES)
def test_before_is_who_sends(size: tuple[int, int, int]) -> None:
    plan = cycle(*MOST[size[1] > 5 or size[2] < size[0] * size[1]])
    found = edges(size)
    for index in range(size[2]):
        assert plan.before(at(index, size), 0) == index
        assert plan.before(at(index, size), size[2]) == index
        if size[2] > 1:
            assert plan.before(at(found[index][0], size), 1) == index


def test_arrays_agree_with_integers() -> None:
    """Of an index alone, as an SPMD axis is, and of every number, as on a padded grid."""
    plan = cycle(4, 4)
    for size in [(2, 3, 6), (3, 3, 9), (1, 4, 4), (4, 4, 16)]:
        rows, cols, count = size
        index = np.arange(count)
        places = {"row": index // cols, "col": index % cols}
        right = [[plan.before(at(i, size), n) for i in range(count)] for n in range(count)]
        routes = [plan.routes(at(i, size), outgoing=True) for i in range(count)]
        axis = Position(
            **{k: jnp.asarray(x) for k, x in places.items()}, rows=rows, cols=cols, count=count
        )
        numbers = {"rows": rows, "cols": cols, "count": count}
        padded = Position(
            **{k: jnp.asarray(x, jnp.float32) for k, x in places.items()},
            **{k: jnp.full(count, x, jnp.float32) for k, x in numbers.items()},
        )
        for place in (axis, padded):
            got = [plan.before(place, n).tolist() for n in range(count)]
            assert got == right
            assert plan.sends(place).tolist() == [True] * count
            taken = plan.routes(place, outgoing=True)
            assert [[(route, True) for route, on in taken if on[i]] for i in range(count)] == routes
