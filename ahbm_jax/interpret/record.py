"""The record interpreter: what each rank is told to do, command by command.

Every rank's program runs with concrete integers and plain Python control, so the record is what
a driver would see: skipped tiles leave no trace, and each message has one sender and one receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ahbm_jax.machine.params import Machine
from ahbm_jax.machine.topology import Exchange, Position, Step
from ahbm_jax.tl.command import Command
from ahbm_jax.tl.gemm_plan import subtile_bytes
from ahbm_jax.tl.handle import Block, Blocks, Handle, Ref, Shape, Tensor, Tile, Tiles
from ahbm_jax.tl.launch import Launch, launch_tensors, sink_tensor
from ahbm_jax.tl.ops import MATH_OPS
from ahbm_jax.tl.program import Kernel, run_program
from ahbm_jax.tl.scratch import Scratch

Rank = tuple[int, int]  # (CUBE of the group, PE of the CUBE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message: from `source` to `target`, `hops` along `direction` of mesh `mesh`.

    With a `turn` (direction, hops) the last of them go another route.
    """

    mesh: str
    direction: str
    source: Rank
    target: Rank
    hops: int
    size_bytes: int
    sharers: int
    turn: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One command of one rank, in program order.

    `op` is of the op set, or a control mark: `loop` (an iteration begins), `scope_enter`,
    `scope_exit`. Buffers are numbered per rank; `reads` and `writes` name them. Sizes are those
    of the command itself: `rows` x `cols` of its result, `inner` the contraction of a GEMM.
    `tensor` and `tile` say what is moved or streamed: a tensor in HBM, and which tile of the shard
    (else the tile of the loop around it; -1 outside of one).
    """

    op: str
    engine: str
    tensor: str = ""
    tile: int = -1
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    rows: int = 0
    cols: int = 0
    inner: int = 0
    elements: int = 0
    hbm_bytes: int = 0  # of one pass over the operand in HBM
    cached: float = 0.0  # share of them that the cache of a device serves
    active: float = 1.0  # share of the device's units that move data at once
    streams: bool = False  # b is streamed from HBM
    into_buffer: bool = False  # writes a buffer that was there before
    epilogue: tuple[str, ...] = ()
    message: Message | None = None
    depth: int = 0  # of a scope
    buffers: int = 0  # arenas of a scope
    scratch_bytes: int = 0  # allocated when it is issued


@dataclass(slots=True)
class RankRecord:
    """All commands of one rank, and the scratch they need."""

    rank: Rank
    commands: list[Recorded] = field(default_factory=list)
    scratch_peak_bytes: int = 0


class Record:
    """Interpreter of one rank's program. A handle's payload is the number of its buffer."""

    def __init__(self, machine: Machine, launch: Launch, rank: Rank) -> None:
        self.machine = machine
        self.launch = launch
        self.out = RankRecord(rank=rank)
        self.scratch = Scratch(0, max)
        self._buffers = 0
        self._depth = 0
        self._tile = -1  # of the loop being run
        self._streamed_bytes: int | None = None  # element size of what composites stream
        self.rules = RULES

    # Placement and tensors --------------------------------------------------------------------

    def tensors(self) -> tuple[Tensor, ...]:
        """q, k (transposed), v and output of this rank."""
        return launch_tensors(self.launch)

    def position(self, mesh: str) -> Position:
        """This rank's place on a mesh."""
        cube, pe = self.out.rank
        return cube_position(self.launch, cube) if mesh == "cube" else pe_position(self, pe)

    def extent(self, mesh: str) -> tuple[int, int]:
        """Most rows and columns of a mesh."""
        return self.machine.grid.extent(mesh)

    def length(self, tokens: int) -> int:
        """Tokens of this rank, of the first `tokens`."""
        return int(self.launch.placement.length(*self.out.rank, tokens))

    def order(self) -> int:
        """Position of this rank in the order in which ranks are filled."""
        return int(self.launch.placement.order(*self.out.rank))

    # Scratch ----------------------------------------------------------------------------------

    def allocate(self, size_bytes: int) -> None:
        """Count scratch."""
        self.scratch.allocate(size_bytes)

    def buffer(self, shape: Shape, like: Tensor | Handle | None = None) -> int:
        """A new buffer."""
        self._buffers += 1
        return self._buffers

    @contextmanager
    def scratch_scope(self, buffers: int) -> Iterator[None]:
        """Mark where a scope begins and ends."""
        self._mark("scope_enter", depth=self._depth, buffers=buffers)
        self._depth += 1
        with self.scratch.scope(buffers):
            yield
        self._depth -= 1
        self._mark("scope_exit", depth=self._depth, buffers=buffers)

    # Control ----------------------------------------------------------------------------------

    def loop(self, tiles: Tiles, body: Callable[[Tile, Any], Any], carry: Any) -> Any:
        """One pass per tile."""
        for index in range(tiles.first, tiles.count):
            self._tile = index
            self._mark("loop")
            carry = body(tiles.at(index), carry)
        self._tile = -1
        return carry

    def for_each(self, blocks: Blocks, body: Callable[[Block], Any]) -> Any:
        """One pass per block; the results are the last one's."""
        result = None
        for index in range(blocks.count):
            self._mark("loop")
            result = body(blocks.at(index))
        return result

    def times(self, count: int, body: Callable[[int, Any], Any], carry: Any) -> Any:
        """One pass per turn."""
        for index in range(count):
            self._mark("loop")
            carry = body(index, carry)
        return carry

    def block(self, blocks: Blocks, index: int) -> Block:
        """This rank's block."""
        return blocks.at(index)

    def sinks(self) -> Tensor:
        """Sink logits of the rows."""
        return sink_tensor(self.launch)

    def steps(
        self, plan: tuple[Step, ...], mesh: str, body: Callable[[Step, Any], Any], carry: Any
    ) -> Any:
        """One pass per step of the plan."""
        for step in plan:
            carry = body(step, carry)
        return carry

    def repeat(self, count: int, body: Callable[[], None], launch: Launch) -> None:
        """`body` for each request of `launch`."""
        self.launch = launch
        for _ in range(count):
            self._mark("loop")
            body()

    def when(self, predicate: bool, then: Callable[..., Any], operands: tuple) -> Any:
        """`then` if the predicate holds on this rank."""
        if predicate:
            return then(*operands)
        return operands[0] if len(operands) == 1 else operands

    def on_pe(self, predicate: bool, then: Callable[[Any], Any], carry: Any) -> Any:
        """`then` on the PE where the predicate holds."""
        return then(carry) if predicate else carry

    # Rules ------------------------------------------------------------------------------------

    def _mark(self, op: str, depth: int = 0, buffers: int = 0) -> None:
        mark = Recorded(op=op, engine="cpu", tile=self._tile, depth=depth, buffers=buffers)
        self.out.commands.append(replace(mark, scratch_bytes=int(self.scratch.used)))

    def emit(self, command: Command, **sizes: Any) -> int:
        """Append a command; returns the buffer it writes."""
        written = command.out.payload if command.out is not None else self.buffer(command.shape)
        source = next((x for x in command.operands if isinstance(x, Ref)), None)
        tile = None if source is None else source.tile
        recorded = Recorded(
            op=command.op,
            engine=command.spec.engine,
            tensor="" if source is None else source.tensor.name,
            tile=int(tile.index) if isinstance(tile, Tile) else self._tile,
            reads=tuple(handle.payload for handle in command.handles),
            rows=int(command.shape[0]),
            cols=int(command.shape[1]),
            writes=(written,),
            into_buffer=command.out is not None,
            scratch_bytes=int(self.scratch.used),
        )
        self.out.commands.append(replace(recorded, **sizes))
        return written

    @property
    def scratch_peak_bytes(self) -> int:
        """Scratch needed, with the windows of the composites in flight if any streams."""
        if self._streamed_bytes is None:
            return int(self.scratch.peak)
        gemm, queue = self.machine.gemm, self.machine.scheduler.queue_depth_composites
        subtile = subtile_bytes(gemm, self._streamed_bytes)
        return int(self.scratch.peak + queue * gemm.stream_depth_subtiles * subtile)

    def message(
        self, step: Exchange, mesh: str, outgoing: bool, size: int, sharers: int
    ) -> Message:
        """The message of this rank in `step`, as its sender or its receiver."""
        at = self.position(mesh)
        [(route, _)] = step.routes(at, outgoing=outgoing)
        sign = 1 if outgoing else -1
        there = at.moved(*(sign * x for x in route.offset)).index
        cube, pe = self.out.rank
        peer = (cube, there) if mesh == "pe" else (there, pe)
        source, target = ((cube, pe), peer) if outgoing else (peer, (cube, pe))
        return Message(
            mesh=mesh,
            direction=route.direction,
            source=source,
            target=target,
            hops=route.distance,
            turn=route.turn,
            size_bytes=size,
            sharers=sharers,
        )


def cube_position(launch: Launch, cube: int) -> Position:
    """Place of a CUBE in its group's rectangle."""
    row, col = divmod(cube, launch.cube_cols)
    count = launch.cube_rows * launch.cube_cols
    return Position(row=row, col=col, rows=launch.cube_rows, cols=launch.cube_cols, count=count)


def pe_position(interpreter: Any, pe: int) -> Position:
    """Place of a PE on its CUBE's mesh."""
    rows, cols = interpreter.extent("pe")
    row, col = divmod(pe, cols)
    pes = interpreter.launch.placement.pes
    return Position(row=row, col=col, rows=rows, cols=cols, count=pes)


def _load(self: Record, command: Command) -> int:
    """DMA read."""
    ref = command.operands[0]
    return self.emit(command, hbm_bytes=int(ref.bytes), **_sharing(ref))


def _sharing(ref: Ref) -> dict[str, float]:
    """How bytes of a device come."""
    return {"cached": float(ref.cached), "active": float(ref.active)}


def _store(self: Record, command: Command) -> None:
    """DMA write."""
    target, (rows, cols) = command.details["target"], command.shape
    tensor = target.tensor
    sizes = {"hbm_bytes": int(rows * cols * tensor.element_bytes), "tensor": tensor.name}
    self.emit(command, writes=(), **_sharing(target), **sizes)


def _gemm(self: Record, command: Command) -> int:
    """GEMM, streaming `b` where it is in HBM."""
    a, b = command.operands
    sizes = {"inner": int(a.shape[1]), "epilogue": command.details["epilogue"]}
    if isinstance(b, Ref):
        self._streamed_bytes = b.tensor.element_bytes
        sizes |= {"streams": True, "hbm_bytes": int(b.bytes)} | _sharing(b)
    return self.emit(command, **sizes)


def _ex_composite(self: Record, command: Command) -> tuple[int, int, int]:
    """Softmax and P V into the accumulator's buffers."""
    s, v, *acc = command.operands
    accumulators = tuple(handle.payload for handle in acc)
    self.emit(
        command,
        inner=int(s.shape[1]),
        hbm_bytes=int(v.bytes),
        streams=True,
        writes=accumulators,
        into_buffer=True,
    )
    return accumulators


def _math(self: Record, command: Command) -> int:
    """One pass or more through MATH."""
    return self.emit(command, elements=int(command.elements))


def _send(self: Record, command: Command) -> None:
    """A message from this rank."""
    size = sum(int(handle.bytes) for handle in command.handles)
    details = command.details
    message = self.message(details["step"], details["mesh"], True, size, details["sharers"])
    self.emit(command, message=message, writes=())


def _receive(self: Record, command: Command) -> tuple[int, ...]:
    """A message to this rank, into new buffers or those that it is given."""
    size = sum(int(handle.bytes) for handle in command.handles)
    details, out = command.details, command.details["out"]
    message = self.message(details["step"], details["mesh"], False, size, 1)
    if out is None:
        buffers = tuple(self.buffer(handle.shape) for handle in command.handles)
    else:
        buffers = tuple(handle.payload for handle in out)
    self.emit(command, message=message, reads=(), writes=buffers, into_buffer=out is not None)
    return buffers


def _control(self: Record, command: Command) -> None:
    """The CPU's affair alone."""
    self.emit(command, writes=())


RULES: dict[str, Callable[[Record, Command], Any]] = {
    "load": _load,
    "store": _store,
    "composite": _gemm,
    "dot": _gemm,
    "ex_composite": _ex_composite,
    **dict.fromkeys(MATH_OPS, _math),
    "send": _send,
    "recv": _receive,
    "recv_async": _receive,
    "wait": _control,
    "start": _control,
    "join": _control,
}


def record(kernel: Kernel, machine: Machine, launch: Launch) -> list[RankRecord]:
    """Commands of every rank of a launch with concrete integers, rank by rank (CUBE-major)."""
    records = []
    for cube in range(launch.cube_rows * launch.cube_cols):
        for pe in range(launch.placement.pes):
            interpreter = Record(machine, launch, (cube, pe))
            run_program(interpreter, kernel)
            interpreter.out.scratch_peak_bytes = interpreter.scratch_peak_bytes
            records.append(interpreter.out)
    return records


def message_depth(records: list[RankRecord]) -> int:
    """Longest chain of messages, each sent after the one before it was received: reduce rounds.

    What came by `recv_async` is received where it is first read.
    """
    depth = {entry.rank: 0 for entry in records}
    position = dict.fromkeys(depth, 0)
    sent: dict[tuple[Rank, Rank], list[int]] = {}
    unread: dict[tuple[Rank, int], int] = {}  # depth of what is in a buffer
    programs = {entry.rank: entry.commands for entry in records}
    moved = True
    while moved:
        moved = False
        for rank, commands in programs.items():
            while position[rank] < len(commands):
                command = commands[position[rank]]
                for buffer in command.reads:
                    depth[rank] = max(depth[rank], unread.pop((rank, buffer), 0))
                if command.message is not None:
                    channel = (command.message.source, command.message.target)
                    if command.op == "send":
                        sent.setdefault(channel, []).append(depth[rank] + 1)
                    elif not sent.get(channel):
                        break
                    else:
                        came = sent[channel].pop(0)
                        unread |= {(rank, buffer): came for buffer in command.writes}
                        if command.op == "recv":
                            depth[rank] = max(depth[rank], came)
                position[rank] += 1
                moved = True
    return max(depth.values())
