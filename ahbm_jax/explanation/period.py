"""What the critical path of a simulation does in one period of a loop's steady state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ahbm_jax.events import Timeline
from ahbm_jax.explanation.path import Step, steps
from ahbm_jax.interpret.record import Rank

LONGEST = 12  # tiles of a period that is looked for
TOLERANCE = 1e-9  # of the latency: times that differ by less are equal


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleCommand:
    """What the commands of one kind take of a steady tile, on the path of the loop.

    Attributes:
      resource: what they spend the time on.
      count: commands a tile (of a loop that repeats every two tiles it may be a half).
      tile_ns: time a tile.
    """

    op: str
    tensor: str
    resource: str
    count: float
    tile_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterations:
    """A loop as one rank ran it: the numbers of the commands at which its iterations begin."""

    rank: Rank
    starts: tuple[int, ...]

    def place(self, command: int, count: int) -> tuple[int, int] | None:
        """(iteration, position in it) of a command of the first `count` iterations."""
        if not self.starts[0] <= command < self.starts[count]:
            return None
        iteration = bisect_right(self.starts, command) - 1
        return iteration, command - self.starts[iteration]


def iterations(timeline: Timeline, rank: Rank) -> list[Iterations]:
    """The loops of tiles that a rank ran, in order; each starts at a tile 0."""
    found: list[list[int]] = []
    for number, (owner, command) in enumerate(zip(timeline.ranks, timeline.commands, strict=True)):
        if owner == rank and command.op == "loop" and command.tile >= 0:
            if command.tile == 0:
                found.append([])
            found[-1].append(number)
    return [Iterations(rank=rank, starts=tuple(starts)) for starts in found]


def steady_commands(
    timeline: Timeline, loop: Iterations, count: int, tile_ns: float
) -> tuple[CycleCommand, ...]:
    """The commands on the path over one period of the loop, in the order of the path.

    Args:
      timeline: the simulation.
      loop: of one rank.
      count: its equal iterations, which are the first.
      tile_ns: what each takes in the long run, which tells a period of the steady state.

    Returns:
      Their times add up to `tile_ns`. Empty if neither the critical path nor the one to the end of
      these iterations holds a whole period: the loop is too short.
    """
    if count == 0:
        return ()
    end = _last_mark(timeline, range(loop.starts[0], loop.starts[count]))
    for seen in (timeline, replace(timeline, end=end)):
        path = [(step, loop.place(step.command, count)) for step in steps(seen)]
        for run in _runs(path):
            period = _period(run, tile_ns, TOLERANCE * timeline.latency_ns)
            if period is not None:
                return _commands(*period)
    return ()


def _last_mark(timeline: Timeline, commands: range) -> int:
    marks = [m for m, number in enumerate(timeline.marks.commands) if number in commands]
    return timeline.marks.latest(marks)


Placed = tuple[Step, tuple[int, int]]


def _runs(path: list[tuple[Step, tuple[int, int] | None]]) -> Iterator[list[Placed]]:
    """The parts of a path that do not leave the loop's equal iterations, the longest first."""
    runs: list[list[Placed]] = [[]]
    for step, place in path:
        if place is None:
            runs.append([])
        else:
            runs[-1].append((step, place))
    yield from sorted(runs, key=len, reverse=True)


def _period(run: list[Placed], tile_ns: float, tolerance: float) -> tuple[list[Step], int] | None:
    """The last steps of a run that end where they began, some tiles later and at `tile_ns` each."""
    last = {(position, step.resource, i): at for at, (step, (i, position)) in enumerate(run)}
    for tiles in range(1, LONGEST + 1):
        for end in range(len(run) - 1, 0, -1):
            step, (i, position) = run[end]
            begin = last.get((position, step.resource, i - tiles))
            if begin is not None and begin < end:
                took = step.start_ns - run[begin][0].start_ns
                if abs(took - tiles * tile_ns) <= tolerance:
                    return [each for each, _ in run[begin:end]], tiles
    return None


def _commands(period: list[Step], tiles: int) -> tuple[CycleCommand, ...]:
    groups: dict[tuple[str, str, str], list[Step]] = {}
    for step in period:
        groups.setdefault((step.op, step.tensor, step.resource), []).append(step)
    return tuple(
        CycleCommand(
            op=op,
            tensor=tensor,
            resource=resource,
            count=len({step.command for step in group}) / tiles,
            tile_ns=sum(step.end_ns - step.start_ns for step in group) / tiles,
        )
        for (op, tensor, resource), group in groups.items()
    )
