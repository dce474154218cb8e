"""The critical path of a simulation, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ahbm_jax.events import Timeline
from ahbm_jax.explanation.resources import resource_of
from ahbm_jax.interpret.record import Rank

Piece = tuple[int, float, float, tuple[tuple[str, float], ...]]  # of `Timeline.critical_path`


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Time that one command of one rank spends on one resource of the path, without a break.

    Attributes:
      command: its number in the simulation.
      resource: what it spends the time on (`resources`).
      tile: -1 outside of a loop.
      spent_ns: the time by cost; adds up to `end_ns - start_ns`.
    """

    command: int
    rank: Rank
    op: str
    tensor: str
    tile: int
    resource: str
    start_ns: float
    end_ns: float
    spent_ns: dict[str, float]


def steps(timeline: Timeline) -> tuple[Step, ...]:
    """The critical path in order, each step starting where the one before it ends."""
    return tuple(
        _step(timeline, pieces) for pieces in merged(timeline.critical_path()) if _lasts(pieces)
    )


def merged(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces of a path in runs of one command on one resource."""
    run: list[Piece] = []
    for piece in pieces:
        if run and _place(run[-1]) != _place(piece):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _place(piece: Piece) -> tuple[int, str]:
    command, _, _, spent = piece
    return command, resource_of(spent[0][0])


def _lasts(run: list[Piece]) -> bool:
    return run[-1][2] > run[0][1]


def _step(timeline: Timeline, run: list[Piece]) -> Step:
    number, resource = _place(run[0])
    command, spent = timeline.commands[number], {}
    for _, _, _, costs in run:
        for name, ns in costs:
            spent[name] = spent.get(name, 0.0) + ns
    return Step(
        command=number,
        rank=timeline.ranks[number],
        op=command.op,
        tensor=command.tensor,
        tile=command.tile,
        resource=resource,
        start_ns=run[0][1],
        end_ns=run[-1][2],
        spent_ns=spent,
    )
