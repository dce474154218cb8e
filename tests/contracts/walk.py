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

from ahbm_jax.interpret.record import Message, RankRecord, Recorded
from ahbm_jax.machine.costs import costs_ns
from ahbm_jax.machine.params import Gemm, Machine
from ahbm_jax.tl.ops import EXPONENTIALS, MATH_OPS, OPS

RankId = tuple[int, int]


class Deadlock(RuntimeError):
    """Some rank waits for what never happens."""


@dataclass(eq=False)
class Event:
    """Something that happens at `time`, which is None until that is known."""

    time: float | None = None


@dataclass(eq=False)
class Envelope:
    """A message under way; as an event, that its receiver takes it.

    The sender's port says when it `arrived`, the receiver's CPU from when it is `asked` for.
    """

    arrived: Event = field(default_factory=Event)
    asked: Event = field(default_factory=Event)

    @property
    def time(self) -> float | None:
        """When it is taken: max(CPU or issue, arrival)."""
        if self.arrived.time is None or self.asked.time is None:
            return None
        return max(self.arrived.time, self.asked.time)


Awaited = Event | Envelope
Steps = Generator[Awaited, None, None]  # yields whatever holds the CPU and is not known yet
Issue = Generator[Awaited, None, Event]  # and returns when the command is issued


@dataclass(eq=False)
class Job:
    """What an engine does in one go: occupied for `cost`, complete `delay` after its end."""

    after: list[Awaited]
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
        """Queue a job behind all others."""
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


@dataclass(eq=False)
class PV:
    """P V of an ex_composite: while it is pending, only its data and P are under way."""

    fed: int
    data: list[Job]
    p_ready: Event
    complete: Event = field(default_factory=Event)


def stream_commands(gemm: Gemm, c: Recorded) -> tuple[int, int, float]:
    """Stream commands of a rows x inner x cols GEMM; each feeds sub-tiles and fetches bytes."""
    m, k, n = _ceil(c.rows, gemm.tile_m), _ceil(c.inner, gemm.tile_k), _ceil(c.cols, gemm.tile_n)
    if gemm.operand_reuse:
        return k * n, m, c.hbm_bytes / (k * n)
    return m * k * n, 1, m * c.hbm_bytes / (m * k * n)


class Rank:
    """One PE: its CPU runs the commands in order and pushes jobs to its engines."""

    def __init__(self, machine: Machine, record: RankRecord, mail: dict[tuple, Envelope]) -> None:
        self.machine, self.commands, self.mail = machine, record.commands, mail
        self.costs = costs_ns(machine)
        self.now = self.busy = 0.0  # of the CPU
        self.dma, self.gemm, self.math = Engine(), Engine(), Engine()
        self.ports: dict[tuple[str, str], Engine] = defaultdict(Engine)
        self.sent: dict[tuple[str, str], list[Envelope]] = defaultdict(list)  # by port
        self.mailed: Counter[tuple] = Counter()  # messages so far, by channel
        self.ready: dict[int, Awaited] = {}  # when the last write of each buffer is there
        self.accumulators: set[int] = set()  # buffers last written by an ex_composite
        self.composites: list[Event] = []  # completions, those of ex_composites too
        self.ex_composites: list[Event] = []
        self.stores: list[Event] = []
        self.pending: PV | None = None
        self.open_scopes: list[list[Awaited]] = []
        self.closed_scopes: dict[int, list[list[Awaited]]] = defaultdict(list)  # by depth
        self.current: Recorded | None = None
        self.done = False
        self.held_by: Awaited | None = None
        self.steps = self.run()

    def engines(self) -> list[Engine]:
        """All engines beside the CPU."""
        return [self.dma, self.gemm, self.math, *self.ports.values()]

    def advance(self) -> bool:
        """Do all that can be done now; returns whether anything was."""
        moved = False
        while self.resume() | any([engine.run() for engine in self.engines()]):
            moved = True
        return moved

    def resume(self) -> bool:
        """Let the CPU go on to where it is next held by what is not known yet."""
        if self.done or (self.held_by is not None and self.held_by.time is None):
            return False
        self.held_by = next(self.steps, None)
        self.done = self.held_by is None
        return True

    def run(self) -> Steps:
        """The program."""
        for self.current in self.commands:
            yield from RULES[self.current.op](self, self.current) or ()
        self.enter_pending()

    # The CPU ----------------------------------------------------------------------------------

    def until(self, events: Iterable[Awaited]) -> Steps:
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

    def issue(self, c: Recorded) -> Issue:
        """Wait for the operands in flight, then pay the issue cost."""
        yield from self.until(self.operands(c.reads))
        return self.occupy(OPS[c.op].issue)

    def operands(self, reads: Iterable[int]) -> list[Awaited]:
        """What makes buffers ready. Use of an accumulator lets a pending P V enter GEMM."""
        events = [self.ready[b] for b in reads if b in self.ready and b not in self.accumulators]
        if self.accumulators.isdisjoint(reads):
            return events
        self.enter_pending()
        return [*events, *self.composites]

    def write(self, c: Recorded, ready: Awaited) -> None:
        """The buffers that a command writes are there with `ready`."""
        self.ready |= dict.fromkeys(c.writes, ready)
        self.accumulators -= set(c.writes)

    def in_flight(self, event: Awaited) -> None:
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
        if self.pending is not None and self.pending.complete in events:
            self.enter_pending()
        yield from self.until(events)

    def wait(self, c: Recorded) -> Steps:
        self.enter_pending()
        yield from self.until(self.operands(c.reads) if c.reads else self.composites)
        self.occupy("wait")

    # DMA, MATH, dot ---------------------------------------------------------------------------

    def transfer(self, size_bytes: float, after: list[Awaited]) -> Event:
        """One DMA command; returns its completion."""
        cost = self.costs["dma.issue"] + size_bytes * self.costs["hbm.byte"]
        delay = self.costs["dma.startup"] + self.costs["hbm.latency"]
        return self.dma.push(Job(after, cost, delay)).complete

    def load(self, c: Recorded) -> Steps:
        complete = self.transfer(c.hbm_bytes, [(yield from self.issue(c))])
        self.write(c, complete)
        self.in_flight(complete)

    def store(self, c: Recorded) -> Steps:
        complete = self.transfer(c.hbm_bytes, [(yield from self.issue(c))])
        self.stores.append(complete)
        self.in_flight(complete)

    def passes(self, op: str, elements: int) -> float:
        """Time of one operation on MATH."""
        cost = self.costs["math.exp_pass" if op in EXPONENTIALS else "math.pass"]
        return _ceil(elements, self.machine.math.lanes) * cost

    def elementwise(self, c: Recorded) -> Steps:
        job = self.math.push(Job([(yield from self.issue(c))], self.passes(c.op, c.elements)))
        self.write(c, job.ended)
        if self.machine.math.blocking:
            yield from self.until([job.ended])
        else:
            self.in_flight(job.ended)
            yield from self.until([job.started])

    def multiply(self, subtiles: int, after: list[Awaited], delay: float) -> Job:
        """Sub-tiles through GEMM, one after another."""
        return self.gemm.push(Job(after, subtiles * self.costs["gemm.subtile"], delay))

    def dot(self, c: Recorded) -> Steps:
        commands, fed, _ = stream_commands(self.machine.gemm, c)
        issued = yield from self.issue(c)
        job = self.multiply(commands * fed, [issued], self.costs["gemm.writeout"])
        self.write(c, job.complete)
        yield from self.until([job.complete])

    # Composites -------------------------------------------------------------------------------

    def describe(self, c: Recorded) -> Issue:
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
        finish = self.costs["gemm.writeout"] + len(c.epilogue) * self.costs["gemm.epilogue"]
        gemms: list[Job] = []
        for i in range(commands):
            data: list[Awaited] = []
            if c.streams:
                window = [gemms[i - depth].ended] if i >= depth else []
                data = [self.transfer(share, [descriptor, *window])]
            gemms.append(self.multiply(fed, [*after, *data], finish))
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
        data = [self.transfer(share, [descriptor, *two_before]) for _ in range(commands)]
        softmax = sum(self.passes(op, c.rows * c.inner) for op in ("max", "sub", "exp", "sum"))
        steps = ("maximum", "sub", "exp", "mul", "add")
        softmax += sum(self.passes(op, c.rows) for op in steps)
        self.math.push(Job([descriptor, *scores, *state], softmax))
        rescale = Job([*one_before, *output], self.passes("mul", c.rows * c.cols))
        self.pending = PV(fed, data, self.math.push(rescale).ended)
        self.composite_issued(c, self.pending.complete)
        self.ex_composites.append(self.pending.complete)
        self.accumulators |= set(c.writes)

    def enter_pending(self) -> None:
        """P V of the pending ex_composite, if there is one, enters the GEMM queue."""
        if self.pending is None:
            return
        pv, self.pending = self.pending, None
        for data in pv.data:
            job = self.multiply(pv.fed, [data, pv.p_ready], self.costs["gemm.writeout"])
        job.complete = pv.complete

    def composite_issued(self, c: Recorded, complete: Event) -> None:
        """A composite is in flight from here on."""
        self.write(c, complete)
        self.in_flight(complete)
        self.composites.append(complete)

    # Messages ---------------------------------------------------------------------------------

    def envelope(self, message: Message) -> Envelope:
        """The next message of a channel: the k-th that one end sends is the k-th the other takes."""
        channel = (message.mesh, message.direction, message.source, message.target)
        self.mailed[channel] += 1
        return self.mail[channel, self.mailed[channel]]

    def send(self, c: Recorded) -> Steps:
        issued = yield from self.issue(c)
        message, link = c.message, f"{c.message.mesh}_link"
        port = (message.mesh, message.direction)
        depth = getattr(self.machine, link).queue_depth_messages
        full = self.sent[port][-depth:-depth + 1 or None] if len(self.sent[port]) >= depth else []
        payload = message.size_bytes * self.costs[f"{link}.byte"] * message.sharers
        travel = self.costs[f"{link}.fixed"] + message.hops * self.costs[f"{link}.hop"]
        envelope = self.envelope(message)
        job = Job([issued, *full], self.costs[f"{link}.overhead"] + payload, travel)
        job.complete = envelope.arrived
        self.sent[port].append(envelope)
        self.in_flight(self.ports[port].push(job).ended)

    def recv(self, c: Recorded) -> Steps:
        envelope = self.envelope(c.message)
        envelope.asked.time = self.now
        yield from self.until([envelope])
        self.write(c, envelope)
        self.occupy("recv")

    def recv_async(self, c: Recorded) -> Steps:
        envelope = self.envelope(c.message)
        envelope.asked = yield from self.issue(c)
        self.write(c, envelope)
        self.in_flight(envelope)

    # Results ----------------------------------------------------------------------------------

    def finish_ns(self) -> float:
        """When the CPU, composites, stores and ports are done."""
        events = [event.time for event in (*self.composites, *self.stores)]
        return max([self.now, *events, *(port.free for port in self.ports.values())])

    def busy_ns(self) -> dict[str, float]:
        """Occupancies."""
        engines = {"dma": self.dma.busy, "gemm": self.gemm.busy, "math": self.math.busy}
        return {"cpu": self.busy, **engines, "port": sum(p.busy for p in self.ports.values())}


RULES: dict[str, Callable[[Rank, Recorded], Steps | None]] = {
    op: getattr(Rank, "elementwise" if op in MATH_OPS else op)
    for op in (*OPS, "loop", "scope_enter", "scope_exit")
}


@dataclass(frozen=True, kw_only=True)
class Walk:
    """What the contract says of a launch."""

    latency_ns: float
    finish_ns: dict[RankId, float]
    busy_ns: dict[RankId, dict[str, float]]


def walk(machine: Machine, records: list[RankRecord]) -> Walk:
    """Walk the commands of all ranks. Raises `Deadlock` if some can never be done."""
    mail: dict[tuple, Envelope] = defaultdict(Envelope)
    ranks = {record.rank: Rank(machine, record, mail) for record in records}
    while any([rank.advance() for rank in ranks.values()]):
        pass
    stuck = {
        name: rank.current
        for name, rank in ranks.items()
        if not rank.done or any(engine.queue for engine in rank.engines())
    }
    if stuck:
        raise Deadlock(f"nothing can happen any more; ranks at {stuck}")
    finish = {name: rank.finish_ns() for name, rank in ranks.items()}
    busy = {name: rank.busy_ns() for name, rank in ranks.items()}
    return Walk(latency_ns=max(finish.values()), finish_ns=finish, busy_ns=busy)


def _ceil(size: float, unit: float) -> int:
    return math.ceil(size / unit)
