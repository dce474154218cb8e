"""The `tl` context: what a kernel author calls.

Each method checks its operands against the op set and hands a command to the interpreter that
gives it a meaning: real values, times, or a record.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ahbm_jax.errors import AhbmError
from ahbm_jax.machine.cycle import Cycle, cycle
from ahbm_jax.machine.line import Line, Link
from ahbm_jax.machine.number import cdiv, clip, maximum, minimum
from ahbm_jax.machine.topology import (
    CUBE_COLLECTIVES,
    PE_COLLECTIVES,
    Collective,
    Exchange,
    Position,
    Step,
    broadcast,
)
from ahbm_jax.tl.command import Command
from ahbm_jax.tl.handle import Block, Blocks, Handle, Number, Ref, Shape, Tensor, Tile, Tiles
from ahbm_jax.tl.launch import Launch
from ahbm_jax.tl.ops import EPILOGUES, EX_COMPOSITES, FLOAT32_BYTES

LOWEST = -3.4028234663852886e38  # the lowest float32: where a running maximum starts
PLANS = ("reduce", "broadcast")


class KernelError(AhbmError):
    """A kernel used an operation wrongly. The message names the operation and the kernel's line."""


class Interpreter(Protocol):
    """The meaning of a kernel: one rule per operation, and structured control."""

    launch: Launch
    rules: dict[str, Callable[[Any, Command], Any]]

    def loop(self, tiles: Tiles, body: Callable[[Tile, Any], Any], carry: Any) -> Any:
        """`body` for each tile."""
        ...

    def for_each(self, blocks: Blocks, body: Callable[[Block], Any]) -> Any:
        """`body` for each block of query tokens, the rows of the results joined."""
        ...

    def times(self, count: Number, body: Callable[[Number, Any], Any], carry: Any) -> Any:
        """`body`, `count` times."""

    def block(self, blocks: Blocks, index: Number) -> Block:
        """A block of which each rank has another."""
        ...

    def sinks(self) -> Tensor:
        """Sink logits of the rows."""
        ...

    def when(self, predicate: Number, then: Callable[..., Any], operands: tuple) -> Any:
        """`then` where the predicate holds."""
        ...

    def on_pe(self, predicate: Number, then: Callable[..., Any], carry: Any) -> Any:
        """`then` on the one PE of each CUBE where the predicate holds."""
        ...

    def steps(
        self, plan: tuple[Step, ...], mesh: str, body: Callable[[Any, Any], Any], carry: Any
    ) -> Any:
        """`body` for each step of a plan."""
        ...

    def scratch_scope(self, buffers: int) -> AbstractContextManager[None]:
        """Recycle what is allocated inside."""
        ...

    def allocate(self, size_bytes: Number) -> None:
        """Count scratch."""
        ...

    def buffer(self, shape: Shape, like: Tensor | Handle | None = None) -> Any:
        """Payload of an uninitialised buffer, float32 or of the type of `like`."""
        ...

    def position(self, mesh: str) -> Position:
        """This rank's place on a mesh."""
        ...

    def extent(self, mesh: str) -> tuple[int, int]:
        """Most rows and columns of a mesh."""
        ...

    def length(self, tokens: Number) -> Number:
        """Tokens of this rank, of the first `tokens`."""
        ...

    def order(self) -> Number:
        """Position of this rank in the order in which ranks are filled."""
        ...


class Context:
    """`tl`: the operations and structured control of one rank's program.

    Attributes:
      scale: softmax scale.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self.scale = interpreter.launch.softmax_scale

    # Memory ---------------------------------------------------------------------------------

    def ref(
        self,
        tensor: Tensor,
        tile: Tile | Block | None = None,
        *,
        cached: Number = 0,
        active: Number = 1,
    ) -> Ref:
        """Name a tile of K or V, or a block of the queries or the output; moves nothing itself.

        `cached` is the share of its bytes that the cache of a device serves; `active` that of the
        device's units which move data at once, so that they share HBM.
        """
        return Ref(tensor, tile, cached, active)

    def load(self, source: Tensor | Ref, out: Handle | None = None) -> Handle:
        """Copy from HBM to scratch. Does not hold the CPU; awaited where first used (ADR-0062).

        `out` is a buffer to write; otherwise scratch is allocated.
        """
        ref = source if isinstance(source, Ref) else Ref(source, None)
        size = ref.tensor.element_bytes
        if out is None:
            return self._emit("load", ref, shape=ref.shape, element_bytes=size)
        command = Command(op="load", operands=(ref,), shape=ref.shape, element_bytes=size, out=out)
        return Handle(self, ref.shape, size, self._run(command))

    def store(self, target: Tensor | Ref, value: Handle) -> None:
        """Copy a matrix from scratch to HBM, rounded to the storage type of `target`."""
        ref = target if isinstance(target, Ref) else Ref(target, None)
        self._emit("store", value, shape=value.shape, details={"target": ref}, result=False)

    def buffer(self, rows: Number, columns: Number, like: Tensor | Handle | None = None) -> Handle:
        """An uninitialised [rows, columns] buffer that outlives a tile.

        It is float32, or of the storage type of `like`.
        """
        shape, size = (rows, columns), FLOAT32_BYTES if like is None else like.element_bytes
        self._interpreter.allocate(shape[0] * shape[1] * size)
        typed = () if like is None else (like,)
        return Handle(self, shape, size, self._interpreter.buffer(shape, *typed))

    def scratch_scope(self, buffers: int = 1) -> AbstractContextManager[None]:
        """Recycle what is allocated inside (ADR-0063), from `buffers` arenas used in turn.

        Entering waits until no command in flight still uses the arena it will reuse.
        """
        if buffers not in (1, 2):
            raise self._error("scratch_scope", f"`buffers` is {buffers!r}; 1 or 2 are allowed")
        return self._interpreter.scratch_scope(buffers)

    # GEMM -----------------------------------------------------------------------------------

    def composite(
        self,
        kind: str,
        *,
        a: Handle,
        b: Handle | Ref,
        out: Handle | None = None,
        epilogue: Sequence[str] = (),
    ) -> Handle:
        """`a @ b` on GEMM, planned and streamed by the scheduler; does not hold the CPU.

        Args:
          kind: `"gemm"`.
          a: [M, K] in scratch.
          b: [K, N] in scratch, or a reference to HBM that is streamed.
          out: a buffer to write; otherwise scratch is allocated.
          epilogue: stages applied as output tiles are written: `"scale"` (softmax scale).
        """
        self._choose("composite", "kind", kind, ("gemm",))
        for stage in epilogue:
            self._choose("composite", "epilogue", stage, EPILOGUES)
        return self._gemm("composite", a, b, out, {"epilogue": tuple(epilogue)})

    def dot(self, a: Handle, b: Handle) -> Handle:
        """`a @ b`, [M, K] by [K, N], both in scratch; holds the CPU until done."""
        if not isinstance(b, Handle):
            raise self._error("dot", "`b` must be in scratch: load it, or use `tl.composite`")
        return self._gemm("dot", a, b, None, {"epilogue": ()})

    def ex_composite(
        self, kind: str, *, s: Handle, v: Ref, acc: tuple[Handle, Handle, Handle]
    ) -> tuple[Handle, Handle, Handle]:
        """Fold scores `s` [M, N] and values `v` [N, D] into `acc` = (m, l, O); opt2's command.

        Does not hold the CPU. P V enters GEMM after the next composite issued, or at a wait; V is
        fetched whole into one of two buffers. Call `tl.wait()` before reading the accumulator.
        """
        self._choose("ex_composite", "kind", kind, EX_COMPOSITES)
        self._match("ex_composite", s.shape[1], v.shape[0], "columns of `s`", "rows of `v`")
        rows, cols = s.shape
        tile_bytes = v.tensor.element_bytes * v.tile.extent * v.shape[1] if v.tile else v.bytes
        self._interpreter.allocate(rows * cols * v.tensor.element_bytes + tile_bytes)
        command = Command(op="ex_composite", operands=(s, v, *acc), shape=acc[2].shape)
        payloads = self._run(command)
        return tuple(  # type: ignore[return-value]
            Handle(self, old.shape, FLOAT32_BYTES, new)
            for old, new in zip(acc, payloads, strict=True)
        )

    # MATH -----------------------------------------------------------------------------------

    def full(self, rows: Number, columns: Number, value: float) -> Handle:
        """A [rows, columns] float32 matrix of `value`."""
        return self._emit("full", shape=(rows, columns), details={"value": value})

    def max(self, x: Handle) -> Handle:
        """Maximum of each row: [M, N] to [M, 1]."""
        return self._emit("max", x, shape=(x.shape[0], 1))

    def sum(self, x: Handle) -> Handle:
        """Sum of each row: [M, N] to [M, 1]."""
        return self._emit("sum", x, shape=(x.shape[0], 1))

    def exp(self, x: Handle) -> Handle:
        """Exponential of each element."""
        return self._emit("exp", x, shape=x.shape)

    def tanh(self, x: Handle) -> Handle:
        """Hyperbolic tangent of each element."""
        return self._emit("tanh", x, shape=x.shape)

    def maximum(self, a: Handle, b: Handle | float) -> Handle:
        """Larger of two, element by element; a [M, 1] operand repeats along columns."""
        return self._elementwise("maximum", a, b)

    def add(self, a: Handle, b: Handle | float) -> Handle:
        """a + b; a [M, 1] operand repeats along columns."""
        return self._elementwise("add", a, b)

    def sub(self, a: Handle, b: Handle | float) -> Handle:
        """a - b; a [M, 1] operand repeats along columns."""
        return self._elementwise("sub", a, b)

    def mul(self, a: Handle, b: Handle | float) -> Handle:
        """a * b; a [M, 1] operand repeats along columns."""
        return self._elementwise("mul", a, b)

    def div(self, a: Handle, b: Handle | float) -> Handle:
        """a / b; a [M, 1] operand repeats along columns."""
        return self._elementwise("div", a, b)

    def broadcast(self, x: Handle, columns: Number) -> Handle:
        """Repeat a column: [M, 1] to [M, columns] (ADR-0061)."""
        if not (isinstance(x.shape[1], int) and x.shape[1] == 1):
            raise self._error("broadcast", f"`x` has {x.shape[1]} columns; 1 is allowed")
        return self._emit("broadcast", x, shape=(x.shape[0], columns))

    def mask(self, scores: Handle, tile: Tile) -> Handle:
        """-inf where a query row must not see a token of `tile`: its future, or past a window."""
        return self._emit("mask", scores, shape=scores.shape, details={"tile": tile})

    # Messages -------------------------------------------------------------------------------

    def send(
        self, step: Exchange, mesh: str, value: Handle | Sequence[Handle], *, sharers: Number = 1
    ) -> None:
        """Send a matrix, or several packed in one message, along `step` on mesh `pe` or `cube`.

        `sharers` PEs that use a CUBE-to-CUBE link at once get 1 / sharers of it each.
        """
        values = (value,) if isinstance(value, Handle) else tuple(value)
        details = {"step": step, "mesh": mesh, "sharers": sharers}
        self._run(Command(op="send", operands=values, details=details))

    def recv(self, step: Exchange, mesh: str, like: Handle | Sequence[Handle]) -> Any:
        """Receive what the neighbour sent in `step`, shaped as `like`; holds the CPU till there."""
        return self._receive("recv", step, mesh, like, None)

    def recv_async(
        self,
        step: Exchange,
        mesh: str,
        like: Handle | Sequence[Handle | Ref],
        out: Sequence[Handle] | None = None,
    ) -> Any:
        """As `recv`, without holding the CPU; awaited where first used.

        `like` may be references to what the neighbour has in HBM. `out` are buffers to write;
        otherwise scratch is allocated. Nobody waits for what is still to read them: see that
        sends from them have left, for instance by a scope around each turn of a ring.
        """
        return self._receive("recv_async", step, mesh, like, out)

    def wait(self, handle: Handle | None = None) -> None:
        """Hold the CPU until `handle` is ready, or all composites are."""
        operands = () if handle is None else (handle,)
        self._run(Command(op="wait", operands=operands))

    # Devices ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Launch: what comes before the first command of a program on a device's units."""
        self._run(Command(op="start"))

    def join(self) -> None:
        """Wait until all units have stored what they had to, and start what needs it."""
        self._run(Command(op="join"))

    def pieces(self, count: Number) -> Tiles:
        """`count` equal pieces of work, for `tl.loop`."""
        return Tiles(
            start=0, all_start=0, all_end=count, end=count, extent=1, queries=self.queries()
        )

    # Structured control -----------------------------------------------------------------------

    def queries(self) -> Block:
        """All query tokens of the request as one block."""
        launch = self._interpreter.launch
        tokens = launch.query_tokens
        return Blocks(tokens, tokens, launch.query_start).at(0, full=True)

    def blocks(self, extent: Number | None = None) -> Blocks:
        """The query tokens in blocks of `extent` (default: the launch's)."""
        launch = self._interpreter.launch
        size = launch.query_block_tokens if extent is None else extent
        return Blocks(launch.query_tokens, size, launch.query_start)

    def rounds(self) -> Blocks:
        """The query tokens spread over the PEs of a CUBE: in each round, a block for each PE.

        Blocks are as large as the launch's, or smaller where that leaves work to all PEs.
        """
        launch, pe = self._interpreter.launch, self.position("pe")
        extent = minimum(launch.query_block_tokens, cdiv(launch.query_tokens, pe.count))
        return Blocks(
            launch.query_tokens, extent, launch.query_start, share=pe.index, sharers=pe.count
        )

    def for_each(self, blocks: Blocks, body: Callable[[Block], Any]) -> Any:
        """`body(block)` for each block; returns the results, each block's rows at their place."""
        return self._interpreter.for_each(blocks, body)

    def tiles(
        self,
        tensor: Tensor,
        queries: Block | None = None,
        extent: Number | None = None,
        *,
        of: tuple[Number, Number] | None = None,
    ) -> Tiles:
        """What `queries` (default: all) look at of this rank's tokens of `tensor`, in tiles.

        A row sees the tokens up to its own position; with a window, the last of those alone. `of`
        names another rank, (CUBE, PE): the tiles are of what that one holds.
        """
        if of is None:
            length = self._interpreter.length
        else:
            length = partial(self._interpreter.launch.placement.length, *of)
        return self._tiles(tensor, queries, extent, length, length, of)

    def chunks(self, tensor: Tensor, queries: Block, extent: Number | None = None) -> Tiles:
        """As `tiles`, of all ranks of the group at once: tile n is tile n of every rank."""
        placement = self._interpreter.launch.placement
        all_ranks = self._tiles(tensor, queries, extent, placement.fewest, placement.most, None)
        return replace(all_ranks, own=self.tiles(tensor, queries, extent))

    def _tiles(
        self,
        tensor: Tensor,
        queries: Block | None,
        extent: Number | None,
        fewest: Callable[[Number], Number],
        most: Callable[[Number], Number],
        owner: tuple[Number, Number] | None,
    ) -> Tiles:
        launch = self._interpreter.launch
        if tensor.token_axis is None or tensor.name in ("q", "output"):
            raise self._error("tiles", f"`{tensor.name}` has no KV tokens to cut")
        block = self.queries() if queries is None else queries
        single = isinstance(block.size, int) and block.size == 1
        upto = clip(block.position + 1, 0, launch.context_tokens)
        upto_last = upto
        if not single:
            upto_last = clip(block.position + block.size, 0, launch.context_tokens)
        start = all_start = 0
        if launch.window is not None:
            start = fewest(maximum(block.position + 1 - launch.window, 0))
            last = block.position + block.size - launch.window
            all_start = start if single and fewest is most else most(maximum(last, 0))
        all_end = fewest(upto)
        return Tiles(
            start=start,
            all_start=all_start,
            all_end=all_end,
            end=all_end if single and fewest is most else most(upto_last),
            extent=launch.tile_tokens if extent is None else extent,
            queries=block,
            owner=owner,
        )

    def own_queries(self) -> Block:
        """This rank's part of the query tokens: ceil(T / R) each, by CUBE, then by PE."""
        placement = self.launch.placement
        blocks = self.blocks(cdiv(self.launch.query_tokens, placement.ranks))
        rank = self.program_id(1) * placement.pes + self.program_id(0)
        return self._interpreter.block(blocks, rank)

    def shard(self, tensor: Tensor, queries: Block, owner: tuple[Number, Number]) -> Tile:
        """All slots of the shard of rank `owner`, (CUBE, PE), as one tile that is masked."""
        slots = self.launch.placement.shard_tokens
        tiles = self.tiles(tensor, queries, slots, of=owner)
        return replace(tiles.full(), masked=True, one_of_many=False)

    def whole(self, tensor: Tensor, queries: Block | None = None) -> Tile:
        """All of this rank's tokens as one tile."""
        slots = self._interpreter.launch.placement.shard_tokens
        return self.tiles(tensor, queries, slots).at(0)

    @property
    def sinks(self) -> Tensor | None:
        """Sink logits of the rows, [M, 1] in HBM, or None."""
        return self._interpreter.sinks() if self._interpreter.launch.sinks else None

    def holds_first(self) -> Number:
        """Whether this rank is the first in the order in which tokens are placed."""
        return self._interpreter.order() == 0

    def loop(self, tiles: Tiles, body: Callable[[Tile, Any], Any], carry: Any) -> Any:
        """`carry = body(tile, carry)` for each tile; what is carried keeps its place in scratch."""
        return self._interpreter.loop(tiles, body, carry)

    def times(self, count: Number, body: Callable[[Number, Any], Any], carry: Any) -> Any:
        """`carry = body(i, carry)` for i = 0 to count - 1."""
        return self._interpreter.times(count, body, carry)

    def when(self, predicate: Number, then: Callable[..., Any], *operands: Any) -> Any:
        """`then(*operands)` on ranks where `predicate` holds; elsewhere `operands` are kept.

        `then` returns what replaces its operands (one, or a tuple of several). Without operands
        the result is defined only where the predicate holds.
        """
        return self._interpreter.when(predicate, then, operands)

    def on_pe(self, predicate: Number, then: Callable[[Any], Any], carry: Any) -> Any:
        """`then(carry)` on the one PE of each CUBE where `predicate` holds; others keep `carry`."""
        return self._interpreter.on_pe(predicate, then, carry)

    def position(self, mesh: str) -> Position:
        """This rank's place: `"pe"` on its CUBE's PE mesh, `"cube"` in the group's rectangle."""
        return self._interpreter.position(mesh)

    def plan(self, mesh: str, name: str = "reduce") -> tuple[Step, ...]:
        """Steps on mesh `"pe"` (level 2) or `"cube"` (level 1).

        Args:
          mesh: the mesh.
          name: `"reduce"` for those of the launch's reduce, `"broadcast"` for the way back from
            its root to all.
        """
        self._choose("plan", "name", name, PLANS)
        reduce = self._collective(mesh).steps(*self._interpreter.extent(mesh))
        return reduce if name == "reduce" else broadcast(reduce)

    def steps(
        self, mesh: str, body: Callable[[Any, Any], Any], carry: Any, plan: str = "reduce"
    ) -> Any:
        """`carry = body(step, carry)` for each step of a plan on `mesh`."""
        return self._interpreter.steps(self.plan(mesh, plan), mesh, body, carry)

    def line(self) -> tuple[Line, list[Link]]:
        """The line through all ranks of the group, and this rank's links along it."""
        line = Line(self.position("cube"), self.position("pe"))
        return line, line.links(self._interpreter.extent("cube"), self._interpreter.extent("pe"))

    def onward(self, mesh: str) -> Exchange:
        """The step in which each rank sends to the next one of the cycle through `mesh`."""
        return self._cycle(mesh)

    def upstream(self, mesh: str, turns: Number) -> Number:
        """Number of the PE or CUBE whose data is here after so many turns of the cycle."""
        return self._cycle(mesh).before(self.position(mesh), turns)

    def _cycle(self, mesh: str) -> Cycle:
        return cycle(*self._interpreter.extent(mesh))

    def is_root(self, mesh: str) -> Number:
        """Whether this rank is where the launch's reduce on `mesh` ends."""
        return self._collective(mesh).root(self.position(mesh), self._interpreter.extent(mesh)[1])

    def _collective(self, mesh: str) -> Collective:
        launch = self._interpreter.launch
        if mesh == "pe":
            return PE_COLLECTIVES[launch.level2]
        return CUBE_COLLECTIVES[launch.level1]

    def program_id(self, axis: int) -> Number:
        """PE number (axis 0) or CUBE number in the group (axis 1)."""
        return self.position("pe" if axis == 0 else "cube").index

    @property
    def launch(self) -> Launch:
        """The launch arguments."""
        return self._interpreter.launch

    # Checks -----------------------------------------------------------------------------------

    def _gemm(
        self, op: str, a: Handle, b: Handle | Ref, out: Handle | None, details: dict
    ) -> Handle:
        self._match(op, a.shape[1], b.shape[0], "columns of `a`", "rows of `b`")
        shape = (a.shape[0], b.shape[1])
        if out is None:
            return self._emit(op, a, b, shape=shape, details=details)
        payload = self._run(Command(op=op, operands=(a, b), shape=shape, out=out, details=details))
        return Handle(self, shape, FLOAT32_BYTES, payload)

    def _elementwise(self, op: str, a: Handle, b: Handle | float) -> Handle:
        if not isinstance(b, Handle):
            return self._emit(op, a, b, shape=a.shape)
        shape = tuple(
            self._broadcast(op, left, right) for left, right in zip(a.shape, b.shape, strict=True)
        )
        return self._emit(op, a, b, shape=(shape[0], shape[1]))

    def _broadcast(self, op: str, left: Number, right: Number) -> Number:
        if isinstance(left, int) and left == 1:
            return right
        if isinstance(right, int) and right == 1:
            return left
        self._match(op, left, right, "size of `a`", "size of `b`")
        return left

    def _match(self, op: str, left: Number, right: Number, what: str, other: str) -> None:
        if isinstance(left, int) and isinstance(right, int) and left != right:
            raise self._error(op, f"{what} ({left}) and {other} ({right}) must be equal")

    def _choose(self, op: str, what: str, got: str, allowed: Sequence[str]) -> None:
        if got not in allowed:
            raise self._error(op, f"`{what}` is {got!r}; allowed: {', '.join(allowed)}")

    def _error(self, op: str, problem: str) -> KernelError:
        package = str(Path(__file__).parent)
        frame = next((f for f in inspect.stack() if not f.filename.startswith(package)), None)
        where = f" at {frame.filename}:{frame.lineno}" if frame else ""
        return KernelError(f"`tl.{op}`{where}: {problem}")

    def _receive(self, op: str, step: Exchange, mesh: str, like: Any, out: Any) -> Any:
        likes = [
            Handle(self, x.shape, x.tensor.element_bytes, None) if isinstance(x, Ref) else x
            for x in ((like,) if isinstance(like, Handle) else like)
        ]
        if out is None:
            for handle in likes:
                self._interpreter.allocate(handle.bytes)
        details = {"step": step, "mesh": mesh, "out": out}
        command = Command(op=op, operands=tuple(likes), details=details)
        payloads = self._run(command)
        handles = tuple(
            Handle(self, old.shape, old.element_bytes, new)
            for old, new in zip(likes, payloads, strict=True)
        )
        return handles[0] if isinstance(like, Handle) else handles

    def _emit(
        self,
        op: str,
        *operands: Handle | Ref | float,
        shape: Shape,
        element_bytes: int = FLOAT32_BYTES,
        details: dict[str, Any] | None = None,
        result: bool = True,
    ) -> Any:
        for operand in operands:
            if not isinstance(operand, (Handle, Ref, int, float)) and not hasattr(operand, "dtype"):
                raise self._error(op, f"got a {type(operand).__name__}; pass a handle or a number")
        if result:
            self._interpreter.allocate(shape[0] * shape[1] * element_bytes)
        command = Command(
            op=op,
            operands=operands,
            shape=shape,
            element_bytes=element_bytes,
            details=details or {},
        )
        payload = self._run(command)
        return Handle(self, shape, element_bytes, payload) if result else None

    def _run(self, command: Command) -> Any:
        rule = self._interpreter.rules.get(command.op)
        if rule is None:
            kind = type(self._interpreter).__name__
            raise NotImplementedError(f"{kind} has no rule for `tl.{command.op}`")
        return rule(self._interpreter, command)


__all__ = ["LOWEST", "Context", "Interpreter", "KernelError"]
