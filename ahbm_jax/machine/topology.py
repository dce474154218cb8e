"""Static communication plans: which rank sends its partial to which neighbour, and when.

A plan is a tuple of steps. In a step every sender passes one partial to the rank `hops` away in
one direction, and the receiver folds it in. Predicates are arithmetic on coordinates, so they hold
for one rank (integers), for an SPMD axis and for a padded grid whose extents are traced.

PEs of a CUBE are numbered row by row on the machine's PE mesh, of which the first P are used; the
CUBEs of a group fill a rectangle. Rows of a mesh run from `N` (row 0) to `S`, columns from `W` to
`E`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ahbm_jax.machine.number import clip, floordiv, mod, where

Number = Any
Predicate = Callable[["Position"], Number]

OPPOSITE = {"N": "S", "S": "N", "E": "W", "W": "E"}
OFFSET = {"N": (-1, 0), "S": (1, 0), "W": (0, -1), "E": (0, 1)}  # (rows, columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A rank's coordinates on a mesh of which `count` positions, `rows` x `cols`, are in use.

    With a ragged last row (`count < rows * cols`) the first `count` in row order are in use.
    """

    row: Number
    col: Number
    rows: Number
    cols: Number
    count: Number

    @property
    def index(self) -> Number:
        """Number of this position, row by row."""
        return self.row * self.cols + self.col

    @property
    def used(self) -> Number:
        """Whether this position is in use."""
        return (self.row < self.rows) & (self.col < self.cols) & (self.index < self.count)

    def width(self, row: Number) -> Number:
        """Positions of `row` in use."""
        return clip(self.count - row * self.cols, 0, self.cols)

    def moved(self, rows: int, cols: int) -> Position:
        """The position so many rows and columns away, which may be outside of the mesh."""
        return replace(self, row=self.row + rows, col=self.col + cols)


@dataclass(frozen=True, slots=True)
class Route:
    """From one rank to another: `hops` in `direction`.

    With a `turn` (direction, hops) it then goes on at a right angle: the route to a place that no
    straight line leads to.
    """

    direction: str
    hops: int
    turn: tuple[str, int] | None = None

    @property
    def offset(self) -> tuple[int, int]:
        """Rows and columns from sender to receiver."""
        legs = [(self.direction, self.hops)] + ([] if self.turn is None else [self.turn])
        rows = sum(OFFSET[direction][0] * hops for direction, hops in legs)
        return rows, sum(OFFSET[direction][1] * hops for direction, hops in legs)

    @property
    def distance(self) -> int:
        """Hops from sender to receiver."""
        rows, cols = self.offset
        return abs(rows) + abs(cols)


class Exchange(Protocol):
    """Messages that ranks of a mesh send each other in one step."""

    def routes(self, at: Position, *, outgoing: bool) -> list[tuple[Route, Any]]:
        """Routes that a message from (or to) the rank at `at` may take, and whether it does."""
        ...

    def sends(self, at: Position) -> Number:
        """Whether the rank at `at` sends."""
        ...

    def receives(self, at: Position) -> Number:
        """Whether the rank at `at` receives."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan: `senders` pass their partial `hops` away in `direction`."""

    direction: str
    hops: int
    senders: Predicate

    @property
    def route(self) -> Route:
        """The route of each message."""
        return Route(self.direction, self.hops)

    def routes(self, at: Position, *, outgoing: bool) -> list[tuple[Route, Any]]:
        """Routes that a message from (or to) the rank at `at` may take, and whether it does."""
        return [(self.route, True)]

    def sends(self, at: Position) -> Number:
        """Whether the rank at `at` sends in this step."""
        return self.senders(at) & at.used

    def receives(self, at: Position) -> Number:
        """Whether the rank at `at` receives in this step."""
        rows, cols = self.route.offset
        source = at.moved(-rows, -cols)
        inside = (source.row >= 0) & (source.col >= 0) & (source.col < at.cols)
        return self.senders(source) & source.used & inside & at.used


def _line_tree(low: int, high: int, towards_high: bool) -> tuple[list[tuple[int, int, int]], int]:
    """Messages (depth, source, target) that fold positions low..high-1, and the root.

    Halves fold towards each other, so that up to four positions need one-hop messages only.
    """
    if high - low == 1:
        return [], low
    middle = (low + high) // 2
    left, left_root = _line_tree(low, middle, towards_high=True)
    right, right_root = _line_tree(middle, high, towards_high=False)
    source, target = (left_root, right_root) if towards_high else (right_root, left_root)
    depth = math.ceil(math.log2((middle - low) if towards_high else (high - middle)))
    return [*left, *right, (depth, source, target)], target


def tree_root_column(width: Number, columns: int) -> Number:
    """Column of the root of a folded row of `width` of at most `columns` positions."""
    roots = [_line_tree(0, n, towards_high=False)[1] for n in range(1, columns + 1)]
    column = roots[0]
    for n, root in enumerate(roots, start=1):
        column = where(width == n, root, column)
    return column


def _column_is(columns: list[tuple[int, int]]) -> Predicate:
    """Senders at (row width, column) pairs of row 0."""

    def senders(at: Position) -> Number:
        width = at.width(0)
        hit = (width == columns[0][0]) & (at.col == columns[0][1])
        for n, column in columns[1:]:
            hit = hit | ((width == n) & (at.col == column))
        return hit & (at.row == 0)

    return senders


@functools.lru_cache(maxsize=64)
def tree(rows: int, cols: int) -> tuple[Step, ...]:
    """Binary tree on a mesh of at most `rows` x `cols`: columns fold to row 0, then row 0 folds.

    ceil(log2 rows) + ceil(log2 cols) rounds; one-hop pairs up to 2 x 4, as ADR-0060 4.1 asks.
    """
    steps = []
    stride = 1
    while stride < rows:
        steps.append(Step("N", stride, lambda at, s=stride: mod(at.row, 2 * s) == s))
        stride *= 2
    moves: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for width in range(2, cols + 1):
        for depth, source, target in _line_tree(0, width, towards_high=False)[0]:
            moves.setdefault((depth, target - source), []).append((width, source))
    for (_, distance), columns in sorted(moves.items()):
        direction = "E" if distance > 0 else "W"
        steps.append(Step(direction, abs(distance), _column_is(columns)))
    return tuple(steps)


@functools.lru_cache(maxsize=64)
def centre_mesh(rows: int, cols: int) -> tuple[Step, ...]:
    """Chains along each row to the centre column, then along it to the centre row (ADR-0060 4.2).

    The shorter side of an even line comes first: its partial arrives first.
    """
    steps = _chain("W", range(cols - 1, 1, -1), lambda at: at.col, lambda at: at.cols)
    steps += _chain("E", range(cols // 2), lambda at: at.col, lambda at: at.cols)

    def in_centre_column(at: Position) -> Number:
        return at.col == floordiv(at.cols, 2)

    for step in (
        *_chain("N", range(rows - 1, 1, -1), lambda at: at.row, lambda at: at.rows),
        *_chain("S", range(rows // 2), lambda at: at.row, lambda at: at.rows),
    ):
        senders = step.senders
        steps.append(Step(step.direction, 1, lambda at, s=senders: s(at) & in_centre_column(at)))
    return tuple(steps)


def _chain(direction: str, places: range, place: Predicate, size: Predicate) -> list[Step]:
    """One-hop steps from each of `places`, in order, as far as the centre of a line."""

    def senders(at: Position, source: int) -> Number:
        centre = floordiv(size(at), 2)
        outside = place(at) > centre if direction in "WN" else place(at) < centre
        return (place(at) == source) & outside

    return [Step(direction, 1, lambda at, s=s: senders(at, s)) for s in places]


@functools.lru_cache(maxsize=64)
def ring(rows: int, cols: int) -> tuple[Step, ...]:
    """A chain of one-hop neighbours through every position (a ring less its closing edge).

    Row by row from the last to row 0: odd rows run west and leave at column 0, even rows run east.
    """
    steps = []
    for row in range(rows - 1, -1, -1):
        if row % 2:
            for s in range(cols - 1, 0, -1):
                steps.append(Step("W", 1, lambda at, r=row, s=s: (at.row == r) & (at.col == s)))
            steps.append(Step("N", 1, lambda at, r=row: (at.row == r) & (at.col == 0)))
        else:
            for s in range(cols - 1):
                steps.append(
                    Step(
                        "E",
                        1,
                        lambda at, r=row, s=s: (
                            (at.row == r) & (at.col == s) & (s + 1 < at.width(r))
                        ),
                    )
                )
            if row:
                steps.append(
                    Step(
                        "N",
                        1,
                        lambda at, r=row: (at.row == r) & (at.col == at.width(r) - 1),
                    )
                )
    return tuple(steps)


@functools.lru_cache(maxsize=64)
def broadcast(reduce: tuple[Step, ...]) -> tuple[Step, ...]:
    """From where a reduce ends back to all positions, each of which receives once."""
    return tuple(Step(OPPOSITE[s.direction], s.hops, s.receives) for s in reversed(reduce))


@dataclass(frozen=True, slots=True)
class Collective:
    """A reduce to a root on one mesh: its steps for meshes up to a size, and its root."""

    steps: Callable[[int, int], tuple[Step, ...]]
    root: Callable[[Position, int], Number]  # predicate of the root, given the most columns


PE_COLLECTIVES = {
    "tree": Collective(
        tree, lambda at, cols: (at.row == 0) & (at.col == tree_root_column(at.width(0), cols))
    ),
    "ring": Collective(ring, lambda at, cols: (at.row == 0) & (at.col == at.width(0) - 1)),
}
CUBE_COLLECTIVES = {
    "mesh": Collective(
        centre_mesh,
        lambda at, cols: (at.row == floordiv(at.rows, 2)) & (at.col == floordiv(at.cols, 2)),
    ),
    "ring": Collective(ring, lambda at, cols: (at.row == 0) & (at.col == at.width(0) - 1)),
}


@functools.lru_cache(maxsize=64)
def movement(
    plan: tuple[Step, ...], rows: int, cols: int, *, ragged: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Who sends and who receives in each step, for every size of a mesh of at most rows x cols.

    With `ragged` sizes are counts 0, 1, ... of positions in row order; otherwise rectangles
    r x c, at index r (cols + 1) + c. Both results are [sizes, steps, rows cols] booleans.
    """
    if ragged:
        sizes = [(rows, cols, count) for count in range(rows * cols + 1)]
    else:
        sizes = [(r, c, r * c) for r in range(rows + 1) for c in range(cols + 1)]
    sends = np.zeros((len(sizes), len(plan), rows * cols), bool)
    receives = np.zeros_like(sends)
    for number, (r, c, count) in enumerate(sizes):
        for index in range(rows * cols):
            row, col = divmod(index, cols)
            at = Position(row=row, col=col, rows=r, cols=c, count=count)
            if at.used:
                sends[number, :, index] = [step.sends(at) for step in plan]
                receives[number, :, index] = [step.receives(at) for step in plan]
    return sends, receives


def rectangle(cubes: int, rows: int, cols: int) -> tuple[int, int] | None:
    """The squarest rectangle of `cubes` CUBEs, wide before tall, in a `rows` x `cols` mesh."""
    fits = [
        (h, cubes // h) for h in range(1, rows + 1) if cubes % h == 0 and 1 <= cubes // h <= cols
    ]
    return min(fits, key=lambda s: (abs(s[0] - s[1]), s[0])) if fits else None
