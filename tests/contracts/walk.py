"""An oracle for timing: `docs/timing-contract.md` walked one command at a time.

Every engine has an explicit queue of jobs, a composite is one job per stream command, and a job
starts when its engine is free and all it waits for has happened. Plain floats, no closed form.
It shares nothing with the timing interpreter but the record and the unit conversion.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from ahbm_jax.interpret.record import RankRecord, Recorded
from ahbm_jax.machine.costs import costs_ns
from ahbm_jax.machine.params import Gemm, Machine
from ahbm_jax.tl.ops import EXPONENTIALS, MATH_OPS, OPS


@dataclass(eq=False)
class Event:
    """Something that happens at `time`, which is None until that is known."""

    time: float | None = None


Steps = Generator[Event, None, Any]  # yields what holds the CPU and is not known yet


@dataclass(eq=False)
class Job:
    """What an engine does in one go: occupied for `cost`, complete `delay` after its end."""

    after: list[Event]
    cost: float
    delay: float = 0.0
    started: Event = field(default_factory=Event)
    ended: Event = field(default_factory=Event)
    complete: Event = field(default_factory=Event)


class Engine:
    """Serves its jobs in the order in which they were pushed."""

    def __init__(self) -> None:
        self.queue: deque[Job] = deque()
        self.free = self.busy = 0.0
        self.last = Event(0.0)  # end of the job pushed last

    def push(self, job: Job) -> Job:
        self.queue.append(job)
        self.last = job.ended
        return job

    def run(self) -> bool:
        """Serve until the first job that waits for the unknown; returns whether any was served."""
        served = False
        while self.queue and all(event.time is not None for event in self.queue[0].after):
            job = self.queue.popleft()
            job.started.time = max([self.free, *(event.time for event in job.after)])
            job.ended.time = self.free = job.started.time + job.cost
            job.complete.time = self.free + job.delay
            self.busy += job.cost
            served = True
        return served


def stream_commands(gemm: Gemm, c: Recorded) -> tuple[int, int, float]:
    """Stream commands of a rows x inner x cols GEMM; each feeds sub-tiles and fetches bytes."""
    sizes = ((c.rows, gemm.tile_m), (c.inner, gemm.tile_k), (c.cols, gemm.tile_n))
    m, k, n = (math.ceil(size / tile) for size, tile in sizes)
    if gemm.operand_reuse:
        return k * n, m, c.hbm_bytes / (k * n)
    return m * k * n, 1, c.hbm_bytes / (k * n)


class Rank:
    """One PE: its CPU runs the commands in order and pushes jobs to its engines."""

    def __init__(self, machine: Machine, record: RankRecord, mail: dict[tuple, Event]) -> None:
        self.machine, self.mail = machine, mail
        self.costs = costs_ns(machine)
        self.now = self.busy = 0.0  # of the CPU
        self.dma, self.gemm, self.math = Engine(), Engine(), Engine()
        self.ports: dict[tuple, Engine] = defaultdict(Engine)  # by mesh and direction
        self.taken: dict[tuple, list[Event]] = defaultdict(list)  # of what each port sent
        self.inboxes: dict[tuple, Engine] = defaultdict(Engine)  # by channel
        self.messages: Counter[tuple] = Counter()  # so far, by channel
        self.ready: dict[int, Event] = {}  # when the last write of each buffer is there
        self.accumulators: set[int] = set()  # buffers last written by an ex_composite
        self.composites: list[Event] = []  # completions, those of ex_composites too
        self.ex_composites: list[Event] = []
        self.stores: list[Event] = []
        self.pending: list[Job] = []  # P V of an ex_composite, not in the GEMM queue yet
        self.open_scopes: list[list[Event]] = []
        self.closed_scopes: dict[int, list[list[Event]]] = defaultdict(list)  # by depth
        self.current: Recorded | None = None
        self.steps = self.run(record.commands)
        self.held_by: Event | None = Event(0.0)  # what the CPU waits for; None: it is done

    def engines(self) -> list[Engine]:
        return [self.dma, self.gemm, self.math, *self.ports.values(), *self.inboxes.values()]

    def advance(self) -> bool:
        """Do all that can be done now, CPU and engines in turn; returns whether anything was."""
        moved = False
        while sum(engine.run() for engine in self.engines()) or self.resume():
            moved = True
        return moved

    def resume(self) -> bool:
        """Let the CPU go on to where it is next held by what is not known yet."""
        if self.held_by is None or self.held_by.time is None:
            return False
        self.held_by = next(self.steps, None)
        return True

    def run(self, commands: list[Recorded]) -> Steps:
        for self.current in commands:
            yield from RULES[self.current.op](self, self.current) or ()
        self.enter_pending()

    def until(self, events: Iterable[Event]) -> Steps:
        """Hold the CPU until all events have happened."""
        for event in events:
            while event.time is None:
                yield event
            self.now = max(self.now, event.time)

    def occupy(self, kind: str) -> Event:
        """Occupy the CPU for an issue cost; returns the issue time."""
        self.now += self.costs[f"issue.{kind}"]
        self.busy += self.costs[f"issue.{kind}"]
        return Event(self.now)

    def issue(self, c: Recorded) -> Steps:
        """Wait for the operands in flight, then pay the issue cost; returns the issue time."""
        yield from self.until(self.operands(c.reads))
        return self.occupy(OPS[c.op].issue)

    def operands(self, reads: Iterable[int]) -> list[Event]:
        """What makes buffers ready. Use of an accumulator lets a pending P V enter GEMM."""
        events = [self.ready[b] for b in reads if b in self.ready and b not in self.accumulators]
        if not self.accumulators.isdisjoint(reads):
            self.enter_pending()
            events += self.composites
        return events

    def write(self, c: Recorded, ready: Event) -> None:
        self.ready |= dict.fromkeys(c.writes, ready)
        self.accumulators -= set(c.writes)

    def in_flight(self, event: Event) -> None:
        """The completion of a non-blocking command, which the scopes around it will name."""
        for scope in self.open_scopes:
            scope.append(event)

    def loop(self, c: Recorded) -> None:
        self.occupy("loop")

    def scope_enter(self, c: Recorded) -> Steps:
        before = self.closed_scopes[c.depth]
        if len(before) >= c.buffers:
            yield from self.until_composites(before[-c.buffers])
        self.open_scopes.append([])

    def scope_exit(self, c: Recorded) -> None:
        self.closed_scopes[c.depth].append(self.open_scopes.pop())

    def until_composites(self, events: list) -> Steps:
        """As `until`, but a pending P V that is waited for enters GEMM first."""
        if self.pending and self.pending[-1].complete in events:
            self.enter_pending()
        yield from self.until(events)

    def wait(self, c: Recorded) -> Steps:
        self.enter_pending()
        yield from self.until(self.operands(c.reads) if c.reads else self.composites)
        self.occupy("wait")

    def dma_command(self, size_bytes: float, after: list[Event]) -> Event:
        cost = self.costs["dma.issue"] + size_bytes * self.costs["hbm.byte"]
        delay = self.costs["dma.startup"] + self.costs["hbm.latency"]
        return self.dma.push(Job(after, cost, delay)).complete

    def transfer(self, c: Recorded) -> Steps:
        complete = self.dma_command(c.hbm_bytes, [(yield from self.issue(c))])
        self.write(c, complete)
        self.in_flight(complete)
        if c.op == "store":
            self.stores.append(complete)

    def passes(self, op: str, elements: int) -> float:
        cost = self.costs["math.exp_pass" if op in EXPONENTIALS else "math.pass"]
        return math.ceil(elements / self.machine.math.lanes) * cost

    def elementwise(self, c: Recorded) -> Steps:
        job = self.math.push(Job([(yield from self.issue(c))], self.passes(c.op, c.elements)))
        self.write(c, job.ended)
        if self.machine.math.blocking:
            yield from self.until([job.ended])
        else:
            self.in_flight(job.ended)
            yield from self.until([job.started])

    def gemm_job(self, subtiles: int, after: list[Event], stages: int = 0) -> Job:
        delay = self.costs["gemm.writeout"] + stages * self.costs["gemm.epilogue"]
        return Job(after, subtiles * self.costs["gemm.subtile"], delay)

    def dot(self, c: Recorded) -> Steps:
        commands, fed, _ = stream_commands(self.machine.gemm, c)
        issued = yield from self.issue(c)
        job = self.gemm.push(self.gemm_job(commands * fed, [issued]))
        self.write(c, job.complete)
        yield from self.until([job.complete])

    def describe(self, c: Recorded) -> Steps:
        """Wait for room in the queue and issue; returns the descriptor time."""
        depth = self.machine.scheduler.queue_depth_composites
        if len(self.composites) >= depth:
            yield from self.until_composites([self.composites[-depth]])
        self.occupy(OPS[c.op].issue)
        return Event(self.now + self.costs["scheduler.latency"])

    def composite(self, c: Recorded) -> Steps:
        after = self.operands(c.reads)
        descriptor = yield from self.describe(c)
        after.append(descriptor)
        if c.into_buffer and not self.machine.math.blocking:
            after.append(self.math.last)
        commands, fed, share = stream_commands(self.machine.gemm, c)
        depth = int(self.machine.gemm.stream_depth_subtiles)
        gemms: list[Job] = []
        for i in range(commands):
            data: list[Event] = []
            if c.streams:
                window = [gemms[i - depth].ended] if i >= depth else []
                data = [self.dma_command(share, [descriptor, *window])]
            job = self.gemm_job(fed, [*after, *data], len(c.epilogue))
            gemms.append(self.gemm.push(job))
        self.composite_issued(c, gemms[-1].complete)
        self.enter_pending()

    def ex_composite(self, c: Recorded) -> Steps:
        self.enter_pending()
        s, m, l, o = c.reads
        scores = self.operands([s])
        state = self.operands({m, l} - self.accumulators)
        output = self.operands({o} - self.accumulators)
        descriptor = yield from self.describe(c)
        commands, fed, share = stream_commands(self.machine.gemm, c)
        two_before, one_before = self.ex_composites[-2:-1], self.ex_composites[-1:]
        data = [self.dma_command(share, [descriptor, *two_before]) for _ in range(commands)]
        softmax = sum(self.passes(op, c.rows * c.inner) for op in ("max", "sub", "exp", "sum"))
        steps = ("maximum", "sub", "exp", "mul", "add")
        softmax += sum(self.passes(op, c.rows) for op in steps)
        self.math.push(Job([descriptor, *scores, *state], softmax))
        rescale = Job([*one_before, *output], self.passes("mul", c.rows * c.cols))
        p_ready = self.math.push(rescale).ended
        self.pending = [self.gemm_job(fed, [v, p_ready]) for v in data]
        self.composite_issued(c, self.pending[-1].complete)
        self.ex_composites.append(self.composites[-1])
        self.accumulators |= set(c.writes)

    def enter_pending(self) -> None:
        """P V of the pending ex_composite, if there is one, enters the GEMM queue."""
        for job in self.pending:
            self.gemm.push(job)
        self.pending = []

    def composite_issued(self, c: Recorded, complete: Event) -> None:
        self.write(c, complete)
        self.in_flight(complete)
        self.composites.append(complete)

    def message(self, c: Recorded) -> tuple[tuple, Event, Event]:
        """Channel, arrival and taking: the k-th send of a channel is its k-th receive."""
        message = c.message
        channel = (message.mesh, message.direction, message.source, message.target)
        self.messages[channel] += 1
        number = self.messages[channel]
        return channel, self.mail[channel, number, "arrived"], self.mail[channel, number, "taken"]

    def send(self, c: Recorded) -> Steps:
        issued = yield from self.issue(c)
        (mesh, direction, *_), arrived, taken = self.message(c)
        port, link = (mesh, direction), f"{mesh}_link"
        depth = getattr(self.machine, link).queue_depth_messages
        full = [self.taken[port][-depth]] if len(self.taken[port]) >= depth else []
        payload = c.message.size_bytes * self.costs[f"{link}.byte"] * c.message.sharers
        travel = self.costs[f"{link}.fixed"] + c.message.hops * self.costs[f"{link}.hop"]
        cost = self.costs[f"{link}.overhead"] + payload
        job = self.ports[port].push(Job([issued, *full], cost, travel, complete=arrived))
        self.taken[port].append(taken)
        self.in_flight(job.ended)

    def take(self, c: Recorded, asked: Event) -> Event:
        """Have a message taken once it is asked for and there; returns when it is."""
        channel, arrived, taken = self.message(c)
        self.inboxes[channel].push(Job([asked, arrived], 0.0, complete=taken))
        self.write(c, taken)
        return taken

    def recv(self, c: Recorded) -> Steps:
        yield from self.until([self.take(c, Event(self.now))])
        self.occupy("recv")

    def recv_async(self, c: Recorded) -> Steps:
        self.in_flight(self.take(c, (yield from self.issue(c))))

    def finish_ns(self) -> float:
        events = [event.time for event in (*self.composites, *self.stores)]
        free = (engine.free for engine in (self.math, *self.ports.values()))
        return max([self.now, *events, *free])

    def busy_ns(self) -> dict[str, float]:
        engines = {"dma": self.dma.busy, "gemm": self.gemm.busy, "math": self.math.busy}
        return {"cpu": self.busy, **engines, "port": sum(p.busy for p in self.ports.values())}


SHARED = dict.fromkeys(MATH_OPS, "elementwise") | dict.fromkeys(("load", "store"), "transfer")
RULES: dict[str, Callable[[Rank, Recorded], Steps | None]] = {
    op: getattr(Rank, SHARED.get(op, op)) for op in (*OPS, "loop", "scope_enter", "scope_exit")
}


@dataclass(frozen=True, kw_only=True)
class Walk:
    latency_ns: float
    finish_ns: dict[tuple[int, int], float]
    busy_ns: dict[tuple[int, int], dict[str, float]]


def walk(machine: Machine, records: list[RankRecord]) -> Walk:
    """Walk the commands of all ranks. Raises `RuntimeError` for a deadlock."""
    mail: dict[tuple, Event] = defaultdict(Event)
    ranks = {record.rank: Rank(machine, record, mail) for record in records}
    while sum(rank.advance() for rank in ranks.values()):
        pass
    for name, rank in ranks.items():
        if rank.held_by or any(engine.queue for engine in rank.engines()):
            raise RuntimeError(f"deadlock: rank {name} gets no further than {rank.current}")
    finish = {name: rank.finish_ns() for name, rank in ranks.items()}
    busy = {name: rank.busy_ns() for name, rank in ranks.items()}
    return Walk(latency_ns=max(finish.values()), finish_ns=finish, busy_ns=busy)
