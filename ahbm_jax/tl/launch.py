"""Launch arguments of one request: what a driver hands a kernel (ADR-0060 section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ahbm_jax.machine.placement import Placement
from ahbm_jax.tl.handle import Tensor

Number = Any


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
      users: requests, one after the other.
      decode_users: further requests, before those, that decode one token each (`decoding`).
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
    users: Number = 1
    decode_users: Number = 0

    def decoding(self) -> Launch:
        """The launch of the requests that decode: one token, the last of the context."""
        return replace(self, query_tokens=1, query_start=self.context_tokens - 1)


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
