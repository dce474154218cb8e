"""How the scheduler cuts a GEMM into sub-tiles (DESIGN: composite; ADR-0060 B.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ahbm_jax.machine.number import cdiv
from ahbm_jax.machine.params import Gemm

Number = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPlan:
    """Sub-tiles of an m x k x n GEMM.

    Each of the `streams` commands fetches one sub-tile of `b` (all of equal bytes: the operand's
    bytes are conserved) and feeds `gemms_per_stream` GEMM sub-tiles.
    """

    subtiles: Number
    streams: Number
    gemms_per_stream: Number
    fetches: Number  # times that the whole of b is fetched


def gemm_plan(gemm: Gemm, m: Number, k: Number, n: Number) -> GemmPlan:
    """Plan of a GEMM; an edge sub-tile costs a whole one."""
    m_tiles, k_tiles = cdiv(m, gemm.tile_m), cdiv(k, gemm.tile_k)
    n_tiles = cdiv(n, gemm.tile_n)
    fetches = 1 if gemm.operand_reuse else m_tiles
    return GemmPlan(
        subtiles=m_tiles * k_tiles * n_tiles,
        streams=fetches * k_tiles * n_tiles,
        gemms_per_stream=m_tiles if gemm.operand_reuse else 1,
        fetches=fetches,
    )


def subtile_bytes(gemm: Gemm, element_bytes: int) -> int:
    """Scratch for one sub-tile of `b` in a stream window."""
    return gemm.tile_k * gemm.tile_n * element_bytes
