"""The values interpreter: real arrays, one SPMD body per rank over axes `cube` and `pe`.

The body runs under nested `jax.vmap(axis_name=...)` or under `jax.shard_map`; both use the same
full-permutation `ppermute` along one axis, whose result receivers alone keep. A tile keeps its
full width in an array: columns past its tokens are NaN until masked, so that forgetting the mask
shows; rows of K and V past the shard's tokens read as 0, whatever the cache holds there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ahbm_jax.errors import UsageError
from ahbm_jax.machine.number import cdiv, floordiv, mod
from ahbm_jax.machine.topology import Exchange, Position, Step
from ahbm_jax.tl.command import Command
from ahbm_jax.tl.handle import Block, Blocks, Handle, Ref, Shape, Tensor, Tile, Tiles
from ahbm_jax.tl.launch import Launch, launch_tensors, sink_tensor
from ahbm_jax.tl.ops import MATH_OPS

Array = jax.Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """A rank's data, in storage type: q [M, D], k transposed [D, slots] and v [slots, Dv].

    `sinks` are float32 logits of the rows, [M, 1], or None.
    """

    q: Array
    k: Array
    v: Array
    sinks: Array | None = None


class Stored(NamedTuple):
    """Rows of the output, and which of them this rank wrote ([M, 1]); the others are NaN."""

    rows: Array
    written: Array


class Values:
    """Interpreter of one rank's program inside an SPMD body. A handle's payload is an array.

    Args:
      launch: the request; C, P, the tile and the group's rectangle are integers.
      operands: this rank's data.
      pe_mesh: rows and columns of the PE mesh that P PEs fill.
      exact_p: keep P in float32 for P V, rather than rounded to the storage type.
    """

    def __init__(
        self, launch: Launch, operands: Operands, pe_mesh: tuple[int, int], *, exact_p: bool
    ) -> None:
        self.launch, self.operands, self.pe_mesh = launch, operands, pe_mesh
        self.exact_p = exact_p
        self.cube, self.pe = jax.lax.axis_index("cube"), jax.lax.axis_index("pe")
        self.mailbox: dict[tuple[str, Any], list[tuple[Array, ...]]] = {}
        self.stored: Stored | None = None
        self.predicates: list[Any] = []
        self.rules = RULES

    def tensors(self) -> tuple[Tensor, ...]:
        """q, k (transposed), v and output of this rank."""
        data = self.operands
        return launch_tensors(self.launch, q=data.q, k=data.k, v=data.v)

    def position(self, mesh: str) -> Position:
        """This rank's place on a mesh."""
        if mesh == "cube":
            rows, cols, index = self.launch.cube_rows, self.launch.cube_cols, self.cube
            count = rows * cols
        else:
            (rows, cols), index, count = self.pe_mesh, self.pe, self.launch.placement.pes
        row, col = floordiv(index, cols), mod(index, cols)
        return Position(row=row, col=col, rows=rows, cols=cols, count=count)

    def extent(self, mesh: str) -> tuple[int, int]:
        """Rows and columns of a mesh."""
        return self.pe_mesh if mesh == "pe" else (self.launch.cube_rows, self.launch.cube_cols)

    def length(self, tokens: Any) -> Any:
        """Tokens of this rank, of the first `tokens`."""
        return self.launch.placement.length(self.cube, self.pe, tokens)

    def order(self) -> Any:
        """Position of this rank in the order in which ranks are filled."""
        return self.launch.placement.order(self.cube, self.pe)

    def allocate(self, size_bytes: Any) -> None:
        """Scratch has no bound here."""

    def buffer(self, shape: Shape, like: Tensor | Handle | None = None) -> Array:
        """Uninitialised: NaN; but 0 where K or V will be, which ranks that skip a tile never get.

        What is computed from it is dropped, and NaN would not be dropped from its gradient.
        """
        if like is None:
            return jnp.full(shape, jnp.nan, jnp.float32)
        return jnp.zeros(shape, (like.payload if isinstance(like, Handle) else like.data).dtype)

    def scratch_scope(self, buffers: int) -> AbstractContextManager[None]:
        """Nothing to recycle."""
        return nullcontext()

    # Control ----------------------------------------------------------------------------------

    def loop(self, tiles: Tiles, body: Callable[[Tile, Any], Any], carry: Any) -> Any:
        """As many iterations as the fullest rank needs; a rank keeps those of its own tiles."""
        count = cdiv(self.launch.placement.shard_tokens, tiles.extent)

        def tile_at(index: Array) -> Tile:
            return tiles.at(tiles.first + index)

        return _scan(tile_at, jnp.arange(count), body, carry, lambda tile: tile.exists)

    def for_each(self, blocks: Blocks, body: Callable[[Block], Any]) -> Any:
        """One pass per block; rows of the results and of what is stored are put in their place."""
        shapes: list[Any] = []

        def one(_: None, index: Array) -> tuple[None, Any]:
            block = blocks.at(index, full=True)  # rows past the last query are cut
            result = body(block)
            handles, tree = jax.tree.flatten(result, is_leaf=_is_handle)
            shapes[:] = [handles, tree]
            stored, self.stored = self.stored, None
            return None, ([handle.payload for handle in handles], stored, block.start)

        _, (payloads, stored, starts) = jax.lax.scan(one, None, jnp.arange(blocks.count))
        group = self.launch.group

        def placed(x: Array) -> Array:
            place = group * starts[:, None] + jnp.arange(x.shape[1])[None, :]
            nothing = jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else False
            out = jnp.full((group * blocks.length, x.shape[2]), nothing, x.dtype)
            return out.at[place.reshape(-1)].set(x.reshape(-1, x.shape[2]), mode="drop")

        self.stored = None if stored is None else Stored(*map(placed, stored))
        handles, tree = shapes
        return jax.tree.unflatten(tree, _with_payloads(handles, [placed(x) for x in payloads]))

    def times(self, count: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
        """One compiled pass, run `count` times."""
        return _scan(lambda index: index, jnp.arange(count), body, carry)

    def block(self, blocks: Blocks, index: Any) -> Block:
        """A block of full width; rows past the last query are cut when all are put together."""
        return blocks.at(index, full=True)

    def sinks(self) -> Tensor:
        """Sink logits of the rows."""
        return sink_tensor(self.launch, self.operands.sinks)

    def steps(
        self, plan: tuple[Step, ...], mesh: str, body: Callable[[Step, Any], Any], carry: Any
    ) -> Any:
        """One pass per step of the plan."""
        for step in plan:
            carry = body(step, carry)
        return carry

    def repeat(self, count: int, body: Callable[[], None]) -> None:
        """Values are those of one request."""
        raise NotImplementedError("values are computed one request at a time: `users` is 1")

    def when(self, predicate: Any, then: Callable[..., Any], operands: tuple) -> Any:
        """`then` everywhere; its result is kept where the predicate holds."""
        old = operands[0] if len(operands) == 1 else operands
        if isinstance(predicate, bool):
            return then(*operands) if predicate else old
        self.predicates.append(predicate)
        result = then(*operands)
        self.predicates.pop()
        if not operands or result is None:
            return result
        return jax.tree.map(
            lambda new, old: replace(new, payload=jnp.where(predicate, new.payload, old.payload)),
            result,
            old,
            is_leaf=_is_handle,
        )

    def on_pe(self, predicate: Any, then: Callable[[Any], Any], carry: Any) -> Any:
        """`then` everywhere; its result is kept where the predicate holds."""
        if isinstance(carry, tuple):
            return self.when(predicate, lambda *parts: then(parts), carry)
        return self.when(predicate, then, (carry,))

    # Data -------------------------------------------------------------------------------------

    def read(self, ref: Ref) -> Array:
        """The tile of `ref` at full width, 0 where the shard holds no token."""
        data, axis, places = ref.tensor.data, ref.tensor.token_axis, ref.tensor.token_size
        if ref.tile is None or axis is None:
            return data
        start = jnp.asarray(ref.tile.start) * places
        if isinstance(ref.tile, Block):  # a block may reach past the last query
            data = jnp.pad(data, ((0, ref.tile.extent * places), (0, 0)))
            return jax.lax.dynamic_slice_in_dim(data, start, ref.tile.extent * places, axis)
        part = jax.lax.dynamic_slice_in_dim(data, start, ref.tile.extent, axis)
        return jnp.where(_inside(ref.tile, axis), part, jnp.zeros((), part.dtype))

    def matmul(self, a: Array, b: Array) -> Array:
        """[M, K] @ [K, N] with float32 accumulation, `a` rounded to the storage type of b."""
        if not self.exact_p and a.dtype != b.dtype:
            a = jax.lax.optimization_barrier(a.astype(b.dtype))  # or XLA may drop the rounding
        return jax.lax.dot_general(
            a.astype(jnp.float32),
            b.astype(jnp.float32),
            (((1,), (0,)), ((), ())),
            precision=jax.lax.Precision.HIGHEST,
            preferred_element_type=jnp.float32,
        )

    def neighbour(self, x: Array, mesh: str, step: Exchange) -> Array:
        """What the rank that sends to this one holds; those to which none does get another's."""
        rows, cols = self.extent(mesh)
        size = self.launch.placement.pes if mesh == "pe" else rows * cols
        pairs, free = [], []
        for source in range(size):
            row, col = divmod(source, cols)
            at = Position(row=row, col=col, rows=rows, cols=cols, count=size)
            targets = [at.moved(*route.offset) for route, _ in step.routes(at, outgoing=True)]
            inside = [
                t.index
                for t in targets
                if 0 <= t.row < rows and 0 <= t.col < cols and t.index < size
            ]
            pairs += [(source, target) for target in inside]
            free += [] if inside else [source]
        unused = sorted(set(range(size)) - {target for _, target in pairs})
        pairs += [(source, target) for source, target in zip(free, unused, strict=True)]
        return jax.lax.ppermute(x, mesh, pairs)


def _is_handle(x: Any) -> bool:
    return isinstance(x, Handle)


def _with_payloads(handles: list[Handle], arrays: list[Array]) -> list[Handle]:
    return [replace(h, payload=x) for h, x in zip(handles, arrays, strict=True)]


def _scan(
    item_of: Callable[[Any], Any],
    xs: Any,
    body: Callable[[Any, Any], Any],
    carry: Any,
    holds: Callable[[Any], Any] = lambda item: True,
) -> Any:
    """`carry = body(item, carry)` for each item, kept where it `holds`."""
    handles, tree = jax.tree.flatten(carry, is_leaf=_is_handle)

    def one(arrays: list[Array], x: Any) -> tuple[list[Array], None]:
        item = item_of(x)
        carried = jax.tree.unflatten(tree, _with_payloads(handles, arrays))
        out = jax.tree.leaves(body(item, carried), is_leaf=_is_handle)
        kept = [
            jnp.where(holds(item), new.payload, old) for new, old in zip(out, arrays, strict=True)
        ]
        return kept, None

    arrays, _ = jax.lax.scan(one, [h.payload for h in handles], xs)
    return jax.tree.unflatten(tree, _with_payloads(handles, arrays))


def _inside(tile: Tile, axis: int) -> Array:
    inside = jnp.arange(tile.extent) < tile.size
    return inside[None, :] if axis == 1 else inside[:, None]


def _payloads(command: Command) -> list[Any]:
    return [x.payload if isinstance(x, Handle) else x for x in command.operands]


def _load(self: Values, command: Command) -> Array:
    """The tile's data, 0 past the shard's tokens."""
    ref: Ref = command.operands[0]  # type: ignore[assignment]
    return self.read(ref)


def _store(self: Values, command: Command) -> None:
    """Kept where every enclosing predicate holds, NaN elsewhere."""
    (value,) = _payloads(command)
    written = jnp.ones((value.shape[0], 1), bool)
    for predicate in self.predicates:
        written = written & predicate
    self.stored = Stored(jnp.where(written, value, jnp.nan), written)


def _gemm(self: Values, command: Command) -> Array:
    """float32 product; columns of tokens that are not there are NaN."""
    a, b = command.operands
    data = self.read(b) if isinstance(b, Ref) else b.payload
    product = self.matmul(a.payload, data)
    if "scale" in command.details["epilogue"]:
        product = product * self.launch.softmax_scale
    tile = b.tile if isinstance(b, Ref) and b.tensor.token_axis == 1 else None
    return product if not isinstance(tile, Tile) else jnp.where(_inside(tile, 1), product, jnp.nan)


def _ex_composite(self: Values, command: Command) -> tuple[Array, Array, Array]:
    """The steps of `kernels.online_softmax.fold`, in the same order."""
    s, v, *acc = command.operands
    m, l, o = (handle.payload for handle in acc)
    m_new = jnp.maximum(m, jnp.max(s.payload, axis=1, keepdims=True))
    p = jnp.exp(s.payload - m_new)
    correction = jnp.exp(m - m_new)
    l_new = l * correction + jnp.sum(p, axis=1, keepdims=True)
    return m_new, l_new, o * correction + self.matmul(p, self.read(v))


def _full(self: Values, command: Command) -> Array:
    """A constant matrix."""
    return jnp.full(command.shape, command.details["value"], jnp.float32)


def _broadcast(self: Values, command: Command) -> Array:
    """A column, repeated."""
    return jnp.broadcast_to(_payloads(command)[0], command.shape)


def _mask(self: Values, command: Command) -> Array:
    """-inf where a row must not see a token: absent, in its future, or before its window."""
    (scores,) = _payloads(command)
    tile, launch = command.details["tile"], self.launch
    slot = tile.start + jnp.arange(tile.extent)
    cube, pe = tile.tiles.owner or (self.cube, self.pe)
    token = launch.placement.token(cube, pe, slot)[None, :]
    row = jnp.arange(scores.shape[0])[:, None]
    position = tile.tiles.queries.position + floordiv(row, launch.group)
    visible = _inside(tile, 1) & (token <= position) & (token < launch.context_tokens)
    if launch.window is not None:
        visible = visible & (token > position - launch.window)
    return jnp.where(visible, scores, -jnp.inf)


def _send(self: Values, command: Command) -> None:
    """Kept for the receive of the same step."""
    step, mesh = command.details["step"], command.details["mesh"]
    self.mailbox.setdefault((mesh, step), []).append(tuple(_payloads(command)))


def _recv(self: Values, command: Command) -> tuple[Array, ...]:
    """A full permutation along the mesh's axis."""
    step, mesh = command.details["step"], command.details["mesh"]
    sent = self.mailbox[mesh, step].pop(0)
    return tuple(self.neighbour(x, mesh, step) for x in sent)


def _wait(self: Values, command: Command) -> None:
    """Values are alroutes there."""


def _rule(function: Callable[..., Array], doc: str) -> Callable[[Values, Command], Array]:
    def rule(self: Values, command: Command) -> Array:
        return function(*_payloads(command))

    rule.__doc__ = doc
    return rule


def _on_units(self: Values, command: Command) -> None:
    """None: the program of one unit does not hold the others' work."""
    raise UsageError(
        f"`tl.{command.op}` has no values: the kernel is the program of a device's busiest unit, "
        "which is for timing alone; run another kernel here"
    )


RULES: dict[str, Callable[[Values, Command], Any]] = {
    "load": _load,
    "store": _store,
    "composite": _gemm,
    "dot": _gemm,
    "ex_composite": _ex_composite,
    "full": _full,
    "max": _rule(lambda x: jnp.max(x, axis=1, keepdims=True), "row maximum"),
    "sum": _rule(lambda x: jnp.sum(x, axis=1, keepdims=True), "row sum"),
    "maximum": _rule(jnp.maximum, "larger of two"),
    "exp": _rule(jnp.exp, "exponential"),
    "tanh": _rule(jnp.tanh, "hyperbolic tangent"),
    "add": _rule(lambda a, b: a + b, "a + b"),
    "sub": _rule(lambda a, b: a - b, "a - b"),
    "mul": _rule(lambda a, b: a * b, "a * b"),
    "div": _rule(lambda a, b: a / b, "a / b"),
    "broadcast": _broadcast,
    "mask": _mask,
    "send": _send,
    "recv": _recv,
    "recv_async": _recv,
    "start": _on_units,
    "join": _on_units,
    "wait": _wait,
}
assert set(MATH_OPS) <= set(RULES)
