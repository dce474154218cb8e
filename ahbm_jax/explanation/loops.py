"""The loops of a kernel in their steady state: time a tile, what bounds it, and what would next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ahbm_jax.events import Timeline
from ahbm_jax.explanation.faster import scaled
from ahbm_jax.explanation.maps import LaneMap, loop_maps
from ahbm_jax.explanation.path import Step
from ahbm_jax.explanation.period import (
    LONGEST,
    TOLERANCE,
    CycleCommand,
    iterations,
    steady_commands,
)
from ahbm_jax.explanation.resources import RESOURCES
from ahbm_jax.interpret.record import Rank
from ahbm_jax.knobs import Point

HORIZON = 512  # tiles over which regular growth is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTime:
    """One outermost loop of tiles, on a rank of those that spend most time in it.

    One iteration is a max-plus map of the clocks. Whatever they start at, in the long run they
    grow by its largest cycle mean a tile; the cycle that has it says what the time goes to.

    Attributes:
      rank: CUBE and PE.
      tiles: iterations in all (None if the loops of the simulation cannot be told apart: nested).
      equal_tiles: the first of them, full, unmasked and followed by another such; the others take
        about as long, or less.
      tile_ns: time a tile in the long run.
      period: tiles after which growth repeats.
      clocks: through which the cycle goes.
      spent_ns: what it spends on each resource a tile; adds up to `tile_ns`.
      bound: the resource with most of it.
      transient_tiles: tiles after which growth is regular: from then on each `period` tiles take
        that many `tile_ns`. None if that takes more than `HORIZON`.
      steady: whether the loop has that many equal tiles and another period of them.
      free_ns: time a tile if one resource took no time at all.
      next_bound: with `bound` out of the way, the resource with most of the cycle that is left.
      commands: what the cycle is in commands (`steady_commands`).
    """

    rank: Rank
    tiles: int | None
    equal_tiles: int
    tile_ns: float
    period: int
    clocks: tuple[str, ...]
    spent_ns: dict[str, float]
    bound: str
    transient_tiles: int | None
    steady: bool
    free_ns: dict[str, float]
    next_bound: str
    commands: tuple[CycleCommand, ...]


def loops(settled: Point, timeline: Timeline, path: Sequence[Step]) -> tuple[LoopTime, ...]:
    """The outermost loops of a point whose simulation and critical path are given."""
    points = [settled, *(scaled(settled, resource, 0.0) for resource in RESOURCES)]
    maps = loop_maps(points)
    ranks = _ranks_of_orders(settled)
    launch = settled.launch()
    before, requests = launch.decode_users, launch.decode_users + launch.users
    times = []
    for number, (lanes, *free) in enumerate(maps):
        used = [i for i, lane in enumerate(lanes) if lane.order in ranks]
        busiest = max(used, key=lambda i: (lanes[i].trips * lanes[i].cycle()[0], -lanes[i].order))
        alternatives = {
            resource: each[busiest] for resource, each in zip(RESOURCES, free, strict=True)
        }
        seen = _Seen(timeline, before * len(maps) + number, len(maps) * requests)
        alike = _alike(settled, path, ranks, lanes[busiest].order)
        times.append(_loop_time(lanes[busiest], alternatives, seen, alike))
    return tuple(times)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Loop `number` of a simulation in which each rank runs `count` of them."""

    timeline: Timeline
    number: int
    count: int


def _loop_time(
    lane: LaneMap, free: dict[str, LaneMap], seen: _Seen, alike: Sequence[Rank]
) -> LoopTime:
    tile_ns, cycle = lane.cycle()
    spent = lane.spent_ns(cycle)
    bound = max(spent, key=lambda name: spent[name])
    left = free[bound].spent_ns(free[bound].cycle()[1])
    transient, period = transient_tiles(lane)
    rank, tiles, commands = _commands(seen, alike, lane.trips, tile_ns)
    return LoopTime(
        rank=rank,
        tiles=tiles,
        equal_tiles=lane.trips,
        tile_ns=tile_ns,
        period=period,
        clocks=tuple(lane.names[i] for i in cycle),
        spent_ns=spent,
        bound=bound,
        transient_tiles=transient,
        steady=transient is not None and lane.trips >= transient + period,
        free_ns={resource: each.cycle()[0] for resource, each in free.items()},
        next_bound=max(left, key=lambda name: left[name]),
        commands=commands,
    )


def transient_tiles(lane: LaneMap) -> tuple[int | None, int]:
    """Tiles after which the latest clock grows regularly, and the tiles of a period of that."""
    tile_ns, cycle = lane.cycle()
    latest = latest_clock(lane, HORIZON)
    for period in range(1, LONGEST + 1):
        growth = latest[period:] - latest[:-period]
        off = np.abs(growth - period * tile_ns) > TOLERANCE * latest[period:]
        irregular = np.flatnonzero(off)
        start = int(irregular[-1]) + 1 if len(irregular) else 0
        if start + LONGEST < len(growth):
            return start, period
    return None, len(cycle)


def latest_clock(lane: LaneMap, count: int) -> np.ndarray:
    """The latest of a loop's clocks before the first iteration and after each of `count`."""
    before, state = lane.states
    latest = [before.max(), state.max()]
    for _ in range(count - 1):
        state = (lane.matrix[:-1] + np.append(state, 0.0)).max(axis=1)
        latest.append(state.max())
    return np.asarray(latest)


def _commands(
    seen: _Seen, alike: Sequence[Rank], count: int, tile_ns: float
) -> tuple[Rank, int | None, tuple[CycleCommand, ...]]:
    """The first of the ranks that shows the loop's period, its tiles and its commands."""
    tiles = None
    for rank in alike:
        found = iterations(seen.timeline, rank)
        if len(found) == seen.count:
            loop = found[seen.number]
            tiles = len(loop.starts)
            commands = steady_commands(seen.timeline, loop, count, tile_ns)
            if commands:
                return rank, tiles, commands
    return alike[0], tiles, ()


def _ranks_of_orders(settled: Point) -> dict[int, Rank]:
    launch = settled.launch()
    placement = launch.placement
    return {
        int(placement.order(cube, pe)): (cube, pe)
        for cube in range(launch.cube_rows * launch.cube_cols)
        for pe in range(placement.pes)
    }


def _alike(
    settled: Point, path: Sequence[Step], ranks: dict[int, Rank], order: int
) -> tuple[Rank, ...]:
    """Of the ranks with as many tokens as that at `order`, the most critical one, and that one."""
    launch = settled.launch()
    tokens = {r: launch.placement.length(*r, launch.context_tokens) for r in ranks.values()}
    own = ranks[order]
    looping = [step.rank for step in path if step.tile >= 0]
    on_path = Counter(rank for rank in looping if tokens[rank] == tokens[own])
    return (*(rank for rank, _ in on_path.most_common(1)), own)
