"""Which rows of q and of the output each rank has.

Either all G heads of the KV head, folded (row t G + g is query token t of head g) on every rank,
the output on one or an equal part on each; or, with a head on each CUBE, its T rows, of which each
PE writes some.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array


@dataclass(frozen=True, slots=True)
class HeadRows:
    """Rows of an attention of `tokens` query tokens on `kv_heads` times `group` heads."""

    kv_heads: int
    group: int
    tokens: int
    per_cube: bool
    by_rank: bool

    def split(self, q: Array) -> Array:
        """[H, T, D] as rows of each KV head: [K, T G, D], or by CUBE, [K, C, T, D]."""
        by_head = q.reshape(self.kv_heads, self.group, self.tokens, q.shape[-1])
        if self.per_cube:
            return by_head
        return by_head.swapaxes(1, 2).reshape(self.kv_heads, -1, q.shape[-1])

    def logits(self, sinks: Array | None) -> Array | None:
        """Logits of the heads, [H], as those of the rows, one column."""
        if sinks is None:
            return None
        return self.split(jnp.broadcast_to(sinks[:, None, None], (len(sinks), self.tokens, 1)))

    def joined(self, rows: Array) -> Array:
        """What `split` gave as [H, T, D] again."""
        width = rows.shape[-1]
        if not self.per_cube:
            rows = rows.reshape(self.kv_heads, self.tokens, self.group, width).swapaxes(1, 2)
        return rows.reshape(self.kv_heads * self.group, self.tokens, width)

    def gathered(self, ranks: Any, written: Array, root: tuple[int, int]) -> Any:
        """Of arrays [K, C, P, rows, ...] of all ranks the rows that were written.

        They are at the `root`, or in parts `by_rank`, or where `written` says so.
        """
        if self.by_rank:
            count = self.tokens * self.group
            return jax.tree.map(lambda x: x.reshape(len(x), -1, *x.shape[4:])[:, :count], ranks)
        if not self.per_cube:
            return jax.tree.map(lambda x: x[:, *root], ranks)
        pe = jnp.argmax(written, axis=2)[:, :, None]  # [K, C, 1, rows, 1]
        return jax.tree.map(lambda x: jnp.take_along_axis(x, pe, axis=2)[:, :, 0], ranks)
