"""Which rank holds which token of a KV shard (ADR-0060 sections 0 and 2.1).

A group has C CUBEs of P PEs, R = C P ranks. Every function takes Python integers or arrays that
broadcast, so the driver, the kernels' interpreters and the tests share one arithmetic.

Layouts: `contiguous` (rank r owns tokens [r B, (r + 1) B), B = ceil(cache / R): prefill and decode
share it), `round_robin` (token i on rank i mod R, slot i // R), `round_robin_cube_first` (token i
on cube i mod C, PE (i // C) mod P) and `zigzag` (of 2 R blocks, rank r owns block r and block
2 R - 1 - r, an early and a late one, so that what is visible so far is spread over the ranks).
`start_cube` and `start_pe` rotate all of them by request.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ahbm_jax.machine.number import cdiv, clip, floordiv, maximum, minimum, mod, where

LAYOUTS = ("contiguous", "round_robin", "round_robin_cube_first", "zigzag")

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
        """Slots that each rank allocates: ceil(cache / R), in zigzag of two equal blocks."""
        if self.layout == "zigzag":
            return 2 * self.block_tokens
        return cdiv(self.cache_tokens, self.ranks)

    @property
    def block_tokens(self) -> Number:
        """Tokens of a block of the zigzag."""
        return cdiv(self.cache_tokens, 2 * self.ranks)

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
        """Position in fill order of the rank that is being filled; those on a side of it are alike.

        It may be one before the first, or one after the last.
        """
        if self.layout == "contiguous":
            return floordiv(tokens, self.shard_tokens)
        if self.layout == "zigzag":
            block = floordiv(tokens, self.block_tokens)
            return minimum(block, 2 * self.ranks - 1 - block)
        return mod(tokens, self.ranks)

    @property
    def interleaved(self) -> Number:
        """Tokens that pass for one more on each rank."""
        return 1 if self.layout in ("contiguous", "zigzag") else self.ranks

    def turn(self, tokens: Number) -> Number:
        """The number of tokens, over `tokens`, at which another rank begins to be filled.

        Infinite where ranks are filled in turn, token by token.
        """
        if self.layout not in ("contiguous", "zigzag"):
            return math.inf
        size = self.shard_tokens if self.layout == "contiguous" else self.block_tokens
        return (floordiv(tokens, size) + 1) * size

    def length_at(self, order: Number, tokens: Number) -> Number:
        """Tokens, of the first `tokens`, on the rank at `order` in fill order."""
        if self.layout == "contiguous":
            return clip(tokens - order * self.shard_tokens, 0, self.shard_tokens)
        if self.layout == "zigzag":
            blocks, size = (order, 2 * self.ranks - 1 - order), self.block_tokens
            early, late = (clip(tokens - block * size, 0, size) for block in blocks)
            return early + late
        return floordiv(tokens, self.ranks) + where(order < mod(tokens, self.ranks), 1, 0)

    def length(self, cube: Number, pe: Number, tokens: Number) -> Number:
        """Tokens, of the first `tokens`, that rank (cube, pe) holds, in its slots 0, 1, 2, ..."""
        return self.length_at(self.order(cube, pe), tokens)

    def fewest(self, tokens: Number) -> Number:
        """Tokens, of the first `tokens`, on the rank that holds the fewest."""
        return minimum(self.length_at(0, tokens), self.length_at(self.ranks - 1, tokens))

    def most(self, tokens: Number) -> Number:
        """Tokens, of the first `tokens`, on the rank that holds the most."""
        return maximum(self.length_at(0, tokens), self.length_at(self.ranks - 1, tokens))

    def token(self, cube: Number, pe: Number, slot: Number) -> Number:
        """Global position of the token in `slot` of rank (cube, pe)."""
        order = self.order(cube, pe)
        if self.layout == "contiguous":
            return order * self.shard_tokens + slot
        if self.layout == "zigzag":
            late = floordiv(slot, self.block_tokens)  # 0 or 1
            block = order + late * (2 * self.ranks - 1 - 2 * order)
            return block * self.block_tokens + mod(slot, self.block_tokens)
        return slot * self.ranks + order

    def owner(self, token: Number) -> tuple[Number, Number, Number]:
        """(cube, pe, slot) of global position `token`."""
        if self.layout == "contiguous":
            order, slot = floordiv(token, self.shard_tokens), mod(token, self.shard_tokens)
        elif self.layout == "zigzag":
            block = floordiv(token, self.block_tokens)
            order = minimum(block, 2 * self.ranks - 1 - block)
            slot = mod(token, self.block_tokens) + where(order < block, self.block_tokens, 0)
        else:
            order, slot = mod(token, self.ranks), floordiv(token, self.ranks)
        cube_first = self.layout == "round_robin_cube_first"
        pe_local = floordiv(order, self.cubes) if cube_first else mod(order, self.pes)
        return (
            mod(self.local_cube(order) + self.start_cube, self.cubes),
            mod(pe_local + self.start_pe, self.pes),
            slot,
        )
