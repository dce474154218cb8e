"""Launch arguments of one request: what a driver hands a kernel (ADR-0060 section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ahbm_jax.machine.placement import Placement
from ahbm_jax.tl.handle import Tensor

Number = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Sizes of a request and how it is spread over the group.

    Numbers may be integers, or arrays of them in the timing interpreter; strings, switches and
    `query_tokens` are static.
    """

    context_tokens: Number
    query_tokens: int
    group: Number
    head_dim: Number
    element_bytes: int
    softmax_scale: Any
    tile_tokens: Number
    cube_rows: Number
    cube_cols: Number
    placement: Placement
    level2: str = "tree"
    level1: str = "mesh"
    packed: bool = False
    users: Number = 1


def launch_tensors(launch: Launch, **data: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q [M, D], k [D, S], v [S, D] and output [M, D] of a rank (S: its shard's slots)."""
    rows, slots = launch.group * launch.query_tokens, launch.placement.shard_tokens
    d, size = launch.head_dim, launch.element_bytes
    return (
        Tensor("q", (rows, d), size, None, data.get("q")),
        Tensor("k", (d, slots), size, 1, data.get("k")),
        Tensor("v", (slots, d), size, 0, data.get("v")),
        Tensor("output", (rows, d), size, None),
    )
