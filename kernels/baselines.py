"""The mesh kernels that reduce-to-root and the ring replace (ADR-0060 sections A and B).

One query head at a time: a KV head's G query heads run as G requests, each of which reads K and V
again. GEMMs are blocking `tl.dot`s.

- `mesh_mlo`: decode; (m, l, O) of every rank go to every other rank, R - 1 rounds.
- `mesh_mlo_2d`: decode; all-reduce of (m, l, O): to a root as in `decode`, and back to every rank.
- `mesh_kv`: prefill; each rank has T / R of the query rows, and K and V of every rank go to every
  other rank, none skipped: what is in a row's future is masked. A shard is one tile, and the rows
  of a rank one block, so both are as long as scratch allows.
"""

from __future__ import annotations

from ahbm_jax.tl import BY_RANK, ONE, Context, Handle, Tensor, declare
from kernels.all_to_all import Data, Rank, all_to_all
from kernels.gqa_decode import sweep_dot
from kernels.online_softmax import (
    Partial,
    empty_partial,
    fold,
    merge,
    normalised,
    with_sinks,
)
from kernels.reduce import broadcast_on, reduce_on


@declare(heads=ONE)
def mesh_mlo(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> Partial:
    """Every rank merges the partials of all; the root of a reduce stores."""
    partial = sweep_dot(tl, tl.load(q), k, v, tl.queries())

    def take(state: Data, data: Data, _: Rank) -> Partial:
        return merge(tl, _partial(state), _partial(data))

    total = _partial(all_to_all(tl, partial, take, partial, packed=tl.launch.packed))
    return _store_at_root(tl, total, output)


@declare(heads=ONE)
def mesh_mlo_2d(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> Partial:
    """Reduce over PEs, along rows and columns of CUBEs, and the way back to every rank."""
    partial = sweep_dot(tl, tl.load(q), k, v, tl.queries())

    def across_cubes(inner: Partial) -> Partial:
        return broadcast_on(tl, "cube", reduce_on(tl, "cube", inner))

    partial = tl.on_pe(tl.is_root("pe"), across_cubes, reduce_on(tl, "pe", partial))
    return _store_at_root(tl, broadcast_on(tl, "pe", partial), output)


@declare(heads=ONE, rows=BY_RANK)
def mesh_kv(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> Partial:
    """Each rank folds all ranks' K and V into its own query rows, and stores those."""
    rows = tl.own_queries()
    mine = tl.load(tl.ref(q, rows))

    def take(state: Data, data: Data, owner: Rank) -> Partial:
        keys, values = data
        shard = tl.shard(k, rows, owner)
        with tl.scratch_scope():
            s = tl.dot(mine, keys) * tl.scale
            return fold(tl, _partial(state), s, shard, lambda p: tl.dot(p, values))

    data = _whole_shard(tl, k), _whole_shard(tl, v)
    rank = tl.program_id(1), tl.program_id(0)
    partial = take(with_sinks(tl, empty_partial(tl, mine, v), rows), data, rank)
    partial = _partial(all_to_all(tl, data, take, partial, packed=False))
    tl.store(tl.ref(output, rows), normalised(tl, partial))
    return partial


def _whole_shard(tl: Context, tensor: Tensor) -> Handle:
    """This rank's K or V, as long as the fullest shard."""
    return tl.load(tl.ref(tensor, tl.whole(tensor))).resized(*tensor.shape)


def _store_at_root(tl: Context, partial: Partial, output: Tensor) -> Partial:
    """One rank stores what all have."""
    here = tl.is_root("pe") & tl.is_root("cube")
    tl.when(here, lambda: tl.store(output, normalised(tl, partial)))
    return partial


def _partial(handles: Data) -> Partial:
    m, l, o = handles
    return m, l, o


BASELINES = {
    "mesh_mlo": {"dot": mesh_mlo},
    "mesh_mlo_2d": {"dot": mesh_mlo_2d},
    "mesh_kv": {"dot": mesh_kv},
}
