"""What a simulation saw: who did what when, and why not earlier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from ahbm_jax.events.marks import NO_COMMAND, Marks
from ahbm_jax.events.worker import Hold, Span
from ahbm_jax.interpret.record import Rank, RankRecord, Recorded

Worker = str  # "cpu", "dma", "gemm", "math", or "port.<mesh>.<direction>"


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One simulated run. Times in ns. Commands are numbered over all ranks, rank by rank.

    Attributes:
      latency_ns: until every rank is done.
      arbitration: of links: `static` or `first_come`.
      records: the commands of each rank, in program order.
      ranks: rank of each command.
      commands: each command; its message's peer and size where it has one.
      issued_ns: when the CPU was done issuing each command.
      ended_ns: when each command was complete: its data there, its message out of the port.
      spans: what each worker of each rank served, in order.
      holds: when and by what each rank's CPU was held.
      finish_ns: when each rank was done.
      busy_ns: time that each worker of each rank was occupied.
      marks: every instant, and its causes.
      end: the mark of the latency.
    """

    latency_ns: float
    arbitration: str
    records: list[RankRecord]
    ranks: list[Rank]
    commands: list[Recorded]
    issued_ns: list[float]
    ended_ns: list[float]
    spans: dict[Rank, dict[Worker, list[Span]]]
    holds: dict[Rank, list[Hold]]
    finish_ns: dict[Rank, float]
    busy_ns: dict[Rank, dict[str, float]]
    marks: Marks
    end: int

    @cached_property
    def waits_for(self) -> list[tuple[int, ...]]:
        """For each command, the commands that some part of it had to come after.

        Those whose data, queue slot or message it waited for, and the one before it on its worker.
        """
        waits: list[set[int]] = [set() for _ in self.commands]
        marks = self.marks
        for mark, command in enumerate(marks.commands):
            if command != NO_COMMAND:
                waits[command].update(marks.commands[cause] for cause in marks.causes[mark])
        return [tuple(sorted(w - {c, NO_COMMAND})) for c, w in enumerate(waits)]

    @cached_property
    def started_ns(self) -> list[float]:
        """When each command was first served: by an engine, or by the CPU where it has none."""
        starts = list(self.issued_ns)
        on_engine: dict[int, float] = {}
        for workers in self.spans.values():
            for name, spans in workers.items():
                for span in spans:
                    if name == "cpu":
                        starts[span.command] = span.start_ns
                    else:
                        seen = on_engine.get(span.command, span.start_ns)
                        on_engine[span.command] = min(seen, span.start_ns)
        for command, start in on_engine.items():
            starts[command] = start
        return starts

    def critical_path(self) -> Iterator[tuple[int, float, float, tuple[tuple[str, float], ...]]]:
        """(command, start_ns, end_ns, costs spent) in order; adds up to the latency."""
        marks = self.marks
        path = marks.path_to(self.end)
        for before, mark in pairwise(path):
            if marks.spent[mark]:
                start, end = marks.times_ns[before], marks.times_ns[mark]
                yield marks.commands[mark], start, end, marks.spent[mark]

    def spent_ns(self) -> dict[str, float]:
        """Time of each cost on the critical path, largest first."""
        spent: dict[str, float] = {}
        for _, _, _, costs in self.critical_path():
            for name, ns in costs:
                spent[name] = spent.get(name, 0.0) + ns
        return dict(sorted(spent.items(), key=lambda item: -item[1]))
