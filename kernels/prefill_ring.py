"""Prefill of one KV head over C x P ranks without a reduce (ADR-0060 Kernel 2, section 5.5).

CUBE c owns query head c, so C = G, and of the KV the shards of its PEs. The rows of its head are
spread over its PEs, and KV goes round: in chunks of a tile (or so) of each rank, every chunk to
every PE of every CUBE, which folds it into the partial of its own rows. Each part of a chunk is
read from HBM once, where it is; what nobody sees yet, or no longer, does not move.

A chunk gets to C x P ranks by two rings, one inside the other (`ring_feed`):

- `gather`: round the CUBEs, each PE passing on the part of its namesakes; at each CUBE, round its
  PEs. A CUBE-to-CUBE link carries each part once.
- `lanes`: round the PEs of its own CUBE; each part, once at a PE, round the CUBEs on that PE's
  lane. A CUBE-to-CUBE link carries each part P times.

With fewer query tokens than PEs, rows are not spread: each PE folds the parts that pass it on the
ring of CUBEs into a partial of all rows, and the partials of a CUBE's PEs are reduced.
"""

from __future__ import annotations

from typing import Any

from ahbm_jax.tl import PER_CUBE, Block, Context, Handle, Ref, Tensor, Tile, declare
from kernels.online_softmax import Partial, first_partial, fold, normalised
from kernels.reduce import reduce_on
from kernels.ring import Arrival, Part, Ring, Turns, go_round

HOME: Turns = {"cube": 0, "pe": 0}


@declare(heads=PER_CUBE)
def opt1(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> Partial:
    """Composites, each awaited where its result is first used."""
    spread = tl.launch.spreads_rows
    home, rings = rings_of(tl, k, v, spread=spread)

    def attend(block: Block) -> Any:
        with tl.scratch_scope():
            # A PE without rows in this round has neither queries nor a partial.
            queries = tl.when(block.exists, lambda: tl.load(tl.ref(q, block)))
            sinks_here = spread or tl.is_root("pe")
            partial = tl.when(
                block.exists, lambda: first_partial(tl, queries, v, block, holds_sinks=sinks_here)
            )
            partial = sweep(tl, queries, k, v, block, home, rings, partial)
            stores = block.exists
            if not spread:
                partial, stores = reduce_on(tl, "pe", partial), tl.is_root("pe")
            tl.when(stores, lambda: tl.store(tl.ref(output, block), normalised(tl, partial)))
            return partial

    return tl.for_each(tl.rounds() if spread else tl.blocks(), attend)


def rings_of(tl: Context, k: Tensor, v: Tensor, *, spread: bool) -> tuple[Part, tuple[Ring, ...]]:
    """A buffer for a rank's own part of a chunk, and the rings that it goes round, outermost first.

    The outermost ring receives into that buffer too: what was in it has left by then.
    """
    tokens = tl.launch.ring_part_tokens

    def part() -> Part:
        return tl.buffer(k.shape[0], tokens, like=k), tl.buffer(tokens, v.shape[1], like=v)

    meshes = ("cube", "pe") if tl.launch.ring_feed == "gather" else ("pe", "cube")
    home, rings = part(), []
    for mesh in meshes if spread else ("cube",):
        sharers = tl.launch.placement.pes if mesh == "cube" else 1
        rings.append(Ring(mesh, (part(), part() if rings else home), sharers))
    return home, tuple(rings)


def sweep(
    tl: Context,
    q: Handle,
    k: Tensor,
    v: Tensor,
    block: Block,
    home: Part,
    rings: tuple[Ring, ...],
    partial: Partial,
) -> Partial:
    """The partial of `block` with every chunk folded in that some PE of the CUBE looks at."""

    def sweep_chunk(chunk: Tile, partial: Any) -> Any:
        def at_hand(queries: Block, turns: Turns) -> Tile:
            owner = tl.upstream("cube", turns["cube"]), tl.upstream("pe", turns["pe"])
            return tl.tiles(k, queries, chunk.extent, of=owner).at(chunk.index)

        def arrival(turns: Turns) -> Arrival:
            tile = at_hand(block.round, turns)
            return Arrival(tile.seen, tile, (tl.ref(k, tile), tl.ref(v, tile)))

        def visit(turns: Turns, part: Part, partial: Any) -> Any:
            tile = at_hand(block, turns)
            seen = block.exists & tile.seen
            return tl.when(seen, lambda *old: fold_part(tl, q, part, tile, old), *partial)

        own = arrival(HOME)
        with tl.scratch_scope():
            part = tl.when(own.wanted, lambda *into: load_part(tl, own.source, into), *home)
            return go_round(tl, rings, part, partial, arrival=arrival, visit=visit, turns=HOME)

    return tl.loop(tl.chunks(k, block.round, tl.launch.ring_part_tokens), sweep_chunk, partial)


def load_part(tl: Context, source: tuple[Ref, Ref], into: Part) -> Part:
    """Load K and V of a part."""
    return tl.load(source[0], out=into[0]), tl.load(source[1], out=into[1])


def fold_part(tl: Context, q: Handle, part: Part, tile: Tile, partial: Partial) -> Partial:
    """Fold the tokens of `tile`, which are in scratch, into `partial`."""
    keys, values = part[0].columns(tile), part[1].rows(tile)
    s = tl.composite("gemm", a=q, b=keys, epilogue=("scale",))
    return fold(tl, partial, s, tile, lambda p: tl.composite("gemm", a=p, b=values))


VARIANTS = {"opt1": opt1}
