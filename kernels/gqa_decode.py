"""Decode attention of one KV head over C x P ranks (ADR-0060 Kernel 1), in its variants.

Q is replicated, its G heads folded into the rows of GEMM; each rank sweeps its own KV shard and
the partials are reduced to the group root. The variants differ in how a tile's work is issued:

- `dot`: loads and blocking `tl.dot`: the baseline.
- `opt1`: composites; the CPU waits for the scores, so GEMM idles during softmax.
- `opt3`: the next tile's scores are issued before this tile's softmax.
- `opt3v`: as opt3, with V loaded before the softmax rather than streamed after it.
- `opt2`: softmax and P V in one `tl.ex_composite`; the CPU never waits inside a tile.
- `one_shot`: the whole shard as one tile, without a running state.
"""

from __future__ import annotations

from collections.abc import Callable

from ahbm_jax.tl import LOWEST, Block, Context, Handle, Tensor, Tile
from kernels.online_softmax import (
    Partial,
    capped,
    empty_partial,
    first_partial,
    fold,
    mask_boundary,
    merge,
)
from kernels.reduce import reduce_and_store


def scores(tl: Context, q: Handle, k: Tensor, tile: Tile, out: Handle | None = None) -> Handle:
    """Scaled scores of a tile as a composite that streams K: [M, D] by [D, N]."""
    return tl.composite("gemm", a=q, b=tl.ref(k, tile), out=out, epilogue=("scale",))


def sweep_dot(tl: Context, q: Handle, k: Tensor, v: Tensor, queries: Block) -> Partial:
    """Blocking GEMMs on loaded tiles."""

    def body(tile: Tile, partial: Partial) -> Partial:
        with tl.scratch_scope():
            s = tl.dot(q, tl.load(tl.ref(k, tile))) * tl.scale
            return fold(tl, partial, s, tile, lambda p: tl.dot(p, tl.load(tl.ref(v, tile))))

    return tl.loop(tl.tiles(k, queries), body, first_partial(tl, q, v, queries))


def sweep_opt1(tl: Context, q: Handle, k: Tensor, v: Tensor, queries: Block) -> Partial:
    """Composites, each awaited where its result is first used."""

    def body(tile: Tile, partial: Partial) -> Partial:
        with tl.scratch_scope():
            s = scores(tl, q, k, tile)
            return fold(
                tl, partial, s, tile, lambda p: tl.composite("gemm", a=p, b=tl.ref(v, tile))
            )

    return tl.loop(tl.tiles(k, queries), body, first_partial(tl, q, v, queries))


def sweep_opt3(tl: Context, q: Handle, k: Tensor, v: Tensor, queries: Block) -> Partial:
    """Software pipelining: the next tile's scores fill GEMM during this tile's softmax."""

    def times_v(tile: Tile) -> Callable[[Handle], Handle]:
        return lambda p: tl.composite("gemm", a=p, b=tl.ref(v, tile))

    return _pipelined(tl, q, k, v, queries, times_v)


def sweep_opt3v(tl: Context, q: Handle, k: Tensor, v: Tensor, queries: Block) -> Partial:
    """As opt3, with V's DMA started before the softmax by a lazy load."""

    def times_v(tile: Tile) -> Callable[[Handle], Handle]:
        loaded = tl.load(tl.ref(v, tile))
        return lambda p: tl.composite("gemm", a=p, b=loaded)

    return _pipelined(tl, q, k, v, queries, times_v)


def _pipelined(
    tl: Context,
    q: Handle,
    k: Tensor,
    v: Tensor,
    queries: Block,
    times_v: Callable[[Tile], Callable[[Handle], Handle]],
) -> Partial:
    tiles = tl.tiles(k, queries)
    first = tiles.at(tiles.first)

    def body(tile: Tile, carry: tuple[Partial, Handle, Handle]) -> tuple[Partial, Handle, Handle]:
        partial, current, spare = carry
        ahead = tl.when(tile.next.exists, lambda out: scores(tl, q, k, tile.next, out), spare)
        with tl.scratch_scope():
            partial = fold(tl, partial, current, tile, times_v(tile))
        return partial, ahead, current

    partial = first_partial(tl, q, v, queries)
    current, spare = (tl.buffer(q.shape[0], tiles.extent) for _ in range(2))
    current = tl.when(first.exists, lambda out: scores(tl, q, k, first, out), current)
    return tl.loop(tiles, body, (partial, current, spare))[0]


def sweep_opt2(tl: Context, q: Handle, k: Tensor, v: Tensor, queries: Block) -> Partial:
    """Two commands a tile, none of them awaited until the sweep ends."""

    def body(tile: Tile, partial: Partial) -> Partial:
        with tl.scratch_scope(buffers=2):
            s = mask_boundary(tl, capped(tl, scores(tl, q, k, tile)), tile)
            return tl.ex_composite("softmax_pv", s=s, v=tl.ref(v, tile), acc=partial)

    partial = tl.loop(tl.tiles(k, queries), body, first_partial(tl, q, v, queries))
    tl.wait()
    return partial


def sweep_one_shot(tl: Context, q: Handle, k: Tensor, v: Tensor, queries: Block) -> Partial:
    """One composite for all scores, one softmax, one composite for P V."""
    whole = tl.whole(k, queries)

    def attend(*_: Handle) -> Partial:
        s = mask_boundary(tl, capped(tl, scores(tl, q, k, whole)), whole)
        m = tl.maximum(tl.max(s), LOWEST)  # rows that see nothing here stay finite
        p = tl.exp(s - m)
        return m, tl.sum(p), tl.composite("gemm", a=p, b=tl.ref(v, whole))

    seen = tl.when(whole.exists, attend, *empty_partial(tl, q, v))
    return seen if tl.sinks is None else merge(tl, first_partial(tl, q, v, queries), seen)


Sweep = Callable[[Context, Handle, Tensor, Tensor, Block], Partial]
SWEEPS: dict[str, Sweep] = {
    "dot": sweep_dot,
    "opt1": sweep_opt1,
    "opt3": sweep_opt3,
    "opt3v": sweep_opt3v,
    "opt2": sweep_opt2,
    "one_shot": sweep_one_shot,
}


def _variant(sweep: Sweep) -> Callable:
    def kernel(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> Partial:
        return reduce_and_store(tl, sweep(tl, tl.load(q), k, v, tl.queries()), output)

    kernel.__doc__ = sweep.__doc__
    return kernel


VARIANTS = {name: _variant(sweep) for name, sweep in SWEEPS.items()}
