"""The timing interpreter: when each command is done, as `max` and `+` over engine clocks.

It follows docs/timing-contract.md. A handle's payload is the time at which it is ready; the state
holds one clock per engine and lane (see `lanes`). Shapes and trip counts are traced numbers, so
one compiled program serves every group shape, tile, context and cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ahbm_jax.interpret.algebra import maximum
from ahbm_jax.interpret.iteration import Iteration, LoopMap, is_handle
from ahbm_jax.interpret.lanes import CLASSES, CUBE_CLASSES, RANKS, ROOTS, Lanes
from ahbm_jax.interpret.progression import Span, block_period
from ahbm_jax.interpret.readiness import PendingScopes, Ready, TracedStep
from ahbm_jax.machine.costs import Costs
from ahbm_jax.machine.number import floordiv
from ahbm_jax.machine.params import Machine
from ahbm_jax.machine.topology import Position, Step, movement
from ahbm_jax.tl.command import Command
from ahbm_jax.tl.handle import Block, Blocks, Handle, Number, Shape, Tensor, Tile, Tiles
from ahbm_jax.tl.launch import Launch, launch_tensors, sink_tensor
from ahbm_jax.tl.scratch import Scratch

Array = jax.Array
MESHES, DIRECTIONS = ("pe", "cube"), ("N", "S", "E", "W")
SCOPE_DEPTHS, ARENAS = 5, 2  # nested scopes, and arenas of each, that the state has room for
PENDING = ("exists", "span", "work")  # of a P V that waits for GEMM: its sizes, as times
ENGINES = ("cpu", "dma", "gemm", "math", "port")
COMMAND_COUNTS = (
    "composites",
    "dma_reads",
    "dma_read_bytes",
    "dma_writes",
    "dma_write_bytes",
    "sends",
    "sent_bytes",
    "recvs",
)
PORTS = tuple(f"port.{mesh}.{direction}" for mesh in MESHES for direction in DIRECTIONS)
BUSY = tuple(f"busy_{name}" for name in (*ENGINES[:-1], *PORTS))
COUNTS = (*COMMAND_COUNTS, "macs", "math_elements", *BUSY)


class MeshUsedAgain(Exception):
    """A mesh is used after a plan that was timed as if it were the only one: see `careful`."""


class Totals(NamedTuple):
    """Of all ranks together, [batch]."""

    end_ns: Array  # from 0 until their engines are done
    scratch_peak_bytes: Array  # of the one that needs most

    def with_others(self, others: Totals) -> Totals:
        """Of these ranks and others."""
        end = maximum(self.end_ns, others.end_ns)
        return Totals(end, jnp.maximum(self.scratch_peak_bytes, others.scratch_peak_bytes))


class Timing:
    """Interpreter of all ranks' programs at once.

    Args:
      machine: for its static choices (grid, queue depths, switches).
      costs: ns, each [1, 1, batch].
      numbers: the machine's other numbers by name, each [1, 1, batch].
      launch: the request, its numbers [1, 1, batch] floats.
      batch: points in a batch.
      rules: the rule of each operation.
      counting: whether to keep the counters, which latency does not need.
      careful: keep the clocks of all ports in every plan. Without it, `MeshUsedAgain` may be
        raised: then they matter.
    """

    def __init__(
        self,
        machine: Machine,
        costs: Costs,
        numbers: Costs,
        launch: Launch,
        *,
        batch: int,
        rules: dict[str, Callable[[Timing, Command], Any]],
        counting: bool,
        careful: bool = False,
    ) -> None:
        self.machine, self.costs, self.numbers, self.launch = machine, costs, numbers, launch
        self.batch, self.rules, self.counting, self.careful = batch, rules, counting, careful
        self.dtype = jnp.result_type(costs["math.pass"])
        self.never = jnp.full((1, 1, 1), -jnp.inf, self.dtype)
        self.zero = jnp.zeros((1, 1, 1), self.dtype)
        self.lanes = Lanes(machine.grid, launch, self.dtype)
        self.space = RANKS if isinstance(launch.users, Array) else CLASSES
        self.level = 0
        self.loops: list[LoopMap] | None = None  # collects the outermost loops' maps when a list
        self.regular: list[Array] = []  # of each loop of tiles run: see `iterate`
        self.shifts: list[tuple[int, Any]] = []  # of clocks from outside loops being iterated
        self.scratch = Scratch(self.zero, jnp.maximum)
        self.clocks: dict[str, Array] = self._initial_clocks()
        self.pending = dict.fromkeys(PENDING, self.zero)
        self.pending_in = PendingScopes(0, ())
        self.pends = False  # whether any command so far was an ex_composite
        self.windows = self.zero  # scratch for the windows of the composites in flight, once used
        self.counts: dict[str, Array] = dict.fromkeys(COUNTS, self.zero)
        self.mailbox: list[tuple[Any, Array]] = []  # ((mesh, step), arrival at its sender)
        self.meshes_used: set[str] = set()  # on which something was sent
        self.meshes_sent_once: set[str] = set()  # by a plan that left no trace on their ports
        self.sends_once = False  # in the plan being run each rank sends in one step only
        self.messages = 0  # sent in the present step
        self.repeating = False
        self.probing = False  # an iteration is traced to learn what it changes, not what it takes
        self.taken_updates: list[tuple[str, Array]] = []
        self.predicates: list[Any] = []
        self.scopes: list[Array] = []  # latest completion of what each open scope issued
        self.known_totals: Totals | None = None  # where they took less than from the ranks' clocks
        self.root_mask: Array | None = None

    def _initial_clocks(self) -> dict[str, Array]:
        names = ["composites", "stores", "pending_v", "pending_p", "acc0", "acc1"]
        names += [f"queue{i}" for i in range(self.machine.scheduler.queue_depth_composites)]
        names += [f"scope{d}.{i}" for d in range(SCOPE_DEPTHS) for i in range(ARENAS)]
        for mesh in MESHES:
            depth = getattr(self.machine, f"{mesh}_link").queue_depth_messages
            for direction in DIRECTIONS:
                names.append(f"port.{mesh}.{direction}")
                names += [f"taken.{mesh}.{direction}.{i}" for i in range(depth)]
        engines = dict.fromkeys(("cpu", "dma", "gemm", "math"), self.zero)
        return engines | dict.fromkeys(names, self.never)

    # Lanes ------------------------------------------------------------------------------------

    def tensors(self) -> tuple[Tensor, ...]:
        """q, k (transposed), v and output of a rank."""
        return launch_tensors(self.launch)

    def view(self, x: Array, space: str) -> Array:
        """`x`, made in lanes `space`, in the current ones."""
        return self.lanes.convert(x, space, self.space, self.root_mask)

    def view_all(self, tree: Any, space: str) -> Any:
        """As `view`, of all arrays of a pytree.

        One by one: what nothing asks for afterwards is then never computed.
        """
        return jax.tree.map(lambda x: self.view(x, space), tree)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of a clock."""
        return self.lanes.shape(self.space, self.batch)

    def _move(self, space: str) -> None:
        before, self.space = self.space, space
        self.restore(self.view_all(self.state(), before))

    def position(self, mesh: str) -> Position:
        """Places of all ranks; from here on those that differ in it have clocks of their own."""
        if mesh == "pe" and self.space == CLASSES:
            self._move(CUBE_CLASSES)
        if mesh == "cube" and self.space in (CLASSES, CUBE_CLASSES):
            self._move(RANKS)
        return self.lanes.cube if mesh == "cube" else self.lanes.pe

    def extent(self, mesh: str) -> tuple[int, int]:
        """Most rows and columns of a mesh."""
        return self.machine.grid.extent(mesh)

    def length(self, tokens: Number) -> Array:
        """Tokens of each lane, of the first `tokens`."""
        return self.launch.placement.length_at(self.order(), tokens)

    def order(self) -> Array:
        """Position of each lane in the order in which ranks are filled."""
        return self.lanes.orders[self.space]

    # State ------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that a command may change, as a pytree."""
        return {
            "clocks": dict(self.clocks),
            "pending": dict(self.pending),
            "counts": dict(self.counts),
            "scratch": {
                "used": self.scratch.used,
                "peak": self.scratch.peak,
                "windows": self.windows,
            },
            "scopes": list(self.scopes),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        self.clocks, self.pending = dict(state["clocks"]), dict(state["pending"])
        self.counts, self.scopes = dict(state["counts"]), list(state["scopes"])
        self.known_totals = None
        self.scratch.used = state["scratch"]["used"]
        self.scratch.peak, self.windows = state["scratch"]["peak"], state["scratch"]["windows"]

    def ready(self, handle: Handle) -> Array | None:
        """When a handle is ready, or None if no later than the CPU."""
        payload: Ready = handle.payload
        clock = payload.clock
        if clock is not None:
            clock = self.view(clock, payload.space)
            for level, shift in self.shifts:
                if payload.level <= level:
                    clock = clock + shift
        if payload.drains:
            self.flush()
            drained = self.clocks["composites"]
            clock = drained if clock is None else maximum(clock, drained)
        return clock

    @contextmanager
    def shifted(self, by: Any) -> Iterator[None]:
        """Inside, the next loop's body sees clocks from outside of it later by `by`."""
        self.shifts.append((self.level, by))
        yield
        self.shifts.pop()

    def clock_of(self, handle: Handle) -> Array:
        """When the command that made a handle ends, `-inf` if no later than the CPU."""
        payload: Ready = handle.payload
        return self.never if payload.clock is None else self.view(payload.clock, payload.space)

    def made(self, clock: Array | None, *, drains: bool = False) -> Ready:
        """Payload of a handle made now."""
        return Ready(clock, self.space, self.level, drains)

    def advance(self, name: str, *times: Array | None) -> Array:
        """Move a clock on to the latest of `times`."""
        for time in times:
            if time is not None and time is not self.never:
                self.clocks[name] = maximum(self.clocks[name], time)
        return self.clocks[name]

    def issue(self, command: Command, *waits: Array | None) -> Array:
        """Wait for `waits`, then occupy the CPU for the issue cost; returns when that ends."""
        return self.occupy_cpu(f"issue.{command.spec.issue}", *waits)

    def occupy_cpu(self, cost: str, *waits: Array | None) -> Array:
        """Wait for `waits`, then occupy the CPU for `cost`."""
        self.known_totals = None
        self.advance("cpu", *waits)
        self.clocks["cpu"] = self.clocks["cpu"] + self.costs[cost]
        self.count("busy_cpu", self.costs[cost])
        return self.clocks["cpu"]

    def await_operands(self, command: Command) -> list[Array | None]:
        """When the operands in scratch are ready."""
        return [self.ready(handle) for handle in command.handles]

    def count(self, name: str, amount: Number) -> None:
        """Add to a counter."""
        if self.counting:
            self.counts[name] = self.counts[name] + amount

    def in_flight(self, until: Array) -> None:
        """Note that a command issued in the open scopes completes at `until`."""
        self.scopes = [maximum(latest, until) for latest in self.scopes]

    # Scratch ----------------------------------------------------------------------------------

    def allocate(self, size_bytes: Number) -> None:
        """Count scratch."""
        self.known_totals = None
        self.scratch.allocate(size_bytes)

    def buffer(self, shape: Shape, like: Tensor | Handle | None = None) -> Ready:
        """A buffer that nothing has written yet."""
        return self.made(None)

    @contextmanager
    def scratch_scope(self, buffers: int) -> Iterator[None]:
        """Wait for the arena, and on exit note when it will be free."""
        depth = len(self.scopes)
        if depth >= SCOPE_DEPTHS:
            raise NotImplementedError(f"scratch scopes nest {SCOPE_DEPTHS} deep at most")
        if self.pending_in.left_before(depth) == buffers - 1:
            self.flush()  # the arena to be reused is the one a pending P V reads
        self.advance("cpu", self.clocks[f"scope{depth}.{buffers - 1}"])
        self.scopes = [*self.scopes, self.never]
        with self.scratch.scope(buffers):
            yield
        *self.scopes, latest = self.scopes
        self.clocks[f"scope{depth}.1"] = self.clocks[f"scope{depth}.0"]
        self.clocks[f"scope{depth}.0"] = latest
        self.pending_in = self.pending_in.leave(depth)

    # Control ----------------------------------------------------------------------------------

    def when(self, predicate: Number, then: Callable[..., Any], operands: tuple) -> Any:
        """`then` everywhere, its effects kept where the predicate holds."""
        if isinstance(predicate, bool):
            kept = operands[0] if len(operands) == 1 else operands
            return then(*operands) if predicate else kept
        before = self.state()
        self.predicates.append(predicate)
        result = then(*operands)
        self.predicates.pop()
        self.restore(_where(predicate, self.state(), before))
        if not self.predicates:
            for key, time in self.taken_updates:
                self.advance(key, time)
            self.taken_updates.clear()
        if not operands or result is None:
            return result
        old = operands[0] if len(operands) == 1 else operands
        return jax.tree.map(
            lambda new, old: self._choose(predicate, new, old), result, old, is_leaf=is_handle
        )

    def _choose(self, predicate: Array, new: Handle, old: Handle) -> Handle:
        a, b = new.payload, old.payload
        if a.clock is None and b.clock is None:
            return replace(new, payload=self.made(None, drains=a.drains or b.drains))
        clock = jnp.where(predicate, self.clock_of(new), self.clock_of(old))
        return replace(new, payload=self.made(clock, drains=a.drains or b.drains))

    def on_pe(self, predicate: Array, then: Callable[[Any], Any], carry: Any) -> Any:
        """`then` on one PE of each CUBE, whose clocks alone move."""
        outside, before = self.space, self.state()
        others = self.totals()
        self.restore(before)
        self.root_mask = predicate
        self._move(ROOTS)
        result = then(carry)
        inside = self.state()
        totals = others.with_others(self.totals())
        self.space, self.root_mask = RANKS, None
        self.restore(_where(predicate, inside, self.view_all(before, outside)))
        self.known_totals = totals
        return result

    def loop(self, tiles: Tiles, body: Callable[[Tile, Any], Any], carry: Any) -> Any:
        """Uniform tiles by the power of their map, those before and after one by one."""
        if self.pending_in.open or self.pending_in.left:
            raise NotImplementedError("an ex_composite is pending before a loop: `tl.wait()` first")
        iteration = Iteration(self, self._counting_iterations(body), carry)
        if tiles.own is not None:
            one = jnp.ones_like(tiles.count)
            span = Span(
                start=tiles.first, stop=tiles.count, period=one, until=self._alike(tiles.own)
            )
            self.regular.append(iteration.progress(tiles.at, span))
            return iteration.finish()
        begin, end = tiles.uniform
        if not isinstance(tiles.all_start, int):
            iteration.walk(tiles.at, tiles.first, jnp.minimum(begin, tiles.count))
        self.regular.append(iteration.power(tiles.full(), end - begin))
        iteration.walk(tiles.at, end, tiles.count)
        return iteration.finish()

    def _alike(self, tiles: Tiles) -> Callable[[Array], Array]:
        """Up to which number the tiles of each rank are of a kind with that of a given number."""
        used = self.lanes.used
        begin, end = tiles.uniform
        edges = [tiles.first, begin, end, tiles.count]

        def until(index: Array) -> Array:
            boundary = (index >= tiles.first) & (index < begin)
            boundary = boundary | ((index >= end) & (index < tiles.count))
            alone = jnp.any(boundary & used, axis=(0, 1), keepdims=True)
            ends = [jnp.where(used & (edge > index), edge, jnp.inf) for edge in edges]
            nearest = jnp.min(jnp.stack(ends), axis=(0, 1, 2))[None, None]
            return jnp.where(alone, index + 1.0, nearest)

        return until

    def for_each(self, blocks: Blocks, body: Callable[[Block], Any]) -> Any:
        """Full blocks by the regularity of their maps, one that is not full by itself.

        The results are the last block's: they cost nothing and nobody waits for them.
        """
        self.position("cube")
        result: list[Any] = []

        def block(item: Block, carry: tuple) -> tuple:
            result[:] = [body(item)]
            return carry

        outer, self.repeating = self.repeating, True
        iteration = Iteration(self, self._counting_iterations(block), ())
        placement, size = self.launch.placement, blocks.round_extent
        tokens = self.launch.tile_tokens * placement.interleaved
        span = Span(
            start=jnp.zeros_like(blocks.full),
            stop=blocks.count,
            period=block_period(*jnp.broadcast_arrays(size, tokens)),
            until=lambda index: jnp.where(
                index < blocks.full, jnp.minimum(self._until(blocks, index), blocks.full), index + 1
            ),
        )
        iteration.progress(blocks.at, span)
        self.repeating = outer
        iteration.finish()
        nothing = self.made(None)
        return jax.tree.map(lambda h: replace(h, payload=nothing), result[0], is_leaf=is_handle)

    def _until(self, blocks: Blocks, index: Array) -> Array:
        """Up to which block after a given one each sees as many tokens more of the same ranks."""
        placement, window, size = self.launch.placement, self.launch.window, blocks.round_extent
        first = blocks.position + index * size

        def within(start: Array) -> Array:  # blocks that end before another rank is filled
            return jnp.maximum(floordiv(placement.turn(start) - start, size), 1.0)

        count = within(first)
        if window is not None:  # until it is full, each block sees more of its beginning too
            behind = first + 1.0 - window
            growing = jnp.where(behind < 0, floordiv(-behind, size), jnp.inf)
            count = jnp.minimum(count, jnp.maximum(growing, 1.0))
            count = jnp.where(behind > 0, jnp.minimum(count, within(behind)), count)
        return index + count

    def times(self, count: Number, body: Callable[[Any, Any], Any], carry: Any) -> Any:
        """One by one."""
        iteration = Iteration(self, self._counting_iterations(body), carry)
        stop = jnp.broadcast_to(jnp.asarray(count, self.dtype), (1, 1, self.batch))
        iteration.walk(lambda index: index, jnp.zeros_like(stop), stop)
        return iteration.finish()

    def block(self, blocks: Blocks, index: Array) -> Block:
        """This rank's block."""
        return blocks.at(index)

    def sinks(self) -> Tensor:
        """Sink logits of the rows."""
        return sink_tensor(self.launch)

    def _counting_iterations(self, body: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def with_loop_cost(item: Any, carry: Any) -> Any:
            self.occupy_cpu("issue.loop")
            return body(item, carry)

        return with_loop_cost

    def steps(
        self, plan: tuple[Step, ...], mesh: str, body: Callable[[Any, Any], Any], carry: Any
    ) -> Any:
        """The steps of a plan as one compiled body, each with its moves and its ranks."""
        if not plan:
            return carry
        self.position(mesh)
        routes = tuple(dict.fromkeys(step.route for step in plan))
        which = jnp.array([routes.index(step.route) for step in plan])
        sends, receives = self.lanes.movement(plan, mesh)
        depth = getattr(self.machine, f"{mesh}_link").queue_depth_messages

        def counting_messages(step: TracedStep, carry: Any) -> Any:
            self.messages = 0
            return body(step, carry)

        def step_of(x: tuple[Array, Array, Array]) -> TracedStep:
            route, senders, receivers = x
            marked = (self.lanes.marked(words, mesh) for words in (senders, receivers))
            return TracedStep(routes, route, *marked)

        steps = (which, sends, receives)
        iteration = Iteration(self, counting_messages, carry)
        self.sends_once = self._sends_once(plan, mesh)
        if self.sends_once:
            iteration.probe(step_of(jax.tree.map(lambda x: x[0], steps)))
            self.sends_once = self.messages <= depth
        iteration.scan(step_of, steps, len(plan))
        if self.sends_once:
            self.meshes_sent_once.add(mesh)
        self.sends_once = False
        return iteration.finish()

    def _sends_once(self, plan: tuple[Step, ...], mesh: str) -> bool:
        """Whether each rank sends in one step of `plan` alone, and nothing else on its mesh.

        If its messages also fit the queue, it never waits for room, and uses one port.
        """
        sends, _ = movement(plan, *self.extent(mesh), ragged=mesh == "pe")
        alone = mesh not in self.meshes_used and not (self.repeating or self.careful)
        return alone and int(sends.sum(axis=1).max()) <= 1

    def repeat(self, count: Number, body: Callable[[], None], launch: Launch) -> None:
        """`body` for each request of `launch`, one after the other on each rank."""
        self.launch = launch

        def request(_: None, carry: tuple) -> tuple:
            body()
            return carry

        self.repeating = True
        iteration = Iteration(self, self._counting_iterations(request), ())
        iteration.walk(lambda _: None, jnp.zeros_like(count), count)
        iteration.finish()
        self.repeating = False

    # Composites ---------------------------------------------------------------------------------

    def enqueue(self, command: Command) -> Array:
        """Take a place in the composite queue and issue; returns the descriptor's time."""
        depth = self.machine.scheduler.queue_depth_composites
        if depth == 1:
            self.flush()
        self.issue(command, self.clocks[f"queue{depth - 1}"])
        for i in range(depth - 1, 0, -1):
            self.clocks[f"queue{i}"] = self.clocks[f"queue{i - 1}"]
        self.clocks["queue0"] = self.never
        self.count("composites", 1.0)
        return self.clocks["cpu"] + self.costs["scheduler.latency"]

    def flush(self, place: int = 0) -> None:
        """Let a pending P V enter GEMM; `place` is where its command stands in the queue."""
        if not self.pends:
            return
        exists = self.pending["exists"] > 0
        work = self.pending["work"]
        entered = maximum(self.clocks["gemm"], self.clocks["cpu"])
        gemm = maximum(entered, self.clocks["pending_p"]) + work
        end = maximum(gemm, self.clocks["pending_v"] + self.pending["span"])
        self.clocks["gemm"] = jnp.where(exists, end, self.clocks["gemm"])
        done = jnp.where(exists, end + self.costs["gemm.writeout"], -jnp.inf)
        for clock in ("composites", f"queue{place}", "acc0"):
            self.advance(clock, done)
        inside = self.pending_in
        self.scopes = [
            maximum(latest, done) if depth < inside.open else latest
            for depth, latest in enumerate(self.scopes)
        ]
        for depth, generation in inside.left:
            if generation < ARENAS:
                self.advance(f"scope{depth}.{generation}", done)
        self.pending_in = PendingScopes(0, ())
        self.pending = dict.fromkeys(self.pending, self.zero)
        self.clocks["pending_v"] = self.clocks["pending_p"] = self.never

    def totals(self) -> Totals:
        """Of all ranks in use."""
        if self.known_totals is not None:
            return self.known_totals
        end, peak = (self._in_use(x) for x in (self.result(), self.scratch.peak + self.windows))
        # Lane by lane: XLA would fuse all that leads to them into a reduction of all, unvectorised.
        return Totals(functools.reduce(maximum, end), functools.reduce(jnp.maximum, peak))

    def _in_use(self, x: Array) -> list[Array]:
        """Values of each lane [batch], `-inf` of those not in use."""
        kept = jnp.where(self.lanes.in_use(self.space), x, -jnp.inf)
        return list(jnp.broadcast_to(kept, self.shape).reshape(-1, self.batch))

    def result(self) -> Array:
        """Time from 0 until a lane's engines are done."""
        self.flush()
        clocks = self.clocks
        names = [
            "cpu",
            "math",
            "composites",
            "stores",
            *(k for k in clocks if k.startswith("port.")),
        ]
        latest = clocks[names[0]]
        for name in names[1:]:
            latest = maximum(latest, clocks[name])
        return latest


def _where(predicate: Any, new: Any, old: Any) -> Any:
    """`new` where the predicate holds; what did not change is not touched."""
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(predicate, a, b), new, old)
