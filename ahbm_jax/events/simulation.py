"""Running a point's record as an event simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy

from ahbm_jax.errors import AhbmError, UsageError, nearest
from ahbm_jax.events.marks import Marks
from ahbm_jax.events.network import NETWORKS
from ahbm_jax.events.rank import Rank
from ahbm_jax.events.timeline import Timeline
from ahbm_jax.events.worker import Clockwork, mark_of
from ahbm_jax.interpret.record import RankRecord, record
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.knobs import Point, point, scratch_overflow
from ahbm_jax.machine.costs import costs_ns
from ahbm_jax.machine.params import Machine, Workload

ARBITRATIONS = tuple(NETWORKS)
Progress = Callable[[int, int], None]  # of commands done, of commands in all
REPORT_EVERY = 256  # commands


class Deadlock(AhbmError):
    """Every rank waits for ever: a receive without a send, or a queue that cannot drain."""


def simulate(
    kernel: str | Kernel,
    machine: Machine,
    workload: Workload,
    *,
    arbitration: str = "static",
    progress: Progress | None = None,
    **knobs: Any,
) -> Timeline:
    """Run one design point as an event simulation, command by command.

    Args:
      kernel: as in `latency_ns`.
      machine: from `load_machine`.
      workload: from `load_workload`.
      arbitration: `static`, the timing contract, or `first_come`: links between neighbours are
        there once, and messages queue for them.
      progress: called with the commands done, and how many there are.
      **knobs: see `Knobs`; concrete values.

    Raises:
      UsageError: a value is out of its bounds, or a name is unknown.
      Infeasible: the point needs more scratch than there is.
      Deadlock: the kernel never ends.
    """
    settled = point(kernel, machine, workload, knobs)
    return simulate_point(settled, arbitration=arbitration, progress=progress)


def simulate_point(
    settled: Point, *, arbitration: str = "static", progress: Progress | None = None
) -> Timeline:
    """As `simulate`, of a point from `ahbm_jax.knobs.point`."""
    launch = settled.launch()
    records = record(settled.kernel, settled.machine, launch)
    needed = max(entry.scratch_peak_bytes for entry in records)
    if needed > float(settled.machine.scratch.capacity_bytes):
        raise scratch_overflow(settled.machine, needed)
    return execute(
        settled.machine,
        records,
        cube_columns=launch.cube_cols,
        arbitration=arbitration,
        progress=progress,
    )


def execute(
    machine: Machine,
    records: list[RankRecord],
    *,
    cube_columns: int,
    arbitration: str = "static",
    progress: Progress | None = None,
) -> Timeline:
    """Run the commands of all ranks of a group whose rectangle has `cube_columns` columns.

    Raises:
      UsageError: an unknown `arbitration`.
      Deadlock: some rank never ends.
    """
    if arbitration not in NETWORKS:
        hint = nearest(arbitration, ARBITRATIONS)
        raise UsageError(
            f"`arbitration` is {arbitration!r}{hint}; allowed: {', '.join(ARBITRATIONS)}"
        )
    clockwork = Clockwork(simpy.Environment(), Marks(), costs_ns(machine))
    columns = {"pe": machine.grid.extent("pe")[1], "cube": cube_columns}
    network = NETWORKS[arbitration](clockwork, columns)
    moved = _counter(sum(len(entry.commands) for entry in records), progress)
    ranks, first = [], 0
    for entry in records:
        ranks.append(Rank(machine, entry, first, network, moved))
        first += len(entry.commands)
    clockwork.env.run()
    for rank in ranks:
        stuck = rank.stuck()
        if stuck is not None:
            where = "CUBE {}, PE {}".format(*rank.record.rank)
            raise Deadlock(
                f"rank ({where}) gets no further than its `{stuck.op}`; check that each `tl.recv` "
                "has its `tl.send`, and that no queue waits for itself"
            )
    return _timeline(clockwork.marks, ranks, arbitration)


def _counter(total: int, progress: Progress | None) -> Callable[[], None]:
    """Counts commands, and says so now and then."""
    done = 0

    def moved() -> None:
        nonlocal done
        done += 1
        if progress is not None and (done % REPORT_EVERY == 0 or done == total):
            progress(done, total)

    return moved


def _timeline(marks: Marks, ranks: list[Rank], arbitration: str) -> Timeline:
    finish = {rank.record.rank: rank.finish() for rank in ranks}
    end = marks.latest(list(finish.values()))
    issued = [marks.times_ns[mark] for rank in ranks for mark in rank.issued]
    ended = list(issued)
    for rank in ranks:
        for number, event in rank.ended.items():
            ended[number] = marks.times_ns[mark_of(event)]
    return Timeline(
        latency_ns=marks.times_ns[end],
        arbitration=arbitration,
        records=[rank.record for rank in ranks],
        ranks=[rank.record.rank for rank in ranks for _ in rank.record.commands],
        commands=[command for rank in ranks for command in rank.record.commands],
        issued_ns=issued,
        ended_ns=ended,
        spans={
            rank.record.rank: {name: worker.spans for name, worker in rank.workers().items()}
            for rank in ranks
        },
        holds={rank.record.rank: rank.cpu.holds for rank in ranks},
        finish_ns={name: marks.times_ns[mark] for name, mark in finish.items()},
        busy_ns={rank.record.rank: rank.busy_ns() for rank in ranks},
        marks=marks,
        end=end,
    )
