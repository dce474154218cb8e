"""Plans that end on every rank: a fan-out from each to all others, and a broadcast from a root.

A fan-out goes along a line through every position of a mesh, one hop a round and both ways at
once. In round 0 each position passes on what is its own, in round t what came to it in round
t - 1: after n - 1 rounds everything of n positions has been everywhere.

The line is a snake: row by row from row 0, every other row backwards, such that the last row, of
which only the first columns may be in use, runs east.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax

from ahbm_jax.machine.number import cdiv, floordiv, mod, where
from ahbm_jax.machine.topology import OPPOSITE, Number, Position, Predicate, Step


@jax.tree_util.register_dataclass
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

    def outgoing(self, at: Position) -> Step:
        """The step in which the one rank at `at` sends."""
        return next(step for step in self.steps if step.sends(at))

    def incoming(self, at: Position) -> Step:
        """The step in which the one rank at `at` receives."""
        return next(step for step in self.steps if step.receives(at))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Round:
    """A round of a fan-out, towards the end of the line and towards its start.

    `number` rounds came before it.
    """

    number: Number
    forward: Way
    backward: Way

    def origins(self, at: Position) -> tuple[Number, Number]:
        """Positions whose own is what comes to `at`, by way, where something comes."""
        here, distance = line_index(at), self.number + 1
        return line_position(here - distance, at), line_position(here + distance, at)


def _any_of(conditions: list[Number]) -> Number:
    return functools.reduce(lambda a, b: a | b, conditions)


def _turned(row: Number, at: Position) -> Number:
    """1 for a row of the line that runs west, 0 for one that runs east."""
    return mod(cdiv(at.count, at.cols) - 1 - row, 2)


def line_index(at: Position) -> Number:
    """Number of a position along the line."""
    along = where(_turned(at.row, at) == 0, at.col, at.cols - 1 - at.col)
    return at.row * at.cols + along


def line_position(index: Number, at: Position) -> Number:
    """Number, row by row, of the position at `index` on the line of the mesh of `at`."""
    row, along = floordiv(index, at.cols), mod(index, at.cols)
    return row * at.cols + where(_turned(row, at) == 0, along, at.cols - 1 - along)


@functools.lru_cache(maxsize=64)
def fan_out(rows: int, cols: int) -> tuple[Round, ...]:
    """From each position to all others, on a mesh of at most `rows` x `cols`."""
    return tuple(
        Round(
            number,
            _way(rows, cols, "EWS", lambda at, t=number: line_index(at) >= t),
            _way(rows, cols, "WEN", lambda at, t=number: line_index(at) + t < at.count),
        )
        for number in range(rows * cols - 1)
    )


def _way(rows: int, cols: int, directions: str, holds: Predicate) -> Way:
    """One step along the line for those where `holds` says that they have something to pass on.

    `directions` are those on rows that run east, on rows that run west, and between rows.
    """
    east, west, between = directions
    steps = []
    if cols > 1:
        steps.append(Step(east, 1, lambda at: _goes_on(at, east, 0) & holds(at)))
    if cols > 1 and rows > 1:
        steps.append(Step(west, 1, lambda at: _goes_on(at, west, 1) & holds(at)))
    if rows > 1:
        steps.append(Step(between, 1, lambda at: _turns(at, between) & holds(at)))
    return Way(tuple(steps))


def _goes_on(at: Position, direction: str, turned: int) -> Number:
    """Whether the row, if it is `turned` so, has another position in `direction`."""
    more = at.col + 1 < at.width(at.row) if direction == "E" else at.col > 0
    return (_turned(at.row, at) == turned) & more


def _turns(at: Position, direction: str) -> Number:
    """Whether the line leaves its row here, in `direction`."""
    along = mod(line_index(at), at.cols)
    if direction == "N":
        return (along == 0) & (at.row > 0)
    return (along == at.cols - 1) & ((at.row + 1) * at.cols < at.count)


@functools.lru_cache(maxsize=64)
def broadcast(reduce: tuple[Step, ...]) -> tuple[Step, ...]:
    """From where a reduce ends back to all positions, each of which receives once."""
    return tuple(Step(OPPOSITE[s.direction], s.hops, s.receives) for s in reversed(reduce))
