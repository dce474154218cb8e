"""Launch arguments of one request: what a driver hands a kernel (ADR-0060 section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ahbm_jax.machine.placement import Placement

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
    users: int = 1
