"""Lines of one-hop neighbours: through every position of a mesh, and through every rank.

That of a mesh is a snake: row by row from row 0, every other row backwards, such that the last
row, of which only the first columns may be in use, runs east. That of the ranks goes through the
PEs of a CUBE, from there to the same PE of the next CUBE, and back through the PEs of that.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ahbm_jax.machine.number import cdiv, floordiv, mod, where
from ahbm_jax.machine.topology import Number, Position, Route, Step


@dataclass(frozen=True, slots=True)
class Way:
    """Steps taken at once: each rank sends in one of them at most, and receives in one at most."""

    steps: tuple[Step, ...]

    def sends(self, at: Position) -> Number:
        """Whether the rank at `at` sends."""
        return _any_of([step.sends(at) for step in self.steps])

    def receives(self, at: Position) -> Number:
        """Whether the rank at `at` receives."""
        return _any_of([step.receives(at) for step in self.steps])

    def routes(self, at: Position, *, outgoing: bool) -> list[tuple[Route, Any]]:
        """Routes that a message from (or to) the rank at `at` may take, and whether it does."""
        found = []
        for step in self.steps:
            on = step.sends(at) if outgoing else step.receives(at)
            if not isinstance(on, bool):
                found.append((step.route, on))
            elif on:
                found.append((step.route, True))
        return found


def _any_of(conditions: list[Number]) -> Number:
    return functools.reduce(lambda a, b: a | b, conditions, False)


@functools.lru_cache(maxsize=64)
def line_ways(rows: int, cols: int) -> tuple[Way, Way]:
    """From each position of the line to the next, and to the one before.

    For meshes of at most `rows` x `cols`; one that has a single position has no steps.
    """
    return _way(rows, cols, "EWS"), _way(rows, cols, "WEN")


def line_index(at: Position) -> Number:
    """Number of a position along the line."""
    along = where(_runs_west(at.row, at) == 0, at.col, at.cols - 1 - at.col)
    return at.row * at.cols + along


def line_position(index: Number, at: Position) -> Number:
    """Number, row by row, of the position at `index` on the line of the mesh of `at`."""
    row, along = floordiv(index, at.cols), mod(index, at.cols)
    return row * at.cols + where(_runs_west(row, at) == 0, along, at.cols - 1 - along)


def _runs_west(row: Number, at: Position) -> Number:
    """1 for a row that the line runs through from east to west, 0 for the others."""
    return mod(cdiv(at.count, at.cols) - 1 - row, 2)


def _way(rows: int, cols: int, directions: str) -> Way:
    """`directions` are those on rows that run east, on rows that run west, and between rows."""
    east, west, between = directions
    steps = []
    if cols > 1:
        steps.append(Step(east, 1, lambda at: _goes_on(at, east, 0)))
    if cols > 1 and rows > 1:
        steps.append(Step(west, 1, lambda at: _goes_on(at, west, 1)))
    if rows > 1:
        steps.append(Step(between, 1, lambda at: _turns(at, between)))
    return Way(tuple(steps))


def _goes_on(at: Position, direction: str, runs_west: int) -> Number:
    """Whether the row is of that kind, and has another position in `direction`."""
    more = at.col + 1 < at.width(at.row) if direction == "E" else at.col > 0
    return (_runs_west(at.row, at) == runs_west) & more


def _turns(at: Position, direction: str) -> Number:
    """Whether the line leaves its row here, in `direction`."""
    along = mod(line_index(at), at.cols)
    if direction == "N":
        return (along == 0) & (at.row > 0)
    return (along == at.cols - 1) & ((at.row + 1) * at.cols < at.count)


@dataclass(frozen=True, slots=True)
class Link:
    """By which a rank exchanges something with its neighbours on the line: one way of one mesh.

    Attributes:
      mesh: the mesh.
      way: the way.
      sends: whether this rank has a neighbour to send to.
      receives: whether it has one to receive from.
      onward: whether what crosses goes towards the end of the line here.
      back: whether it goes towards its start.
    """

    mesh: str
    way: Way
    sends: Number
    receives: Number
    onward: Number
    back: Number


@dataclass(frozen=True, slots=True)
class Line:
    """The line through all ranks of a group, as seen from the rank at `cube` and `pe`."""

    cube: Position
    pe: Position

    @property
    def index(self) -> Number:
        """Number of the rank along the line."""
        return line_index(self.cube) * self.pe.count + self._along

    @property
    def _reversed(self) -> Number:
        """1 in a CUBE whose PEs come in reverse order, 0 in others."""
        return mod(line_index(self.cube), 2)

    @property
    def _along(self) -> Number:
        """Number of the rank among those of its CUBE."""
        pe = line_index(self.pe)
        return where(self._reversed == 0, pe, self.pe.count - 1 - pe)

    def rank_at(self, index: Number) -> tuple[Number, Number]:
        """(CUBE, PE) of the rank at `index` of the line."""
        cube, along = floordiv(index, self.pe.count), mod(index, self.pe.count)
        pe = where(mod(cube, 2) == 0, along, self.pe.count - 1 - along)
        return line_position(cube, self.cube), line_position(pe, self.pe)

    def links(self, cube_mesh: tuple[int, int], pe_mesh: tuple[int, int]) -> list[Link]:
        """All that the rank may use, on meshes of at most so many rows and columns."""
        ahead, reverse = self._reversed == 0, self._reversed == 1
        first, last = self._along == 0, self._along == self.pe.count - 1
        to_next, to_last = line_ways(*pe_mesh)
        links = []
        if to_next.steps:
            for way, onward, back in ((to_next, ahead, reverse), (to_last, reverse, ahead)):
                links.append(
                    Link("pe", way, way.sends(self.pe), way.receives(self.pe), onward, back)
                )
        to_next, to_last = line_ways(*cube_mesh)
        if to_next.steps:
            for way, sends, receives, onward in (
                (to_next, last, first, True),
                (to_last, first, last, False),
            ):
                sends, receives = way.sends(self.cube) & sends, way.receives(self.cube) & receives
                links.append(Link("cube", way, sends, receives, onward, not onward))
        return links
