"""Which rank holds which token of a KV shard (ADR-0060 sections 0 and 2.1).

A group has C CUBEs of P PEs, R = C P ranks. Every function takes Python integers or arrays that
broadcast, so the driver, the kernels' interpreters and the tests share one arithmetic.

Layouts: `contiguous` (rank r owns tokens [r B, (r + 1) B), B = ceil(cache / R): prefill and decode
share it), `round_robin` (token i on rank i mod R, slot i // R) and `round_robin_cube_first` (token
i on cube i mod C, PE (i // C) mod P). `start_cube` and `start_pe` rotate all three by request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ahbm_jax.machine.number import cdiv, clip, floordiv, mod, where

LAYOUTS = ("contiguous", "round_robin", "round_robin_cube_first")

Number = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the tokens of one request live: C x P ranks holding a cache of `cache_tokens`."""

    layout: str
    cubes: Number
    pes: Number
    cache_tokens: Number
    start_cube: Number = 0
    start_pe: Number = 0

    @property
    def ranks(self) -> Number:
        """Ranks of the group, R = C P."""
        return self.cubes * self.pes

    @property
    def shard_tokens(self) -> Number:
        """Slots that each rank allocates, ceil(cache / R)."""
        return cdiv(self.cache_tokens, self.ranks)

    def order(self, cube: Number, pe: Number) -> Number:
        """Position of rank (cube, pe) in the order in which the layout fills ranks."""
        cube_local = mod(cube - self.start_cube, self.cubes)
        pe_local = mod(pe - self.start_pe, self.pes)
        if self.layout == "round_robin_cube_first":
            return pe_local * self.cubes + cube_local
        return cube_local * self.pes + pe_local

    def local_cube(self, order: Number) -> Number:
        """CUBE, counted from `start_cube`, of the rank at `order` in fill order."""
        if self.layout == "round_robin_cube_first":
            return mod(order, self.cubes)
        return floordiv(order, self.pes)

    def frontier(self, tokens: Number) -> Number:
        """Position in fill order of the first rank that holds less than those before it."""
        if self.layout == "contiguous":
            return floordiv(tokens, self.shard_tokens)
        return mod(tokens, self.ranks)

    def length_at(self, order: Number, tokens: Number) -> Number:
        """Tokens, of the first `tokens`, on the rank at `order` in fill order."""
        if self.layout == "contiguous":
            return clip(tokens - order * self.shard_tokens, 0, self.shard_tokens)
        return floordiv(tokens, self.ranks) + where(order < mod(tokens, self.ranks), 1, 0)

    def length(self, cube: Number, pe: Number, tokens: Number) -> Number:
        """Tokens, of the first `tokens`, that rank (cube, pe) holds, in its slots 0, 1, 2, ..."""
        return self.length_at(self.order(cube, pe), tokens)

    def token(self, cube: Number, pe: Number, slot: Number) -> Number:
        """Global position of the token in `slot` of rank (cube, pe)."""
        order = self.order(cube, pe)
        if self.layout == "contiguous":
            return order * self.shard_tokens + slot
        return slot * self.ranks + order

    def owner(self, token: Number) -> tuple[Number, Number, Number]:
        """(cube, pe, slot) of global position `token`."""
        if self.layout == "contiguous":
            order, slot = floordiv(token, self.shard_tokens), mod(token, self.shard_tokens)
        else:
            order, slot = mod(token, self.ranks), floordiv(token, self.ranks)
        cube_first = self.layout == "round_robin_cube_first"
        pe_local = floordiv(order, self.cubes) if cube_first else mod(order, self.pes)
        return (
            mod(self.local_cube(order) + self.start_cube, self.cubes),
            mod(pe_local + self.start_pe, self.pes),
            slot,
        )
