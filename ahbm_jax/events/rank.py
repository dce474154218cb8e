"""One PE: its CPU runs the program, command by command, and its engines do the work.

It follows docs/timing-contract.md; the comments say only what that page does not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import simpy

from ahbm_jax.events.engines import Engines, Flight
from ahbm_jax.events.marks import NO_COMMAND, ORIGIN
from ahbm_jax.events.network import StaticNetwork
from ahbm_jax.events.ports import Ports
from ahbm_jax.events.worker import Cpu, Engine, Steps, Worker, mark_of
from ahbm_jax.interpret.record import RankRecord, Recorded
from ahbm_jax.machine.params import Machine
from ahbm_jax.tl.ops import MATH_OPS, OPS


class Rank:
    """All processes of one PE.

    Args:
      machine: what it is part of.
      record: the commands of its CPU.
      first: number of the first of them.
      network: what its messages cross.
      moved: called for each command that the CPU is done with.
    """

    def __init__(
        self,
        machine: Machine,
        record: RankRecord,
        first: int,
        network: StaticNetwork,
        moved: Callable[[], None],
    ) -> None:
        self.machine, self.record, self.first, self.moved = machine, record, first, moved
        self.network, self.clockwork = network, network.clockwork
        self.env, self.marks = self.clockwork.env, self.clockwork.marks
        self.cpu = Cpu(self.clockwork)
        self.engines = Engines(machine, self.clockwork)
        self.ports = Ports(machine, network, self.clockwork)
        self.ready: dict[int, simpy.Event] = {}  # when the last write of a buffer is there
        self.accumulators: set[int] = set()  # buffers last written by an ex_composite
        self.issued: list[int] = []  # mark of each command's issue
        self.ended: dict[int, simpy.Event] = {}  # completions of commands that engines serve
        self.composites: list[simpy.Event] = []  # completions that may be to come, in order
        self.queue: list[simpy.Event] = []  # completions of the last composites that it can hold
        self.ex_composites: list[simpy.Event] = []  # completions of the last two
        self.stores: list[simpy.Event] = []
        self.math_idle = self.clockwork.happened(ORIGIN)  # end of the last job queued on MATH
        self.pending: tuple[simpy.Event, int, Steps] | None = None  # P V not in the GEMM queue yet
        self.open_scopes: list[list[simpy.Event]] = []
        self.closed_scopes: dict[int, list[list[simpy.Event]]] = defaultdict(list)  # by depth
        self.process = self.env.process(self.run())

    # The CPU ------------------------------------------------------------------------------------

    def run(self) -> Steps:
        """The program."""
        for number, command in enumerate(self.record.commands, self.first):
            self.cpu.command = number
            yield from RULES[command.op](self, number, command)
            self.issued.append(self.cpu.last)
            self.moved()
        self.release_pending()
        self.cpu.mark(NO_COMMAND)

    def occupy(self, number: int, kind: str) -> Steps:
        """Pay an issue cost."""
        yield from self.cpu.occupy(number, self.clockwork.cost(f"issue.{kind}"))

    def issue(self, number: int, c: Recorded) -> Steps:
        """Wait for the operands in flight, then pay the issue cost."""
        yield from self.cpu.after(*self.operands(c.reads))
        yield from self.occupy(number, OPS[c.op].issue)

    def operands(self, reads: Iterable[int]) -> list[simpy.Event]:
        """What makes buffers ready. Use of an accumulator lets a pending P V enter GEMM."""
        reads = set(reads)
        plain = [self.ready[b] for b in sorted(reads - self.accumulators) if b in self.ready]
        if reads & self.accumulators:
            self.release_pending()
            plain += self.unfinished()
        return plain

    def unfinished(self) -> list[simpy.Event]:
        """Completions of the composites issued so far, as far as they are not past."""
        self.composites = [event for event in self.composites if not event.processed]
        return self.composites

    def write(self, c: Recorded, ready: simpy.Event) -> None:
        """Note when what a command writes is there."""
        self.ready |= dict.fromkeys(c.writes, ready)
        self.accumulators -= set(c.writes)

    def in_flight(self, number: int, end: simpy.Event) -> None:
        """Note the completion of a command that does not hold the CPU."""
        self.ended[number] = end
        for scope in self.open_scopes:
            scope.append(end)

    def loop(self, number: int, c: Recorded) -> Steps:
        """An iteration begins."""
        yield from self.occupy(number, "loop")

    def scope_enter(self, number: int, c: Recorded) -> Steps:
        """Wait for the arena."""
        arenas = self.closed_scopes[c.depth]
        if len(arenas) >= c.buffers:
            reused = arenas[-c.buffers]
            if self.pending is not None and self.pending[0] in reused:
                self.release_pending()
            yield from self.cpu.after(*reused)
        self.closed_scopes[c.depth] = arenas[-c.buffers :]
        self.open_scopes.append([])

    def scope_exit(self, number: int, c: Recorded) -> Steps:
        """The arena will be free when what was issued inside is complete."""
        self.closed_scopes[c.depth].append(self.open_scopes.pop())
        yield from ()

    def wait(self, number: int, c: Recorded) -> Steps:
        """Hold the CPU for a handle, or for all composites."""
        self.release_pending()
        yield from self.cpu.after(*(self.operands(c.reads) if c.reads else self.unfinished()))
        yield from self.occupy(number, "wait")

    def start(self, number: int, c: Recorded) -> Steps:
        """The launch of a program on a device's units."""
        yield from self.occupy(number, "start")

    def join(self, number: int, c: Recorded) -> Steps:
        """Hold the CPU for the stores."""
        yield from self.cpu.after(*self.stores)
        yield from self.occupy(number, "join")

    # Engines ------------------------------------------------------------------------------------

    def transfer(self, number: int, c: Recorded) -> Steps:
        """A load or a store."""
        yield from self.issue(number, c)
        complete = self.env.event()
        self.engines.dma.push(self.cpu.last, self.engines.move(number, c, complete))
        self.write(c, complete)
        self.in_flight(number, complete)
        if c.op == "store":
            self.stores.append(complete)

    def elementwise(self, number: int, c: Recorded) -> Steps:
        """One operation on MATH."""
        yield from self.issue(number, c)
        started, ended = self.env.event(), self.env.event()
        self.engines.math.push(self.cpu.last, self.engines.compute(number, c, started, ended))
        self.math_idle = ended
        self.write(c, ended)
        if self.machine.math.blocking:
            self.ended[number] = ended
            yield from self.cpu.after(ended)
        else:
            self.in_flight(number, ended)
            yield from self.cpu.after(started)

    def dot(self, number: int, c: Recorded) -> Steps:
        """A GEMM that holds the CPU."""
        yield from self.issue(number, c)
        complete = self.env.event()
        self.engines.gemm.push(self.cpu.last, self.engines.dot(number, c, complete))
        self.write(c, complete)
        self.ended[number] = complete
        yield from self.cpu.after(complete)

    def launch(self, number: int, c: Recorded) -> Steps:
        """Wait for a slot of the queue, issue, and leave the rest to the scheduler."""
        depth = self.machine.scheduler.queue_depth_composites
        if len(self.queue) == depth:
            if self.pending is not None and self.pending[0] is self.queue[0]:
                self.release_pending()
            yield from self.cpu.after(self.engines.slots.get())
        yield from self.occupy(number, OPS[c.op].issue)
        flight = self.engines.launch(number, c, self.cpu.last)
        self.queue = [*self.queue, flight.complete][-depth:]
        self.composites.append(flight.complete)
        self.in_flight(number, flight.complete)
        return flight

    def composite(self, number: int, c: Recorded) -> Steps:
        """A GEMM by the scheduler."""
        after, engines = self.operands(c.reads), self.engines
        flight: Flight = yield from self.launch(number, c)
        if c.into_buffer and not self.machine.math.blocking:
            after.append(self.math_idle)
        if c.streams:
            window = self.machine.gemm.stream_depth_subtiles
            engines.dma.push(self.cpu.last, engines.stream(flight, window))
        engines.gemm.push(self.cpu.last, engines.multiply(flight, *after))
        self.write(c, flight.complete)
        self.release_pending()

    def ex_composite(self, number: int, c: Recorded) -> Steps:
        """Softmax on MATH, then P V on GEMM; the latter waits, pending."""
        self.release_pending()
        s, m, l, o = c.reads
        scores = self.operands([s]) + self.operands({m, l} - self.accumulators)
        output = self.operands({o} - self.accumulators)
        flight: Flight = yield from self.launch(number, c)
        issued, engines, p_ready = self.cpu.last, self.engines, self.env.event()
        one_before, two_before = self.ex_composites[-1:], self.ex_composites[-2:-1]
        engines.dma.push(issued, engines.stream(flight, math.inf, *two_before))
        output += one_before
        engines.math.push(issued, engines.softmax(flight, scores, output, p_ready))
        self.math_idle = p_ready
        self.pending = flight.complete, issued, engines.multiply(flight, p_ready)
        self.ex_composites = [*one_before, flight.complete]
        self.write(c, flight.complete)
        self.accumulators |= set(c.writes)

    def release_pending(self) -> None:
        """P V of the pending ex_composite, if there is one, enters the GEMM queue."""
        if self.pending is not None:
            _, issued, job = self.pending
            self.engines.gemm.push(issued, job)
            self.pending = None

    # Messages -----------------------------------------------------------------------------------

    def send(self, number: int, c: Recorded) -> Steps:
        """Leave a message to its port."""
        yield from self.issue(number, c)
        assert c.message is not None
        self.in_flight(number, self.ports.send(number, c.message, self.cpu.last))

    def recv(self, number: int, c: Recorded) -> Steps:
        """Hold the CPU for a message."""
        assert c.message is not None
        start = self.env.now
        delivery = yield self.network.inbox(c.message).get()
        self.cpu.came(start, delivery.arrival)
        taken = self.cpu.mark(number)
        delivery.taken.succeed(taken)
        self.write(c, self.clockwork.happened(taken))
        yield from self.occupy(number, "recv")

    def recv_async(self, number: int, c: Recorded) -> Steps:
        """A message that is taken when it is there."""
        yield from self.issue(number, c)
        there = self.env.event()
        self.env.process(self.take(number, c, self.cpu.last, there))
        self.write(c, there)
        self.in_flight(number, there)

    def take(self, number: int, c: Recorded, issued: int, there: simpy.Event) -> Steps:
        """Take a message from its inbox, once it has been asked for."""
        assert c.message is not None
        delivery = yield self.network.inbox(c.message).get()
        mark = self.marks.add(self.env.now, (issued, delivery.arrival), number)
        delivery.taken.succeed(mark)
        there.succeed(mark)

    # The end ------------------------------------------------------------------------------------

    def workers(self) -> dict[str, Worker]:
        """CPU, engines and ports by name."""
        engines = self.engines
        workers: dict[str, Worker] = {"cpu": self.cpu, "dma": engines.dma, "gemm": engines.gemm}
        workers["math"] = engines.math
        for (mesh, direction), port in sorted(self.ports.by_name.items()):
            workers[f"port.{mesh}.{direction}"] = port.engine
        return workers

    def busy_ns(self) -> dict[str, float]:
        """Time that the CPU and each engine were occupied, all ports taken together."""
        busy: dict[str, float] = dict.fromkeys((*ENGINES, "port"), 0.0)
        for name, worker in self.workers().items():
            busy[name.partition(".")[0]] += sum(span.busy_ns for span in worker.spans)
        return busy

    def stuck(self) -> Recorded | None:
        """The command that the CPU, or an engine that is left with work, did not get past."""
        if self.process.is_alive:
            return self.record.commands[self.cpu.command - self.first]
        if any(isinstance(w, Engine) and not w.idle for w in self.workers().values()):
            return self.record.commands[-1]
        return None

    def finish(self) -> int:
        """The mark at which this rank is done with everything."""
        completions = [mark_of(event) for event in (*self.composites, *self.stores)]
        unawaited = ("dma", "gemm")  # what of theirs counts is among the completions
        free = [w.last for name, w in self.workers().items() if name not in unawaited]
        marks = (*free, *completions)
        time_ns = self.marks.times_ns[self.marks.latest(marks)]
        return self.marks.add(time_ns, marks, NO_COMMAND)


Rule = Callable[[Rank, int, Recorded], Steps]
ENGINES = ("cpu", "dma", "gemm", "math")
SHARED = dict.fromkeys(MATH_OPS, "elementwise") | dict.fromkeys(("load", "store"), "transfer")
RULES: dict[str, Rule] = {
    op: getattr(Rank, SHARED.get(op, op)) for op in (*OPS, "loop", "scope_enter", "scope_exit")
}
