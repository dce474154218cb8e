"""The engines of one PE, DMA, GEMM and MATH, and the scheduler that feeds them composites.

A method that yields is a job of one engine, or a process of the scheduler; docs/timing-contract.md
says what each waits for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import simpy

from ahbm_jax.events.worker import Clockwork, Engine, Steps
from ahbm_jax.interpret.record import Recorded
from ahbm_jax.machine.params import Gemm, Machine
from ahbm_jax.tl.ops import EXPONENTIALS

SOFTMAX_WIDE = ("max", "sub", "exp", "sum")  # of an ex_composite, over [M, N]
SOFTMAX_NARROW = ("maximum", "sub", "exp", "mul", "add")  # and over [M, 1]


@dataclass(eq=False)
class Flight:
    """A composite between its issue and its completion."""

    number: int  # of its command
    command: Recorded
    descriptor: simpy.Event  # the scheduler has planned it
    complete: simpy.Event
    data: simpy.Store  # sub-tiles on their way from HBM, as events
    room: simpy.Store  # credits of the stream window, one for each sub-tile that GEMM is done with
    subtiles: Sequence[float] = field(default_factory=list)  # bytes of each stream command
    fed: int = 0  # GEMM sub-tiles that each of them feeds


class Engines:
    """DMA, GEMM, MATH and the scheduler's queue of composites."""

    def __init__(self, machine: Machine, clockwork: Clockwork) -> None:
        self.machine, self.clockwork = machine, clockwork
        self.dma, self.gemm, self.math = (Engine(clockwork) for _ in range(3))
        self.planned = simpy.Store(clockwork.env)  # composites, in the order in which they retire
        self.slots = simpy.Store(clockwork.env)  # credits of the composite queue
        clockwork.env.process(self.retire())

    # DMA ----------------------------------------------------------------------------------------

    def move(self, number: int, c: Recorded, complete: simpy.Event) -> Steps:
        """DMA: a load or a store."""
        yield from self.dma.occupy(number, *self._dma_command(c, c.hbm_bytes))
        self.clockwork.fire_later(complete, self.dma, *self._dma_latency())

    def stream(self, flight: Flight, window: float, *after: simpy.Event) -> Steps:
        """DMA: the sub-tiles of a composite, at most `window` of them ahead of GEMM."""
        yield from self.dma.after(flight.descriptor, *after)
        for i, size_bytes in enumerate(flight.subtiles):
            if i >= window:
                yield from self.dma.after(flight.room.get())
            spent = self._dma_command(flight.command, size_bytes)
            yield from self.dma.occupy(flight.number, *spent)
            there = self.clockwork.later(self.dma.last, flight.number, *self._dma_latency())
            flight.data.put(there)

    def _dma_command(self, c: Recorded, size_bytes: float) -> tuple[tuple[str, float], ...]:
        cost, rest = self.clockwork.cost, size_bytes * (1 - c.cached)
        memory = cost("hbm.byte", rest * c.active)
        if c.active < 1:  # as much more of the bandwidth as the cache lets through
            memory = max(memory, cost("cache.byte", rest), key=lambda part: part[1])
        spent = cost("dma.issue"), memory
        return (*spent, cost("cache.byte", size_bytes * c.cached)) if c.cached else spent

    def _dma_latency(self) -> tuple[tuple[str, float], ...]:
        return self.clockwork.cost("dma.startup"), self.clockwork.cost("hbm.latency")

    # MATH ---------------------------------------------------------------------------------------

    def compute(self, number: int, c: Recorded, started: simpy.Event, ended: simpy.Event) -> Steps:
        """MATH: one operation."""
        started.succeed(self.math.mark(number))
        yield from self.math.occupy(number, self._passes(c.op, c.elements))
        ended.succeed(self.math.last)

    def softmax(
        self,
        flight: Flight,
        scores: list[simpy.Event],
        output: list[simpy.Event],
        p_ready: simpy.Event,
    ) -> Steps:
        """MATH: the softmax of an ex_composite, then the rescale of O."""
        number, c = flight.number, flight.command
        yield from self.math.after(flight.descriptor, *scores)
        wide = [self._passes(op, c.rows * c.inner) for op in SOFTMAX_WIDE]
        narrow = [self._passes(op, c.rows) for op in SOFTMAX_NARROW]
        yield from self.math.occupy(number, *wide, *narrow)
        yield from self.math.after(*output)
        yield from self.math.occupy(number, self._passes("mul", c.rows * c.cols))
        p_ready.succeed(self.math.last)

    def _passes(self, op: str, elements: int) -> tuple[str, float]:
        name = "math.exp_pass" if op in EXPONENTIALS else "math.pass"
        return self.clockwork.cost(name, math.ceil(elements / self.machine.math.lanes))

    # GEMM ---------------------------------------------------------------------------------------

    def dot(self, number: int, c: Recorded, complete: simpy.Event) -> Steps:
        """GEMM: all sub-tiles of a `dot`."""
        streams, fed = subtiles(self.machine.gemm, c)
        cost = self.clockwork.cost
        yield from self.gemm.occupy(number, cost("gemm.subtile", len(streams) * fed))
        self.clockwork.fire_later(complete, self.gemm, cost("gemm.writeout"))

    def multiply(self, flight: Flight, *after: simpy.Event) -> Steps:
        """GEMM: the sub-tiles of a composite, each as its data comes."""
        number, c, cost = flight.number, flight.command, self.clockwork.cost
        yield from self.gemm.after(flight.descriptor, *after)
        for _ in flight.subtiles:
            if c.streams:
                yield from self.gemm.after((yield flight.data.get()))
            yield from self.gemm.occupy(number, cost("gemm.subtile", flight.fed))
            flight.room.put(self.gemm.last)
        delay = cost("gemm.writeout"), cost("gemm.epilogue", len(c.epilogue))
        self.clockwork.fire_later(flight.complete, self.gemm, *delay)

    # The scheduler --------------------------------------------------------------------------------

    def launch(self, number: int, c: Recorded, issued: int) -> Flight:
        """A composite whose issue ended now, at mark `issued`."""
        env = self.clockwork.env
        events, stores = (env.event(), env.event()), (simpy.Store(env), simpy.Store(env))
        flight = Flight(number, c, *events, *stores)
        env.process(self._plan(flight, issued))
        self.planned.put(flight)
        return flight

    def _plan(self, flight: Flight, issued: int) -> Steps:
        """The scheduler cuts a GEMM into sub-tiles."""
        latency = self.clockwork.cost("scheduler.latency")
        mark = yield self.clockwork.later(issued, flight.number, latency)
        flight.subtiles, flight.fed = subtiles(self.machine.gemm, flight.command)
        flight.descriptor.succeed(mark)

    def retire(self) -> Steps:
        """The scheduler gives back the queue's slots, in order, as composites complete."""
        while True:
            flight = yield self.planned.get()
            self.slots.put((yield flight.complete))


def subtiles(gemm: Gemm, c: Recorded) -> tuple[list[float], int]:
    """Bytes of each stream command of a GEMM, and the GEMM sub-tiles that each feeds."""
    m, k, n = (
        range(0, size, tile)
        for size, tile in ((c.rows, gemm.tile_m), (c.inner, gemm.tile_k), (c.cols, gemm.tile_n))
    )
    once = [c.hbm_bytes / (len(k) * len(n)) for _ in k for _ in n]
    return (once, len(m)) if gemm.operand_reuse else ([size for _ in m for size in once], 1)
