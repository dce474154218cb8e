"""The timing interpreter: when each command is done, as `max` and `+` over engine clocks.

It follows docs/timing-contract.md. A handle's payload is the time at which it is ready; the state
holds one clock per engine and lane (see `lanes`). Shapes and trip counts are traced numbers, so
one compiled program serves every group shape, tile, context and cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from ahbm_jax.interpret.lanes import CLASSES, RANKS, ROOTS, Lanes
from ahbm_jax.interpret.maxplus import iterate
from ahbm_jax.interpret.pipeline import streamed
from ahbm_jax.machine.costs import Costs
from ahbm_jax.machine.params import Machine
from ahbm_jax.machine.topology import Position
from ahbm_jax.tl.command import Command
from ahbm_jax.tl.gemm_plan import GemmPlan, gemm_plan
from ahbm_jax.tl.handle import Handle, Number, Ref, Shape, Tensor, Tile, Tiles
from ahbm_jax.tl.launch import Launch, launch_tensors
from ahbm_jax.tl.ops import EXPONENTIALS, MATH_OPS
from ahbm_jax.tl.scratch import Scratch

Array = jax.Array
MESHES, DIRECTIONS = ("pe", "cube"), ("N", "S", "E", "W")
SCOPE_DEPTHS, ARENAS = 2, 2  # nested scopes, and arenas of each, that the state has room for
PENDING = ("exists", "span", "work")  # of a P V that waits for GEMM: its sizes, as times
COUNTS = (
    "composites",
    "dma_reads",
    "dma_read_bytes",
    "dma_writes",
    "dma_write_bytes",
    "sends",
    "sent_bytes",
    "recvs",
    "macs",
    "math_elements",
    "busy_cpu",
    "busy_dma",
    "busy_gemm",
    "busy_math",
    "busy_port",
)


@dataclass(frozen=True, slots=True)
class Ready:
    """When a handle is ready: at `clock` (None: no later than the CPU), in lanes `space`.

    `level` is the loop depth at which it was made; `drains` marks an accumulator that is ready
    when all composites are.
    """

    clock: Array | None
    space: str
    level: int
    drains: bool = False


@dataclass(frozen=True, slots=True)
class PendingScopes:
    """Scopes in which a pending ex_composite was issued: how many are still open, and those left.

    `left` holds (depth, generation): how many scopes of that depth have ended since.
    """

    open: int
    left: tuple[tuple[int, int], ...]

    def leave(self, depth: int) -> PendingScopes:
        """After the scope at `depth` ends."""
        left = tuple((d, g + 1) if d == depth else (d, g) for d, g in self.left)
        if depth < self.open:
            return PendingScopes(depth, (*left, (depth, 0)))
        return PendingScopes(self.open, left)

    def left_before(self, depth: int) -> int | None:
        """How many scopes at `depth` ended after the one it was issued in, None if in none."""
        return dict(self.left).get(depth)


class Timing:
    """Interpreter of all ranks' programs at once.

    Args:
      machine: for its static choices (grid, queue depths, switches).
      costs: ns, each [1, 1, batch].
      numbers: the machine's other numbers by name, each [1, 1, batch].
      launch: the request, its numbers [1, 1, batch] floats.
      counting: whether to keep the counters, which latency does not need.
    """

    def __init__(
        self,
        machine: Machine,
        costs: Costs,
        numbers: Costs,
        launch: Launch,
        *,
        counting: bool = True,
    ) -> None:
        self.machine, self.costs, self.numbers, self.launch = machine, costs, numbers, launch
        self.counting = counting
        self.dtype = jnp.result_type(costs["math.pass"])
        self.never = jnp.full((1, 1, 1), -jnp.inf, self.dtype)
        self.zero = jnp.zeros((1, 1, 1), self.dtype)
        self.lanes = Lanes(machine.grid, launch, self.dtype)
        self.space = CLASSES if launch.users == 1 else RANKS
        self.level = 0
        self.offset: Any = None  # shift of clocks from outside the loop being turned into a matrix
        self.scratch = Scratch(self.zero, jnp.maximum)
        self.clocks: dict[str, Array] = self._initial_clocks()
        self.pending = dict.fromkeys(PENDING, self.zero)
        self.pending_in = PendingScopes(0, ())
        self.streamed_bytes: int | None = None  # element size of what composites stream
        self.counts = dict.fromkeys(COUNTS, self.zero)
        self.mailbox: dict[tuple[str, str], list[Array]] = {}
        self.taken_updates: list[tuple[str, Array]] = []
        self.predicates: list[Any] = []
        self.scopes: list[Array] = []  # latest completion of what each open scope issued
        self.root_mask: Array | None = None
        self.rules = RULES

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
        if space == CLASSES and self.space != CLASSES:
            x = self.lanes.to_ranks(x)
        if space != ROOTS and self.space == ROOTS:
            assert self.root_mask is not None
            x = self.lanes.to_roots(x, self.root_mask)
        return x

    def _move(self, space: str) -> None:
        before, self.space = self.space, space
        self.clocks = {k: self.view(x, before) for k, x in self.clocks.items()}
        self.pending = {k: self.view(x, before) for k, x in self.pending.items()}
        self.counts = {k: self.view(x, before) for k, x in self.counts.items()}
        self.scopes = [self.view(x, before) for x in self.scopes]
        self.scratch.used = self.view(self.scratch.used, before)
        self.scratch.peak = self.view(self.scratch.peak, before)

    def position(self, mesh: str) -> Position:
        """Places of all ranks: from here on each has its own clocks."""
        if self.space == CLASSES:
            self._move(RANKS)
        return self.lanes.cube if mesh == "cube" else self.lanes.pe

    def extent(self, mesh: str) -> tuple[int, int]:
        """Most rows and columns of a mesh."""
        grid = self.machine.grid
        if mesh == "pe":
            return grid.pe_rows, grid.pe_cols
        return grid.cube_rows, grid.cube_cols

    def length(self, tokens: Number) -> Array:
        """Tokens of each lane, of the first `tokens`."""
        order = self.lanes.orders() if self.space == CLASSES else self.lanes.rank_order
        return self.launch.placement.length_at(order, tokens)

    # State ------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that a command may change, as a pytree."""
        return {
            "clocks": dict(self.clocks),
            "pending": dict(self.pending),
            "counts": dict(self.counts),
            "scratch": {"used": self.scratch.used, "peak": self.scratch.peak},
            "scopes": list(self.scopes),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        self.clocks, self.pending = dict(state["clocks"]), dict(state["pending"])
        self.counts, self.scopes = dict(state["counts"]), list(state["scopes"])
        self.scratch.used = state["scratch"]["used"]
        self.scratch.peak = state["scratch"]["peak"]

    def ready(self, handle: Handle) -> Array | None:
        """When a handle is ready, or None if no later than the CPU."""
        payload: Ready = handle.payload
        clock = payload.clock
        if clock is not None:
            clock = self.view(clock, payload.space)
            if self.offset is not None and payload.level < self.level:
                clock = clock + self.offset
        if payload.drains:
            self.flush()
            drained = self.clocks["composites"]
            clock = drained if clock is None else jnp.maximum(clock, drained)
        return clock

    def made(self, clock: Array | None, *, drains: bool = False) -> Ready:
        """Payload of a handle made now."""
        return Ready(clock, self.space, self.level, drains)

    def advance(self, name: str, *times: Array | None) -> Array:
        """Move a clock on to the latest of `times`."""
        for time in times:
            if time is not None and time is not self.never:
                self.clocks[name] = jnp.maximum(self.clocks[name], time)
        return self.clocks[name]

    def issue(self, command: Command, *waits: Array | None) -> Array:
        """Wait for `waits`, then occupy the CPU for the issue cost; returns when that ends."""
        return self.occupy_cpu(f"issue.{command.spec.issue}", *waits)

    def occupy_cpu(self, cost: str, *waits: Array | None) -> Array:
        """Wait for `waits`, then occupy the CPU for `cost`."""
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
        self.scopes = [jnp.maximum(latest, until) for latest in self.scopes]

    # Scratch ----------------------------------------------------------------------------------

    def allocate(self, size_bytes: Number) -> None:
        """Count scratch."""
        self.scratch.allocate(size_bytes)

    def buffer(self, shape: Shape) -> Ready:
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
        return _map_handles(lambda new, old: self._choose(predicate, new, old), result, old)

    def _choose(self, predicate: Array, new: Handle, old: Handle) -> Handle:
        a, b = new.payload, old.payload
        if a.clock is None and b.clock is None:
            return replace(new, payload=self.made(None, drains=a.drains or b.drains))
        times = [self.never if p.clock is None else self.view(p.clock, p.space) for p in (a, b)]
        clock = jnp.where(predicate, times[0], times[1])
        return replace(new, payload=self.made(clock, drains=a.drains or b.drains))

    def on_pe(self, predicate: Array, then: Callable[[Any], Any], carry: Any) -> Any:
        """`then` on one PE of each CUBE, whose clocks alone move."""
        before = self.state()
        self.root_mask = predicate
        self._move(ROOTS)
        result = then(carry)
        self.space, self.root_mask = RANKS, None
        self.restore(_where(predicate, self.state(), before))
        return result

    def loop(self, tiles: Tiles, body: Callable[[Tile, Any], Any], carry: Any) -> Any:
        """Uniform tiles by the power of their map, the rest one by one."""
        flat, tree = jax.tree.flatten(carry, is_leaf=_is_handle)
        loop = _Loop(self, body, tree, flat)
        loop.discover(tiles)
        state = loop.uniform(tiles)
        return loop.irregular(tiles, state)

    def repeat(self, count: int, body: Callable[[], None]) -> None:
        """`body` for each request, one after the other on each rank."""

        def request(state: dict[str, Any], _: None) -> tuple[dict[str, Any], None]:
            self.restore(state)
            self.level += 1
            self.occupy_cpu("issue.loop")
            body()
            self.level -= 1
            return _spread(self.state(), shape, self.dtype), None

        batch = jnp.broadcast_shapes(*(x.shape for x in self._inputs()))[-1]
        shape = (self.machine.grid.cubes, self.machine.grid.pes, batch)
        start = _spread(self.state(), shape, self.dtype)
        state, _ = jax.lax.scan(request, start, length=count)
        self.restore(state)

    def _inputs(self) -> list[Array]:
        sizes = [x for x in jax.tree.leaves(vars_of(self.launch)) if hasattr(x, "shape")]
        return [*self.costs.values(), *self.numbers.values(), *sizes]

    # GEMM -------------------------------------------------------------------------------------

    def plan(self, m: Number, k: Number, n: Number) -> GemmPlan:
        """Sub-tiles of a GEMM, counted."""
        plan = gemm_plan(self.machine.gemm, m, k, n)
        self.count("macs", m * k * n)
        self.count("busy_gemm", plan.subtiles * self.costs["gemm.subtile"])
        return plan

    def stream_costs(self, plan: GemmPlan, ref: Ref) -> dict[str, Array]:
        """Per-sub-tile costs of streaming `ref`, whose reads are counted."""
        moved = plan.fetches * ref.bytes
        fetch = self.costs["dma.issue"] + moved / plan.streams * self.costs["hbm.byte"]
        self.count("dma_reads", plan.streams)
        self.count("dma_read_bytes", moved)
        self.count("busy_dma", plan.streams * fetch)
        return {
            "n": plan.streams,
            "fetch": fetch,
            "latency": self.costs["dma.startup"] + self.costs["hbm.latency"],
            "multiply": plan.gemms_per_stream * self.costs["gemm.subtile"],
        }

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
        exists = self.pending["exists"] > 0
        work = self.pending["work"]
        gemm = jnp.maximum(self.clocks["gemm"], self.clocks["pending_p"]) + work
        end = jnp.maximum(gemm, self.clocks["pending_v"] + self.pending["span"])
        self.clocks["gemm"] = jnp.where(exists, end, self.clocks["gemm"])
        done = jnp.where(exists, end + self.costs["gemm.writeout"], -jnp.inf)
        for clock in ("composites", f"queue{place}", "acc0"):
            self.advance(clock, done)
        inside = self.pending_in
        self.scopes = [
            jnp.maximum(latest, done) if depth < inside.open else latest
            for depth, latest in enumerate(self.scopes)
        ]
        for depth, generation in inside.left:
            if generation < ARENAS:
                self.advance(f"scope{depth}.{generation}", done)
        self.pending_in = PendingScopes(0, ())
        self.pending = dict.fromkeys(self.pending, self.zero)
        self.clocks["pending_v"] = self.clocks["pending_p"] = self.never

    def result(self) -> Array:
        """Time from 0 until a lane's engines are done."""
        self.flush()
        clocks = self.clocks
        names = ["cpu", "composites", "stores", *(k for k in clocks if k.startswith("port."))]
        latest = clocks[names[0]]
        for name in names[1:]:
            latest = jnp.maximum(latest, clocks[name])
        return latest


def vars_of(launch: Launch) -> dict[str, Any]:
    """The launch's numbers."""
    placement = launch.placement
    names = ("cubes", "pes", "cache_tokens", "start_cube", "start_pe")
    sizes = {name: getattr(placement, name) for name in names}
    return sizes | {
        name: getattr(launch, name)
        for name in ("context_tokens", "group", "head_dim", "tile_tokens", "cube_rows", "cube_cols")
    }


def _is_handle(x: Any) -> bool:
    return isinstance(x, Handle)


def _map_handles(f: Callable[..., Any], *trees: Any) -> Any:
    return jax.tree.map(f, *trees, is_leaf=_is_handle)


def _where(predicate: Array, new: Any, old: Any) -> Any:
    """`new` where the predicate holds; what did not change is not touched."""
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(predicate, a, b), new, old)


def _spread(tree: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, dtype), shape), tree)


class _Loop:
    """One loop over tiles: its state is the interpreter's, and the clocks of what it carries."""

    def __init__(
        self, timing: Timing, body: Callable[[Tile, Any], Any], tree: Any, handles: list[Handle]
    ) -> None:
        self.timing, self.body, self.tree, self.handles = timing, body, tree, handles
        self.start = timing.state()
        self.start["carry"] = [
            timing.never
            if h.payload.clock is None
            else timing.view(h.payload.clock, h.payload.space)
            for h in handles
        ]
        self.level = timing.level
        self.pending_in = timing.pending_in

    def turn(self, tile: Tile, state: dict[str, Any]) -> tuple[dict[str, Any], list[Handle]]:
        """One iteration from `state`; returns the state after it and the handles carried out."""
        timing = self.timing
        timing.restore(state)
        timing.level = self.level + 1
        timing.pending_in = self.pending_in
        timing.occupy_cpu("issue.loop")
        carried = [
            replace(h, payload=Ready(c, timing.space, timing.level, h.payload.drains))
            for h, c in zip(self.handles, state["carry"], strict=True)
        ]
        result = jax.tree.leaves(
            self.body(tile, jax.tree.unflatten(self.tree, carried)), is_leaf=_is_handle
        )
        timing.level = self.level
        after = timing.state()
        after["carry"] = [
            old if new.payload.clock is None else new.payload.clock
            for old, new in zip(state["carry"], result, strict=True)
        ]
        return after, result

    def discover(self, tiles: Tiles) -> None:
        """Learn what an iteration leaves behind, so that the first starts as the others do."""

        def probe(state: dict[str, Any]) -> None:
            _, result = self.turn(tiles.full(), state)
            drains = [h.payload.drains for h in result]
            self.handles = [
                replace(h, payload=replace(h.payload, drains=d or h.payload.drains))
                for h, d in zip(self.handles, drains, strict=True)
            ]

        entered = self.pending_in
        jax.eval_shape(probe, self.start)
        self.timing.restore(self.start)
        self.pending_in = self.timing.pending_in
        if entered.open or entered.left:
            raise NotImplementedError("an ex_composite is pending before a loop: `tl.wait()` first")

    def changed(self, tiles: Tiles) -> list[bool]:
        """Which clocks an iteration changes: the others are constants of the map."""
        flags: list[bool] = []

        def probe(state: dict[str, Any]) -> None:
            after, _ = self.turn(tiles.full(), state)
            flags[:] = [
                a is not b for a, b in zip(_clocks(after), _clocks(state), strict=True)
            ]

        jax.eval_shape(probe, self.start)
        self.timing.restore(self.start)
        return flags

    def uniform(self, tiles: Tiles) -> dict[str, Any]:
        """The state after the leading, equal tiles."""
        timing, tile = self.timing, tiles.full()
        n = tiles.uniform
        flags = self.changed(tiles)
        start = self.start
        all_clocks = _clocks(start)
        moving = [x for x, moves in zip(all_clocks, flags, strict=True) if moves]
        aux = tuple(start["pending"][name] for name in PENDING)
        shape = jnp.broadcast_shapes(
            n.shape, *(x.shape for x in moving), *(x.shape for x in timing._inputs())
        )

        def step(x: tuple, aux: tuple, offset: Any) -> tuple[tuple, tuple]:
            timing.offset = offset
            moved = iter(x)
            clocks = [
                next(moved) if moves else c + offset
                for c, moves in zip(all_clocks, flags, strict=True)
            ]
            state = _with_clocks(start, clocks)
            state["pending"] = dict(zip(PENDING, aux, strict=True))
            after, _ = self.turn(tile, state)
            timing.offset = None
            out = [x for x, moves in zip(_clocks(after), flags, strict=True) if moves]
            spread = lambda xs: tuple(jnp.broadcast_to(x, shape) for x in xs)  # noqa: E731
            return spread(out), spread(after["pending"][name] for name in PENDING)

        x, aux = iterate(
            step,
            tuple(jnp.broadcast_to(x, shape) for x in moving),
            tuple(jnp.broadcast_to(x, shape) for x in aux),
            n,
        )
        moved = iter(x)
        clocks = [next(moved) if f else c for c, f in zip(all_clocks, flags, strict=True)]
        state = _with_clocks(self.counted(tile, n), clocks)
        state["pending"] = dict(zip(PENDING, aux, strict=True))
        return state

    def counted(self, tile: Tile, n: Array) -> dict[str, Any]:
        """The state with `n` equal iterations counted, clocks aside."""
        after, _ = self.turn(tile, self.start)
        start, state = self.start, dict(self.start)
        state["counts"] = {
            k: start["counts"][k] + n * (after["counts"][k] - start["counts"][k]) for k in COUNTS
        }
        used, peak = start["scratch"]["used"], after["scratch"]["peak"]
        grown = after["scratch"]["used"] - used
        last = peak + jnp.maximum(n - 1.0, 0.0) * grown  # without a scope, tiles pile up
        state["scratch"] = {
            "used": used + n * grown,
            "peak": jnp.where(n > 0, last, start["scratch"]["peak"]),
        }
        return state

    def irregular(self, tiles: Tiles, state: dict[str, Any]) -> Any:
        """The tiles left, one by one; returns what the loop carries out."""
        timing = self.timing
        shape = jnp.broadcast_shapes(
            tiles.length.shape,
            *(x.shape for x in jax.tree.leaves(state)),
            *(x.shape for x in timing._inputs()),
        )

        def one(state: dict[str, Any], i: Array) -> tuple[dict[str, Any], None]:
            tile = tiles.at(tiles.uniform + i)
            after, _ = self.turn(tile, state)
            after = _spread(after, shape, timing.dtype)
            return _where(tile.exists, after, state), None

        steps = jnp.arange(tiles.irregular, dtype=timing.dtype)
        state, _ = jax.lax.scan(one, _spread(state, shape, timing.dtype), steps)
        timing.restore(state)
        out = [
            replace(h, payload=timing.made(c, drains=h.payload.drains))
            for h, c in zip(self.handles, state["carry"], strict=True)
        ]
        return jax.tree.unflatten(self.tree, out)


def _clocks(state: dict[str, Any]) -> list[Array]:
    """The clocks of a loop's state, in a fixed order."""
    names = sorted(state["clocks"])  # mapping over a pytree reorders dictionaries
    return [*(state["clocks"][name] for name in names), *state["scopes"], *state["carry"]]


def _with_clocks(state: dict[str, Any], clocks: list[Array]) -> dict[str, Any]:
    """The state with its clocks replaced, in that order."""
    names, scopes = sorted(state["clocks"]), len(state["scopes"])
    end = len(names) + scopes
    return dict(state) | {
        "clocks": dict(zip(names, clocks[: len(names)], strict=True)),
        "scopes": clocks[len(names) : end],
        "carry": clocks[end:],
    }


# Rules ----------------------------------------------------------------------------------------


def _load(t: Timing, command: Command) -> Ready:
    """DMA for issue + bytes; ready after startup and HBM latency."""
    size = command.operands[0].bytes
    t.count("dma_reads", 1.0)
    t.count("dma_read_bytes", size)
    return t.made(_dma(t, t.issue(command), size))


def _dma(t: Timing, issued: Array, size: Number) -> Array:
    busy = t.costs["dma.issue"] + size * t.costs["hbm.byte"]
    t.count("busy_dma", busy)
    t.clocks["dma"] = t.advance("dma", issued) + busy
    done = t.clocks["dma"] + t.costs["dma.startup"] + t.costs["hbm.latency"]
    t.in_flight(done)
    return done


def _store(t: Timing, command: Command) -> None:
    """As a load, once the value is ready."""
    rows, cols = command.shape
    size = rows * cols * command.details["target"].element_bytes
    t.count("dma_writes", 1.0)
    t.count("dma_write_bytes", size)
    t.advance("stores", _dma(t, t.issue(command, *t.await_operands(command)), size))


def _math(t: Timing, command: Command) -> Ready:
    """Whole passes over the elements; the CPU is held until the end (or the start)."""
    issued = t.issue(command, *t.await_operands(command))
    start = t.advance("math", issued)
    end = t.clocks["math"] = start + _passes(t, command.elements, command.op in EXPONENTIALS)
    if t.machine.math.blocking:
        t.advance("cpu", end)
        return t.made(None)
    t.advance("cpu", start)
    t.in_flight(end)
    return t.made(end)


def _passes(t: Timing, elements: Number, exponential: bool = False) -> Array:
    cost = t.costs["math.exp_pass" if exponential else "math.pass"]
    busy = jnp.ceil(elements / t.numbers["math.lanes"]) * cost
    t.count("math_elements", elements)
    t.count("busy_math", busy)
    return busy


def _dot(t: Timing, command: Command) -> Ready:
    """All sub-tiles on GEMM; the CPU is held until the end."""
    a, b = command.handles
    plan = t.plan(a.shape[0], a.shape[1], b.shape[1])
    start = t.advance("gemm", t.issue(command, *t.await_operands(command)))
    t.clocks["gemm"] = start + plan.subtiles * t.costs["gemm.subtile"]
    t.advance("cpu", t.clocks["gemm"] + t.costs["gemm.writeout"])
    return t.made(None)


def _composite(t: Timing, command: Command) -> Ready:
    """Scheduler, then sub-tiles streamed through DMA and GEMM; a pending P V enters after it."""
    a, b = command.operands
    operands = t.await_operands(command)
    descriptor = t.enqueue(command)
    plan = t.plan(a.shape[0], a.shape[1], b.shape[1])
    if command.out is not None and not t.machine.math.blocking:
        operands.append(t.clocks["math"])
    gemm = t.advance("gemm", descriptor, *operands)
    if isinstance(b, Ref):
        t.streamed_bytes = b.tensor.element_bytes
        costs = t.stream_costs(plan, b)
        dma = t.advance("dma", descriptor)
        depth = t.numbers["gemm.stream_depth"]
        t.clocks["dma"], t.clocks["gemm"] = streamed(dma, gemm, depth=depth, **costs)
    else:
        t.clocks["gemm"] = gemm + plan.subtiles * t.costs["gemm.subtile"]
    stages = len(command.details["epilogue"]) * t.costs["gemm.epilogue"]
    done = t.clocks["gemm"] + t.costs["gemm.writeout"] + stages
    t.in_flight(done)
    t.advance("composites", done)
    t.advance("queue0", done)
    if t.machine.scheduler.queue_depth_composites > 1:
        t.flush(place=1)
    return t.made(done)


def _ex_composite(t: Timing, command: Command) -> tuple[Ready, ...]:
    """V's DMA at once, softmax on MATH, P V pending."""
    s, v, *acc = command.operands
    rows, cols = s.shape
    scores = t.ready(s)
    descriptor = t.enqueue(command)
    t.flush(place=1 if t.machine.scheduler.queue_depth_composites > 1 else 0)
    plan = t.plan(rows, cols, v.shape[1])
    costs = t.stream_costs(plan, v)
    start = t.advance("dma", descriptor, t.clocks["acc1"])
    t.clocks["dma"] = start + costs["n"] * costs["fetch"]
    ready = [None if h.payload.clock is None else _clock(t, h) for h in acc]
    passes = _softmax_passes(t, rows, cols)
    softmax = t.advance("math", descriptor, scores, ready[0], ready[1]) + passes
    rescale = _passes(t, rows * v.shape[1])
    t.clocks["math"] = _latest(softmax, t.clocks["acc0"], ready[2]) + rescale
    t.clocks["pending_p"], t.clocks["pending_v"] = t.clocks["math"], start
    steps = (costs["n"] - 1.0) * jnp.maximum(costs["fetch"], costs["multiply"])
    t.pending = {
        "exists": jnp.ones_like(t.zero),
        "span": costs["fetch"] + costs["latency"] + costs["multiply"] + steps,
        "work": costs["n"] * costs["multiply"],
    }
    t.pending_in = PendingScopes(len(t.scopes), ())
    t.clocks["acc1"], t.clocks["acc0"] = t.clocks["acc0"], t.never
    return tuple(t.made(None, drains=True) for _ in acc)


def _clock(t: Timing, handle: Handle) -> Array | None:
    """When the command that made `handle` ends, ex_composites aside."""
    return t.ready(replace(handle, payload=replace(handle.payload, drains=False)))


def _latest(first: Array, *others: Array | None) -> Array:
    for other in others:
        if other is not None:
            first = jnp.maximum(first, other)
    return first


def _softmax_passes(t: Timing, rows: Number, cols: Number) -> Array:
    """MATH time of the softmax steps: max, subtract, exp, sum; then five on row statistics."""
    wide = _passes(t, rows * cols) * 3.0 + _passes(t, rows * cols, exponential=True)
    narrow = _passes(t, rows) * 4.0 + _passes(t, rows, exponential=True)
    return wide + narrow


def _send(t: Timing, command: Command) -> None:
    """Port for overhead + bytes; arrives after fixed latency and hops."""
    step, mesh = command.details["step"], command.details["mesh"]
    issued = t.issue(command, *t.await_operands(command))
    size = sum(handle.bytes for handle in command.handles)
    link, name = f"{mesh}_link", f"{mesh}.{step.direction}"
    depth = getattr(t.machine, link).queue_depth_messages
    start = t.advance(f"port.{name}", issued, t.clocks[f"taken.{name}.{depth - 1}"])
    busy = t.costs[f"{link}.overhead"]
    busy = busy + size * t.costs[f"{link}.byte"] * command.details["sharers"]
    t.clocks[f"port.{name}"] = start + busy
    t.count("busy_port", busy)
    t.count("sends", 1.0)
    t.count("sent_bytes", size)
    t.in_flight(t.clocks[f"port.{name}"])
    arrival = t.clocks[f"port.{name}"] + t.costs[f"{link}.fixed"]
    arrival = arrival + step.hops * t.costs[f"{link}.hop"]
    for i in range(depth - 1, 0, -1):
        t.clocks[f"taken.{name}.{i}"] = t.clocks[f"taken.{name}.{i - 1}"]
    t.clocks[f"taken.{name}.0"] = t.never
    t.mailbox.setdefault((mesh, step.direction), []).append(arrival)


def _arrival(t: Timing, command: Command) -> Array:
    step, mesh = command.details["step"], command.details["mesh"]
    t.count("recvs", 1.0)
    sent = t.mailbox[mesh, step.direction].pop(0)
    return t.lanes.shift(sent, mesh, step.direction, step.hops)


def _take(t: Timing, command: Command, time: Array) -> None:
    """Tell the sender when its message was taken."""
    step, mesh = command.details["step"], command.details["mesh"]
    for predicate in t.predicates:
        time = jnp.where(predicate, time, -jnp.inf)
    back = t.lanes.shift(time, mesh, step.direction, -step.hops)
    key = f"taken.{mesh}.{step.direction}.0"
    if t.predicates:
        t.taken_updates.append((key, back))
    else:
        t.advance(key, back)


def _recv(t: Timing, command: Command) -> tuple[Ready, ...]:
    """Hold the CPU until the message is there."""
    time = t.advance("cpu", _arrival(t, command))
    _take(t, command, time)
    t.issue(command)
    return tuple(t.made(None) for _ in command.handles)


def _recv_async(t: Timing, command: Command) -> tuple[Ready, ...]:
    """The message is there when it arrives."""
    time = jnp.maximum(t.issue(command), _arrival(t, command))
    _take(t, command, time)
    return tuple(t.made(time) for _ in command.handles)


def _wait(t: Timing, command: Command) -> None:
    """Hold the CPU until the handle is ready, or all composites are."""
    if command.handles:
        t.issue(command, *t.await_operands(command))
    else:
        t.flush()
        t.issue(command, t.clocks["composites"])


RULES: dict[str, Callable[[Timing, Command], Any]] = {
    "load": _load,
    "store": _store,
    "composite": _composite,
    "dot": _dot,
    "ex_composite": _ex_composite,
    **dict.fromkeys(MATH_OPS, _math),
    "send": _send,
    "recv": _recv,
    "recv_async": _recv_async,
    "wait": _wait,
}
