"""What serves one thing at a time: a CPU, an engine, a send port."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import simpy

from ahbm_jax.events.marks import ORIGIN, Marks, Spent
from ahbm_jax.machine.costs import Costs

# What a process does: it yields the events that it waits for. An event's value is the mark at
# which it happened.
Steps = Generator[simpy.Event, Any, Any]


@dataclass(frozen=True, eq=False)
class Clockwork:
    """What all processes of a simulation share: time, the marks set in it, what things cost."""

    env: simpy.Environment
    marks: Marks
    costs: Costs

    def cost(self, name: str, times: float = 1.0) -> tuple[str, float]:
        """A cost, `times` over."""
        return name, times * self.costs[name]

    def happened(self, mark: int) -> simpy.Event:
        """An event that is over."""
        return self.env.event().succeed(mark)

    def later(self, cause: int, command: int, *spent: tuple[str, float]) -> simpy.Event:
        """An event the sum of `spent` from now, without occupying anybody."""
        delay = sum(ns for _, ns in spent)
        return self.env.timeout(
            delay, self.marks.add(self.env.now + delay, (cause,), command, spent)
        )

    def fire_later(self, event: simpy.Event, worker: Worker, *spent: tuple[str, float]) -> None:
        """Have `event` happen the sum of `spent` after what `worker` has just done."""
        command = self.marks.commands[worker.last]
        then(self.later(worker.last, command, *spent), event.trigger)


def mark_of(event: simpy.Event) -> int:
    """The mark at which an event happened."""
    assert isinstance(event.value, int)
    return event.value


def then(event: simpy.Event, callback: Callable[[Any], Any]) -> None:
    """Call `callback` when `event` happens, which it has not yet."""
    assert event.callbacks is not None
    event.callbacks.append(callback)


@dataclass(slots=True)
class Span:
    """From when to when a command was on a worker, and how much of that it was served (`busy_ns`).

    A worker serves its commands one after the other, so its spans do not overlap.
    """

    command: int
    start_ns: float
    end_ns: float
    busy_ns: float
    pieces: int  # times it was served: sub-tiles of a composite


class Worker:
    """A process's clock: `last` is the mark up to which it has come.

    Every event that it waits for has a mark as its value.
    """

    def __init__(self, clockwork: Clockwork) -> None:
        self.env, self.marks = clockwork.env, clockwork.marks
        self.last = ORIGIN
        self.awaited: list[int] = []  # since `last`
        self.spans: list[Span] = []

    def after(self, *events: simpy.Event) -> Steps:
        """Wait until all events have happened."""
        for event in events:
            self.awaited.append((yield event))

    def occupy(self, command: int, *spent: tuple[str, float]) -> Steps:
        """Serve `command` for the sum of `spent`, which ends at a new mark."""
        duration = sum(ns for _, ns in spent)
        start = self.env.now
        if duration:
            yield self.env.timeout(duration)
        self._note(command, start, duration)
        self.mark(command, spent)

    def mark(self, command: int, spent: Spent = ()) -> int:
        """Set a mark at the present instant, for all that was awaited since the last one."""
        self.last = self.marks.add(self.env.now, (self.last, *self.awaited), command, spent)
        self.awaited.clear()
        return self.last

    def _note(self, command: int, start: float, duration: float) -> None:
        if self.spans and self.spans[-1].command == command:
            span = self.spans[-1]
            span.end_ns, span.busy_ns, span.pieces = (
                self.env.now,
                span.busy_ns + duration,
                span.pieces + 1,
            )
        else:
            self.spans.append(Span(command, start, self.env.now, duration, 1))


@dataclass(frozen=True, slots=True)
class Hold:
    """The CPU held from `start_ns` to `end_ns` before `command` is done, by the mark `by`."""

    command: int
    start_ns: float
    end_ns: float
    by: int


class Cpu(Worker):
    """The worker that is asked why it stood still."""

    def __init__(self, clockwork: Clockwork) -> None:
        super().__init__(clockwork)
        self.holds: list[Hold] = []
        self.command = -1  # being run

    def after(self, *events: simpy.Event) -> Steps:
        """As `Worker.after`, noting each wait."""
        for event in events:
            start = self.env.now
            self.came(start, (yield event))

    def came(self, start_ns: float, mark: int) -> None:
        """Note what was awaited since `start_ns`."""
        self.awaited.append(mark)
        if self.env.now > start_ns:
            self.holds.append(Hold(self.command, start_ns, self.env.now, mark))


class Engine(Worker):
    """Serves the jobs of its queue in the order in which the CPU issued them."""

    def __init__(self, clockwork: Clockwork) -> None:
        super().__init__(clockwork)
        self.queue = simpy.Store(self.env)
        self.serving = False
        self.env.process(self._serve())

    def push(self, issued: int, job: Steps) -> None:
        """Queue a job whose command was issued at mark `issued`."""
        self.queue.put((issued, job))

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self.serving and not self.queue.items

    def _serve(self) -> Steps:
        while True:
            issued, job = yield self.queue.get()
            self.serving = True
            self.awaited.append(issued)
            yield from job
            self.serving = False
