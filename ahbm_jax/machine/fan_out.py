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
class Round:
    """A round of a fan-out: `number` rounds came before it.

    In all steps of a way together each rank sends at most one message, and receives at most one.
    """

    number: Number
    forward: tuple[Step, ...]
    backward: tuple[Step, ...]

    @property
    def ways(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Towards the end of the line, and towards its start."""
        return self.forward, self.backward

    def origins(self, at: Position) -> tuple[Number, Number]:
        """Positions whose own is what comes to `at`, by way. Some are none: then nothing comes."""
        here, distance = line_index(at), self.number + 1
        return line_position(here - distance, at), line_position(here + distance, at)


def _runs_east(row: Number, at: Position) -> Number:
    return mod(cdiv(at.count, at.cols) - 1 - row, 2) == 0


def line_index(at: Position) -> Number:
    """Number of a position along the line."""
    along = where(_runs_east(at.row, at), at.col, at.cols - 1 - at.col)
    return at.row * at.cols + along


def line_position(index: Number, at: Position) -> Number:
    """Number, row by row, of the position at `index` on the line of the mesh of `at`."""
    row, along = floordiv(index, at.cols), mod(index, at.cols)
    return row * at.cols + where(_runs_east(row, at), along, at.cols - 1 - along)


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


def _way(rows: int, cols: int, directions: str, holds: Predicate) -> tuple[Step, ...]:
    """One step along the line for those that `holds` something to pass on.

    `directions` are that on rows that run east, that on rows that run west, and that between rows.
    """
    east, west, between = directions
    steps = []
    if cols > 1:
        steps.append(Step(east, 1, lambda at: _runs_east(at.row, at) & _inner(at, east) & holds(at)))
    if cols > 1 and rows > 1:
        west_rows = lambda at: mod(cdiv(at.count, at.cols) - 1 - at.row, 2) == 1
        steps.append(Step(west, 1, lambda at: west_rows(at) & _inner(at, west) & holds(at)))
    if rows > 1:
        steps.append(Step(between, 1, lambda at: _turns(at, between) & holds(at)))
    return tuple(steps)


def _inner(at: Position, direction: str) -> Number:
    """Whether the row goes on in `direction`."""
    return at.col + 1 < at.width(at.row) if direction == "E" else at.col > 0


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
