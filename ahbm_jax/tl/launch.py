"""Launch arguments of one request: what a driver hands a kernel (ADR-0060 section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.errors import TracerArrayConversionError

from ahbm_jax.machine.number import floordiv
from ahbm_jax.machine.placement import Placement
from ahbm_jax.tl.handle import Tensor

Number = Any
RING_FEEDS = ("gather", "lanes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Sizes of a request and how it is spread over the group.

    Numbers may be integers, or arrays of them in the timing interpreter; strings, switches and
    whether an option is None are static.

    Attributes:
      context_tokens: tokens in the KV cache.
      query_tokens: query tokens T; an integer where it is 1.
      query_start: position of the first of them. Each sees the tokens up to its own position.
      query_block_tokens: query tokens that prefill kernels take at once.
      group: query heads G on the KV head.
      head_dim: D of q and k.
      value_dim: D of v and of the output.
      element_bytes: of what is stored in HBM.
      softmax_scale: factor of the scores.
      tile_tokens: KV tokens of a tile.
      window: tokens that a row sees, its own included (sliding window), or None for all.
      softcap: scores s become softcap tanh(s / softcap), or None.
      sinks: whether each head has a sink: a logit that takes part in the softmax, without a value.
      cube_rows: rows of the group's rectangle of CUBEs.
      cube_cols: its columns.
      placement: where the tokens are.
      level2: reduce over PEs.
      level1: reduce over CUBEs.
      packed: (m, l, O) in one message.
      ring_chunk_tokens: KV tokens of a CUBE that go round the ring at once, a multiple of P.
      ring_feed: how they get to all PEs of a CUBE. `gather`: each PE passes its part to the next
        CUBE, where it then goes round the PEs. `lanes`: each part first goes round the PEs of its
        own CUBE, and each PE passes every part to the next CUBE.
      spreads_rows: whether there are query tokens for each PE of a CUBE (T >= P).
      users: requests, one after the other.
      sequences: requests that the units of a device are divided over, all at once.
      kv_heads: KV heads that they are divided over.
      units: identical units of the device.
      cache_bytes: cache that its units share.
    """

    context_tokens: Number
    query_tokens: Number
    query_start: Number
    query_block_tokens: Number
    group: Number
    head_dim: Number
    value_dim: Number
    element_bytes: int
    softmax_scale: Any
    tile_tokens: Number
    window: Number | None = None
    softcap: Any | None = None
    sinks: bool = False
    cube_rows: Number
    cube_cols: Number
    placement: Placement
    level2: str = "tree"
    level1: str = "mesh"
    packed: bool = False
    ring_chunk_tokens: Number = 0
    ring_feed: str = RING_FEEDS[0]
    spreads_rows: bool = False
    users: Number = 1
    sequences: Number = 1
    kv_heads: Number = 1
    units: Number = 1
    cache_bytes: Number = 0

    @property
    def ring_part_tokens(self) -> Number:
        """KV tokens of one PE in a chunk of the ring."""
        return floordiv(self.ring_chunk_tokens, self.placement.pes)


def spreads_rows(query_tokens: Any, pes: Any) -> bool:
    """Whether there are query tokens for each PE; so it is taken to be of traced numbers."""
    try:
        return not np.any(np.asarray(query_tokens) < np.asarray(pes))
    except TracerArrayConversionError:
        return True


def launch_tensors(launch: Launch, **data: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q [M, D], k [D, S], v [S, Dv] and output [M, Dv] of a rank (S: its shard's slots).

    Row t G + g of q and the output is query token t of head g.
    """
    group, slots = launch.group, launch.placement.shard_tokens
    rows = group * launch.query_tokens
    d, dv, size = launch.head_dim, launch.value_dim, launch.element_bytes
    return (
        Tensor("q", (rows, d), size, 0, data.get("q"), group),
        Tensor("k", (d, slots), size, 1, data.get("k")),
        Tensor("v", (slots, dv), size, 0, data.get("v")),
        Tensor("output", (rows, dv), size, 0, None, group),
    )


def sink_tensor(launch: Launch, data: Any = None) -> Tensor:
    """Sink logits of the rows, [M, 1]."""
    return Tensor("sinks", (launch.group * launch.query_tokens, 1), 4, 0, data, launch.group)
