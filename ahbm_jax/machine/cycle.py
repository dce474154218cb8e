"""A cycle through all positions of a mesh: who passes to whom where data goes round.

Neighbours in the cycle are one hop apart wherever the mesh has such a cycle: with two rows and two
columns or more, and an even number of either. Otherwise one edge of it is longer:

- a single row or column is closed by an edge back to its beginning;
- with odd rows and odd columns, one edge of two hops jumps over a neighbour that comes next;
- with a second row that is not full, one edge jumps to the end of the first, or, if the second row
  has one position alone, comes back to it round a corner.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np

from ahbm_jax.machine.number import Number, cdiv, clip, look_up, mod, whole
from ahbm_jax.machine.topology import Position, Route

Place = tuple[int, int]  # row and column


@dataclass(frozen=True, slots=True, eq=False)
class Cycle:
    """The cycle of every size of a mesh up to a largest one; as a step, one turn of it.

    The tables are by columns, count and position (or place in the cycle). `leaving` and `coming`
    hold the number of the route by which a position sends and receives; any, where it is alone.
    """

    route_list: tuple[Route, ...]
    places: np.ndarray
    indices: np.ndarray
    leaving: np.ndarray
    coming: np.ndarray

    def before(self, at: Position, places: Number) -> Number:
        """Number of the position `places` before `at`: whose data is here after so many turns."""
        cols, count, index, back = (whole(x) for x in (at.cols, at.count, at.index, places))
        place = look_up(self.places, cols, count, index)
        found = look_up(self.indices, cols, count, mod(place - back, count))
        return found if isinstance(found, int) else found.astype(jnp.asarray(at.index).dtype)

    def routes(self, at: Position, *, outgoing: bool) -> list[tuple[Route, Any]]:
        """Routes that a message from (or to) the rank at `at` may take, and whether it does."""
        last = self.places.shape[-1] - 1  # a position that is asked about may be outside the mesh
        place = (whole(at.cols), whole(at.count), whole(clip(at.index, 0, last)))
        number = look_up(self.leaving if outgoing else self.coming, *place)
        routes = enumerate(self.route_list)
        if isinstance(number, int):
            return [(route, True) for i, route in routes if i == number]
        return [(route, number == i) for i, route in routes]

    def sends(self, at: Position) -> Number:
        """Whether the rank at `at` sends: all do, unless one is alone."""
        return (at.count > 1) & at.used

    def receives(self, at: Position) -> Number:
        """Whether the rank at `at` receives."""
        return self.sends(at)


@functools.lru_cache(maxsize=64)
def cycle(rows: int, cols: int) -> Cycle:
    """The cycle of meshes of at most `rows` x `cols`: rectangles, and two rows the last ragged."""
    shape = (cols + 1, rows * cols + 1, rows * cols)
    places, indices = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    leaving, coming = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    routes = [Route("E", 1)]
    for width in range(1, cols + 1):
        for count in range(1, rows * width + 1):
            if count % width and count > 2 * width:
                continue
            order = _order(width, count)
            numbers = [row * width + col for row, col in order]
            for place, index in enumerate(numbers):
                places[width, count, index] = place
                indices[width, count, place] = index
            for place, offset in enumerate(_edges(order)):
                route = _route(offset)
                if route not in routes:
                    routes.append(route)
                leaving[width, count, numbers[place]] = routes.index(route)
                coming[width, count, numbers[(place + 1) % count]] = routes.index(route)
    return Cycle(tuple(routes), places, indices, leaving, coming)


def _edges(order: list[Place]) -> list[Place]:
    """Rows and columns from each place of a cycle to the next; none where there is one alone."""
    if len(order) == 1:
        return []
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise([*order, order[0]])]


def _route(offset: Place) -> Route:
    rows, cols = offset
    legs = [(("W", "E")[cols > 0], abs(cols)), (("N", "S")[rows > 0], abs(rows))]
    (direction, hops), *turn = [leg for leg in legs if leg[1]]
    return Route(direction, hops, *turn)


def _order(cols: int, count: int) -> list[Place]:
    """Positions of a mesh in the order of its cycle, from row 0, column 0."""
    rows = cdiv(count, cols)
    if rows == 1:
        return [(0, col) for col in range(count)]
    if count < rows * cols:
        assert rows == 2, "a PE mesh has at most two rows, and the CUBEs of a group are a rectangle"
        return _ragged(cols, count - cols)
    if cols == 1 or rows % 2 == 0:
        return _even(rows, cols)
    if cols % 2 == 0:
        return [(row, col) for col, row in _even(cols, rows)]
    return _odd(rows, cols)


def _even(rows: int, cols: int) -> list[Place]:
    """Along row 0, to and fro through the other rows, and back along column 0."""
    order = [(0, col) for col in range(cols)]
    for row in range(1, rows):
        inner = range(1, cols)
        order += [(row, col) for col in (reversed(inner) if row % 2 else inner)]
    back = range(1, rows)
    return order + [(row, 0) for row in (back if cols == 1 else reversed(back))]


def _odd(rows: int, cols: int) -> list[Place]:
    """A jump over (0, 1), then the cycle of the other rows, which visits row 0 in pairs."""
    order = [(0, 0), (0, 2), (0, 1)]
    below = [(row + 1, col) for row, col in _even(rows - 1, cols)]
    for row, col in [*below[1:], below[0]]:
        order.append((row, col))
        if row == 1 and col % 2 and col > 1:
            order += [(0, col), (0, col + 1)]
    return order


def _ragged(cols: int, last: int) -> list[Place]:
    """Two rows, the second of `last` positions."""
    second = [(1, col) for col in reversed(range(last))]
    if last == 1:
        return [(0, col) for col in range(cols)] + second
    jumped = [(0, col) for col in reversed(range(last - 1, cols))]
    return [(0, col) for col in range(last - 1)] + jumped + second
