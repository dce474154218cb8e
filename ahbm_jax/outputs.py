"""Real attention outputs of a kernel: the values interpreter over a grid of ranks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec

from ahbm_jax.errors import UsageError, nearest
from ahbm_jax.head_rows import HeadRows
from ahbm_jax.interpret.values import Operands, Values
from ahbm_jax.kernel_names import Kernel, resolve_kernel
from ahbm_jax.machine.number import cdiv
from ahbm_jax.machine.params import STORAGE_BYTES
from ahbm_jax.machine.placement import LAYOUTS, Placement
from ahbm_jax.machine.topology import (
    CUBE_COLLECTIVES,
    PE_COLLECTIVES,
    Position,
    rectangle,
)
from ahbm_jax.tl.launch import RING_FEEDS, Launch, spreads_rows
from ahbm_jax.tl.program import BY_RANK, ONE, PER_CUBE, heads_of, rows_of, run_program

Array = jax.Array
LARGEST = 2**24  # positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How an attention is spread over ranks: what its compiled function is specialised to."""

    cubes: int
    pes: int
    group_shape: tuple[int, int]
    tile: int
    query_tile: int
    windowed: bool
    capped: bool
    layout: str
    level2: str
    level1: str
    packed: bool
    ring_chunk: int | None
    ring_feed: str
    start_cube: int
    start_pe: int
    exact_p: bool
    mesh: Mesh | None

    @property
    def pe_mesh(self) -> tuple[int, int]:
        """Rows and columns that P PEs fill: two rows from five PEs on."""
        cols = self.pes if self.pes <= 4 else max(4, cdiv(self.pes, 2))
        return cdiv(self.pes, cols), cols

    def root(self) -> tuple[int, int]:
        """(cube, pe) where the result lands."""
        (pe_rows, pe_cols), (rows, cols) = self.pe_mesh, self.group_shape
        on_pes = PE_COLLECTIVES[self.level2].root
        on_cubes = CUBE_COLLECTIVES[self.level1].root
        pe = _root_index(on_pes, pe_rows, pe_cols, self.pes)
        return _root_index(on_cubes, rows, cols, self.cubes), pe


def _root_index(root: Callable[[Position, int], Any], rows: int, cols: int, count: int) -> int:
    for index in range(count):
        at = Position(row=index // cols, col=index % cols, rows=rows, cols=cols, count=count)
        if root(at, cols):
            return index
    raise AssertionError("a reduce has a root")


Arrays = tuple[Array, Array, Array, Array | None]


class Numbers(NamedTuple):
    """What of an attention may be traced; `window` and `softcap` count where the spread says so."""

    kv_len: Array
    query_start: Array
    window: Array
    softcap: Array
    softmax_scale: Array


def attention(
    kernel: str | Kernel,
    q: Array,
    k: Array,
    v: Array,
    *,
    variant: str | None = None,
    grid: tuple[int, int] = (1, 1),
    tile: int = 256,
    query_tile: int = 128,
    kv_len: int | Array | None = None,
    query_start: int | Array | None = None,
    window: int | Array | None = None,
    sinks: Array | None = None,
    softcap: float | Array | None = None,
    layout: str = "contiguous",
    softmax_scale: float | Array | None = None,
    exact_p: bool = False,
    mesh: Mesh | None = None,
    level2: str = "tree",
    level1: str = "mesh",
    packed: bool = False,
    ring_chunk: int | None = None,
    ring_feed: str = RING_FEEDS[0],
    group_shape: tuple[int, int] | None = None,
    start_cube: int = 0,
    start_pe: int = 0,
) -> tuple[Array, Array | None]:
    """Attention by `kernel` on a grid of C x P ranks, with the arithmetic of the machine.

    Scores, running maximum, sum and output are float32; P is rounded to the storage type for P V.
    Query row t attends to positions up to query_start + t, and below kv_len; by default the last
    row to all (bottom-right causal). Differentiable, and usable under `jax.jit` and `jax.vmap`.

    Args:
      kernel: name of a shipped kernel, `FILE.py:NAME`, or a function of `tl`.
      q: [H, T, D], bfloat16, float16 or float32. Head h reads KV head h // (H / K).
      k: [K, S, D] of the same type, after RoPE.
      v: [K, S, Dv] of the same type.
      variant: variant of a shipped kernel (default: `opt3`, or its first).
      grid: (C, P), CUBEs and PEs per CUBE.
      tile: tokens per tile.
      query_tile: query tokens that prefill kernels take at once.
      kv_len: tokens in the cache, at most S (default S); may be traced. Rows of k and v at or past
        it may hold anything.
      query_start: position of the first query row (default kv_len - T); may be traced.
      window: positions that a row attends to, its own included (sliding-window attention, as in
        Mistral 7B); default all.
      sinks: [H] logits, one per head, that take part in the softmax and have no value (as in
        gpt-oss); lse includes them.
      softcap: scores s become softcap * tanh(s / softcap) (as in Gemma 2).
      layout: `contiguous`, `round_robin`, `round_robin_cube_first` or `zigzag`.
      softmax_scale: default 1 / sqrt(D).
      exact_p: keep P in float32.
      mesh: device mesh with axes `cube` and `pe` of sizes C and P: run under `jax.shard_map`.
      level2: reduce over PEs, `tree` or `ring`.
      level1: reduce over CUBEs, `mesh` or `ring`.
      packed: send (m, l, O) as one message.
      ring_chunk: tokens of a CUBE that go round the ring at once, a multiple of P (default P
        tiles).
      ring_feed: how they get to all PEs of a CUBE, `gather` or `lanes`.
      group_shape: rows and columns of the CUBEs; default the squarest rectangle of C.
      start_cube: rotation of the placement over CUBEs.
      start_pe: rotation of the placement over PEs.

    Returns:
      (o, lse): o [H, T, Dv] in the type of q; lse [H, T] float32, natural logarithm of the sum of
      exponentials. A row with nothing to attend to gives 0 and -inf. lse is None if the kernel
      returns no (m, l).

    Raises:
      UsageError: an argument is out of range; the message names it.
    """
    function = resolve_kernel(kernel, variant)
    _check_shapes(q, k, v, kv_len)
    _check_options(q, query_start=query_start, window=window, sinks=sinks, softcap=softcap)
    spread = _checked_spread(
        grid=grid,
        tile=tile,
        layout=layout,
        level2=level2,
        level1=level1,
        packed=packed,
        group_shape=group_shape,
        start_cube=start_cube,
        start_pe=start_pe,
        exact_p=exact_p,
        mesh=mesh,
        query_tile=query_tile,
        ring_chunk=ring_chunk,
        ring_feed=ring_feed,
        windowed=window is not None,
        capped=softcap is not None,
    )
    if heads_of(function) == PER_CUBE and spread.cubes * k.shape[0] != q.shape[0]:
        raise UsageError(
            f"`grid` has {spread.cubes} CUBEs and `q` has {q.shape[0] // k.shape[0]} query heads "
            f"per KV head; make them equal: kernel {kernel!r} gives each CUBE one query head"
        )
    length = k.shape[1] if kv_len is None else kv_len
    numbers = Numbers(
        kv_len=jnp.asarray(length, jnp.int32),
        query_start=jnp.asarray(length - q.shape[1] if query_start is None else query_start),
        window=jnp.asarray(1 if window is None else window, jnp.int32),
        softcap=jnp.asarray(1.0 if softcap is None else softcap, jnp.float32),
        softmax_scale=jnp.asarray(
            q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale, jnp.float32
        ),
    )
    if k.shape[1] == 0:
        k, v = (jnp.zeros((x.shape[0], 1, x.shape[2]), x.dtype) for x in (k, v))
    logits = None if sinks is None else jnp.asarray(sinks, jnp.float32)
    return _compiled(function, spread)(q, k, v, logits, numbers)


def _check_shapes(q: Array, k: Array, v: Array, kv_len: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 3:
            raise UsageError(f"`{name}` has shape {x.shape}; [heads, tokens, head dim] is needed")
        if str(x.dtype) not in STORAGE_BYTES:
            allowed = ", ".join(STORAGE_BYTES)
            raise UsageError(f"`{name}` is {x.dtype}; allowed: {allowed}. Cast it first")
        if x.dtype != q.dtype:
            raise UsageError(f"`{name}` is {x.dtype} and `q` is {q.dtype}; they must be the same")
    if k.shape[:2] != v.shape[:2]:
        raise UsageError(
            f"`k` has shape {k.shape} and `v` {v.shape}; heads and tokens must be the same"
        )
    if q.shape[2] != k.shape[2]:
        raise UsageError(
            f"head dim of `q` is {q.shape[2]} and of `k` {k.shape[2]}; make them equal"
        )
    if k.shape[0] == 0 or q.shape[0] == 0 or q.shape[0] % k.shape[0]:
        raise UsageError(
            f"{q.shape[0]} query heads on {k.shape[0]} KV heads: the query heads of `q` must be a "
            f"multiple of the KV heads of `k`; {_multiples(q.shape[0], k.shape[0])}"
        )
    if q.shape[1] == 0:
        raise UsageError("`q` has 0 query rows; at least 1 is needed")
    rows = k.shape[1]
    if kv_len is not None and not isinstance(kv_len, Tracer) and not 0 <= int(kv_len) <= rows:
        raise UsageError(f"`kv_len` is {kv_len}; 0 to {rows} (the rows of `k`) is allowed")


def _check_options(q: Array, *, query_start: Any, window: Any, sinks: Any, softcap: Any) -> None:
    def known(x: Any) -> bool:
        return x is not None and not isinstance(x, Tracer)

    if known(query_start) and not -LARGEST <= int(query_start) <= LARGEST:
        raise UsageError(f"`query_start` is {query_start}; a position up to {LARGEST:,} is allowed")
    if known(window) and int(window) < 1:
        raise UsageError(f"`window` is {window}; at least 1 (a row's own position) is allowed")
    if known(softcap) and not float(softcap) > 0:
        raise UsageError(f"`softcap` is {softcap}; a number above 0 is allowed")
    if sinks is not None and np.shape(sinks) != (q.shape[0],):
        raise UsageError(
            f"`sinks` has shape {np.shape(sinks)}; ({q.shape[0]},), a logit per head, is needed"
        )


def _multiples(heads: int, kv_heads: int) -> str:
    if kv_heads == 0:
        return "give at least one KV head"
    lower = heads // kv_heads * kv_heads
    return f"use {lower or kv_heads} or {lower + kv_heads} query heads"


def _checked_spread(*, grid: Any, group_shape: Any, **choices: Any) -> Spread:
    cubes, pes = _grid(grid)
    for name, known in (
        ("layout", LAYOUTS),
        ("level2", tuple(PE_COLLECTIVES)),
        ("level1", tuple(CUBE_COLLECTIVES)),
        ("ring_feed", RING_FEEDS),
    ):
        if choices[name] not in known:
            hint = nearest(str(choices[name]), known)
            allowed = ", ".join(known)
            raise UsageError(f"`{name}` is {choices[name]!r}{hint}; allowed: {allowed}")
    for name in ("tile", "query_tile"):
        if not isinstance(choices[name], (int, np.integer)) or choices[name] < 1:
            raise UsageError(
                f"`{name}` is {choices[name]!r}; an integer of at least 1 token is allowed"
            )
    chunk = choices["ring_chunk"]
    if chunk is not None and not (
        isinstance(chunk, (int, np.integer)) and chunk > 0 and chunk % pes == 0
    ):
        raise UsageError(f"`ring_chunk` is {chunk!r}; a multiple of P = {pes} tokens is allowed")
    mesh = choices["mesh"]
    if mesh is not None and dict(mesh.shape) != {"cube": cubes, "pe": pes}:
        raise UsageError(
            f"`mesh` has axes {dict(mesh.shape)}; {{'cube': {cubes}, 'pe': {pes}}} is needed for "
            f"`grid` {grid}"
        )
    return Spread(cubes=cubes, pes=pes, group_shape=_shape(group_shape, cubes), **choices)


def _grid(grid: Any) -> tuple[int, int]:
    try:
        cubes, pes = (int(x) for x in grid)
    except (TypeError, ValueError):
        raise UsageError(f"`grid` is {grid!r}; (C, P), two positive integers, is needed") from None
    if cubes < 1 or pes < 1:
        raise UsageError(f"`grid` is {grid!r}; C and P must be at least 1")
    return cubes, pes


def _shape(group_shape: Any, cubes: int) -> tuple[int, int]:
    if group_shape is None:
        shape = rectangle(cubes, cubes, cubes)
        assert shape is not None
        return shape
    rows, cols = _grid(group_shape)
    if rows * cols != cubes:
        raise UsageError(f"`group_shape` is {rows} x {cols}, {rows * cols} CUBEs, and C is {cubes}")
    return rows, cols


@functools.lru_cache(maxsize=256)
def _compiled(kernel: Kernel, spread: Spread) -> Callable[..., tuple[Array, Array | None]]:
    def run(q: Array, k: Array, v: Array, sinks: Array | None, numbers: Numbers) -> Any:
        if heads_of(kernel) == ONE:
            k, v = (jnp.repeat(x, q.shape[0] // x.shape[0], axis=0) for x in (k, v))
        heads, (tokens, dim) = k.shape[0], q.shape[1:]
        group = q.shape[0] // heads
        placement = Placement(
            layout=spread.layout,
            cubes=spread.cubes,
            pes=spread.pes,
            cache_tokens=k.shape[1],
            start_cube=spread.start_cube,
            start_pe=spread.start_pe,
        )
        per_cube = heads_of(kernel) == PER_CUBE
        launch = Launch(
            context_tokens=numbers.kv_len,
            query_tokens=tokens,
            query_start=numbers.query_start,
            query_block_tokens=min(spread.query_tile, tokens),
            group=1 if per_cube else group,
            head_dim=dim,
            value_dim=v.shape[2],
            element_bytes=q.dtype.itemsize,
            softmax_scale=numbers.softmax_scale,
            tile_tokens=spread.tile,
            sinks=sinks is not None,
            cube_rows=spread.group_shape[0],
            cube_cols=spread.group_shape[1],
            placement=placement,
            level2=spread.level2,
            level1=spread.level1,
            packed=spread.packed,
            ring_chunk_tokens=spread.ring_chunk or spread.pes * spread.tile,
            ring_feed=spread.ring_feed,
            spreads_rows=spreads_rows(tokens, spread.pes),
        )
        # A tile that begins inside of a shard may be read whole.
        extents = (spread.tile, launch.ring_part_tokens)
        slots = max(cdiv(placement.shard_tokens, extent) * extent for extent in extents)
        shards = _shard_tokens(placement, slots)
        k_shards = jnp.moveaxis(k[:, shards], -1, -2)  # [K, C, P, D, slots]
        rows = HeadRows(heads, group, tokens, per_cube, rows_of(kernel) == BY_RANK)
        arrays = (rows.split(q), k_shards, v[:, shards], rows.logits(sinks))
        ranks, written = _on_ranks(kernel, spread, launch, arrays, numbers, per_cube=per_cube)
        o, m, l = rows.gathered(ranks, written, spread.root())
        lse = None if m is None or l is None else rows.joined(_log_sum_exp(m, l))[..., 0]
        return rows.joined(o).astype(q.dtype), lse

    return jax.jit(run)


def _shard_tokens(placement: Placement, slots: int) -> np.ndarray:
    """Token in each slot of each rank, [C, P, slots]; slots that hold none name token 0."""
    tokens = [
        [placement.token(cube, pe, np.arange(slots)) for pe in range(placement.pes)]
        for cube in range(placement.cubes)
    ]
    held = np.asarray(tokens)
    inside = (held < placement.cache_tokens) & (np.arange(slots) < placement.shard_tokens)
    return np.where(inside, held, 0)


def _on_ranks(
    kernel: Kernel,
    spread: Spread,
    launch: Launch,
    arrays: Arrays,
    numbers: Numbers,
    *,
    per_cube: bool,
) -> tuple[tuple[Array, Array | None, Array | None], Array]:
    """(o [K, C, P, M, Dv], m, l [K, C, P, M, 1]) of all ranks, and the rows that each wrote.

    `arrays` are q [K, M, D] (of a head `per_cube`, [K, C, M, D]), k and v [K, C, P, ...], and sinks
    like q, or None.
    """

    def body(q: Array, k: Array, v: Array, sinks: Array | None, numbers: Numbers) -> tuple:
        local = _with_numbers(launch, spread, numbers)
        operands = Operands(q=q, k=k, v=v, sinks=sinks)
        values = Values(local, operands, spread.pe_mesh, exact_p=spread.exact_p)
        partial = run_program(values, kernel)
        if values.stored is None:
            raise UsageError("the kernel stored no output: call `tl.store(output, ...)`")
        m, l = (None, None) if partial is None else (h.payload for h in partial[:2])
        return (values.stored.rows, m, l), values.stored.written

    heads = jax.vmap(body, in_axes=(0, 0, 0, 0, None))
    if spread.mesh is None:
        rows = 1 if per_cube else None
        by_pe, by_cube = (None, 1, 1, None, None), (rows, 1, 1, rows, None)
        on_pes = jax.vmap(heads, in_axes=by_pe, axis_name="pe", axis_size=spread.pes)
        on_cubes = jax.vmap(on_pes, in_axes=by_cube, axis_name="cube", axis_size=spread.cubes)
        return jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), on_cubes(*arrays, numbers))

    def shard(q: Array, k: Array, v: Array, sinks: Array | None, numbers: Numbers) -> Any:
        if per_cube:
            q, sinks = jax.tree.map(lambda x: x[:, 0], (q, sinks))
        out = heads(q, k[:, 0, 0], v[:, 0, 0], sinks, numbers)
        return jax.tree.map(lambda x: x[:, None, None], out)

    ranks, same = PartitionSpec(None, "cube", "pe"), PartitionSpec()
    by_cube = PartitionSpec(None, "cube") if per_cube else same
    spmd = jax.shard_map(
        shard,
        mesh=spread.mesh,
        in_specs=(by_cube, ranks, ranks, by_cube, same),
        out_specs=ranks,
        check_vma=False,  # a scan's carry starts from constants, which the check refuses
    )
    return spmd(*arrays, numbers)


def _with_numbers(launch: Launch, spread: Spread, numbers: Numbers) -> Launch:
    return replace(
        launch,
        context_tokens=numbers.kv_len,
        query_start=numbers.query_start,
        softmax_scale=numbers.softmax_scale,
        window=numbers.window if spread.windowed else None,
        softcap=numbers.softcap if spread.capped else None,
    )


def _log_sum_exp(m: Array, l: Array) -> Array:
    some = l > 0
    return jnp.where(some, m + jnp.log(jnp.where(some, l, 1.0)), -jnp.inf)
