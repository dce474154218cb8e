"""A timeline as Chrome trace events, for the Perfetto UI and speedscope.

A process is a CUBE, a thread is a worker of one of its PEs. Times are microseconds on a grid of
picoseconds, so that rounding does not make neighbours overlap.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ahbm_jax.events import Timeline
from ahbm_jax.interpret.record import Rank, Recorded
from ahbm_jax.report.slices import HELD, Slice, Slices

Event = dict[str, Any]
Level = tuple[float, int]  # a time in ns, and a count from then on, or by how much it changes
COMPOSITES = ("composite", "ex_composite")
PICOSECOND = 6  # decimals of a microsecond
INBOX = "inbox"  # the thread that shows when a `recv_async` takes its message


def chrome_trace(timeline: Timeline) -> dict[str, Any]:
    """The trace of a timeline as one JSON object."""
    return {"displayTimeUnit": "ns", "traceEvents": list(trace_events(timeline))}


def write_trace(timeline: Timeline, path: str | Path) -> None:
    """Write the trace of a timeline, an event a line, without holding all of it."""
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
        for index, event in enumerate(trace_events(timeline)):
            file.write((",\n" if index else "") + encode(event))
        file.write("\n]}\n")


def trace_events(timeline: Timeline) -> Iterator[Event]:
    """Names, then slices, then messages, which viewers tie to slices before them, then counters."""
    trace = _Trace(timeline)
    yield from trace.names()
    yield from trace.slices()
    yield from trace.messages()
    yield from trace.counters()


class _Trace:
    """The events of a timeline. Numbers of threads are unique over all processes."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.drawn = Slices(timeline)
        self.pids = {cube: cube + 1 for cube, _ in timeline.spans}  # 0 means idle to viewers
        self.tids: dict[tuple[Rank, str], int] = {}
        for rank, workers in timeline.spans.items():
            for worker in (*workers, INBOX):
                self.tids[rank, worker] = max(self.pids.values()) + 1 + len(self.tids)
        self.pairs = list(_pairs(timeline.commands))  # each send and its receive

    def names(self) -> Iterator[Event]:
        """Names and order of processes and threads."""
        for cube, pid in self.pids.items():
            yield _metadata("process_name", pid, 0, "name", f"CUBE {cube}")
            yield _metadata("process_sort_index", pid, 0, "sort_index", cube)
        with_inbox = {
            self.timeline.ranks[receive] for _, receive in self.pairs if self.asynchronous(receive)
        }
        for (rank, worker), tid in self.tids.items():
            if worker != INBOX or rank in with_inbox:
                pid = self.pids[rank[0]]
                yield _metadata("thread_name", pid, tid, "name", _thread_name(rank, worker))
                yield _metadata("thread_sort_index", pid, tid, "sort_index", tid)

    def place(self, rank: Rank, worker: str) -> Event:
        """Process and thread of a worker."""
        return {"pid": self.pids[rank[0]], "tid": self.tids[rank, worker]}

    def slices(self) -> Iterator[Event]:
        """What every worker did."""
        for rank in self.timeline.spans:
            for worker, slices in self.drawn.lanes(rank).items():
                place = self.place(rank, worker)
                for each in slices:
                    args = self.arguments(each, worker)
                    yield _slice(each.name, each.kind, place, each.start_ns, each.end_ns, args)

    def arguments(self, drawn: Slice, worker: str) -> Event:
        """What a viewer tells of a slice beside its name."""
        if drawn.kind == HELD:
            return {}  # speedscope would tell apart what is held by the same
        number = drawn.command
        command, args = self.timeline.commands[number], Event(command=number)
        if worker == "cpu" and command.engine != "cpu":
            return args  # the rest is told by the slice of the engine
        size = command.hbm_bytes if command.message is None else command.message.size_bytes
        if size:
            args["bytes"] = size
        if command.rows:
            args["shape"] = [command.rows, command.cols]
        if command.inner:
            args["inner"] = command.inner
        if command.op in COMPOSITES and worker in ("dma", "gemm"):
            args["sub-tiles"] = drawn.pieces
        args["busy_ns"] = round(drawn.busy_ns, 3)
        args["waits_for"] = list(self.timeline.waits_for[number])
        return args

    def messages(self) -> Iterator[Event]:
        """An arrow for each message, from the port that sent it to the receive."""
        timeline = self.timeline
        for number, (send, receive) in enumerate(self.pairs):
            message = timeline.commands[send].message
            assert message is not None
            port = self.place(message.source, f"port.{message.mesh}.{message.direction}")
            asynchronous = self.asynchronous(receive)
            target = self.place(message.target, INBOX if asynchronous else "cpu")
            taken = self.taken_ns(receive)
            if asynchronous:
                name, args = self.drawn.names[receive], {"command": receive}
                yield _slice(name, "message", target, taken, taken, args)
            flow = {"name": "message", "cat": "message", "id": number}
            yield {"ph": "s", **flow, **port, "ts": _microseconds(timeline.started_ns[send])}
            yield {"ph": "f", "bp": "e", **flow, **target, "ts": _microseconds(taken)}

    def asynchronous(self, receive: int) -> bool:
        """Whether a receive takes its message without the CPU."""
        return self.timeline.commands[receive].op == "recv_async"

    def taken_ns(self, receive: int) -> float:
        """When a receive took its message."""
        timeline = self.timeline
        times = timeline.ended_ns if self.asynchronous(receive) else timeline.started_ns
        return times[receive]

    def counters(self) -> Iterator[Event]:
        """Scratch, composites in flight and messages not yet taken, of each PE."""
        timeline = self.timeline
        scratch: dict[Rank, list[Level]] = defaultdict(list)
        composites: dict[Rank, list[Level]] = defaultdict(list)
        messages: dict[Rank, list[Level]] = defaultdict(list)
        for number, command in enumerate(timeline.commands):
            rank, issued = timeline.ranks[number], timeline.issued_ns[number]
            scratch[rank].append((issued, command.scratch_bytes))
            if command.op in COMPOSITES:
                composites[rank] += [(issued, 1), (timeline.ended_ns[number], -1)]
        for send, receive in self.pairs:
            times = (timeline.issued_ns[send], 1), (self.taken_ns(receive), -1)
            messages[timeline.ranks[send]] += times
        for rank in timeline.spans:
            pid, of = self.pids[rank[0]], f"PE {rank[1]}"
            yield from _counter(pid, f"{of} scratch bytes", scratch[rank])
            yield from _counter(pid, f"{of} composites in flight", _sums(composites[rank]))
            yield from _counter(pid, f"{of} messages queued", _sums(messages[rank]))


def _pairs(commands: list[Recorded]) -> Iterator[tuple[int, int]]:
    """Each send with its receive: of one channel, the k-th with the k-th."""
    sent: dict[tuple, deque[int]] = defaultdict(deque)
    received: dict[tuple, deque[int]] = defaultdict(deque)
    for number, command in enumerate(commands):
        message = command.message
        if message is not None:
            channel = (message.mesh, message.direction, message.source, message.target)
            (sent if command.op == "send" else received)[channel].append(number)
    for channel, numbers in sent.items():
        yield from zip(numbers, received[channel], strict=False)


def _thread_name(rank: Rank, worker: str) -> str:
    _, _, port = worker.partition("port.")
    mesh, _, direction = port.partition(".")
    shown = f"port {mesh.upper()} {direction}" if port else worker
    return f"PE {rank[1]} {shown if port or worker == INBOX else worker.upper()}"


def _metadata(what: str, pid: int, tid: int, key: str, value: str | int) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {key: value}}


def _slice(
    name: str, kind: str, place: Event, start_ns: float, end_ns: float, args: Event
) -> Event:
    start, end = _microseconds(start_ns), _microseconds(end_ns)
    duration = round(end - start, PICOSECOND)
    if start + duration > end:  # as a viewer adds them
        duration = max(0.0, round(duration - 10**-PICOSECOND, PICOSECOND))
    told = {"args": args} if args else {}
    return {"ph": "X", "name": name, "cat": kind, **place, "ts": start, "dur": duration, **told}


def _counter(pid: int, name: str, levels: Iterable[Level]) -> Iterator[Event]:
    """The level at each time at which it changes."""
    shown = 0
    for time_ns, level in dict(levels).items():  # at one time, the last
        if level != shown:
            shown, ts = level, _microseconds(time_ns)
            yield {"ph": "C", "name": name, "pid": pid, "ts": ts, "args": {"value": level}}


def _sums(changes: list[Level]) -> Iterator[Level]:
    level = 0
    for time_ns, change in sorted(changes):
        level += change
        yield time_ns, level


def _microseconds(time_ns: float) -> float:
    return round(time_ns / 1e3, PICOSECOND)
