"""The lanes of the timing interpreter: which ranks' clocks are kept, and how they relate.

A clock is an array [lanes, lanes, batch]. Until ranks talk to each other, all that tells them
apart is how many tokens they hold, so a few *classes* of ranks stand for all (3 for one query row,
5 for several). From the first message on there is a clock for each rank of the machine's largest
group, [CUBEs, PEs, batch], of which those in use are marked; and for what only one PE of a CUBE
does, one for each CUBE, [CUBEs, 1, batch].
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ahbm_jax.machine.number import floordiv
from ahbm_jax.machine.params import Grid
from ahbm_jax.machine.topology import OFFSET, Position
from ahbm_jax.tl.launch import Launch

CLASSES, RANKS, ROOTS = "classes", "ranks", "roots"
Array = jax.Array


class Lanes:
    """Lane arithmetic of one launch on one grid; numbers of the launch are [1, 1, batch].

    Attributes:
      cube: every CUBE of the largest group, [CUBEs, 1, 1]; the group's rectangle is in use.
      pe: every PE of a CUBE, [1, PEs, 1]; the first P are in use.
      used: whether a rank is in use.
      rank_order: fill-order position of each rank.
    """

    def __init__(self, grid: Grid, launch: Launch, dtype: Any) -> None:
        self.grid, self.launch = grid, launch
        index = jnp.arange(grid.cubes, dtype=dtype).reshape(-1, 1, 1)
        row = floordiv(index, grid.cube_cols)
        rows, cols = launch.cube_rows, launch.cube_cols
        self.cube = Position(
            row=row, col=index - row * grid.cube_cols, rows=rows, cols=cols, count=rows * cols
        )
        index = jnp.arange(grid.pes, dtype=dtype).reshape(1, -1, 1)
        row = floordiv(index, grid.pe_cols)
        self.pe = Position(
            row=row,
            col=index - row * grid.pe_cols,
            rows=grid.pe_rows,
            cols=grid.pe_cols,
            count=launch.placement.pes,
        )
        self.used = self.cube.used & self.pe.used
        self.rank_order = launch.placement.order(self.cube.index, self.pe.index)
        low, high = self.frontiers()
        order = self.rank_order
        self._from_low, self._past_low = order >= low, order > low
        self._from_high, self._past_high = order >= high, order > high

    def frontiers(self) -> tuple[Array, Array]:
        """Fill-order positions at which lengths change: of the visible and of all tokens."""
        launch, placement = self.launch, self.launch.placement
        visible = jnp.maximum(launch.context_tokens - (launch.query_tokens - 1.0), 0.0)
        seen, held = placement.frontier(visible), placement.frontier(launch.context_tokens)
        return jnp.minimum(seen, held), jnp.maximum(seen, held)

    def orders(self) -> Array:
        """Fill-order position of the rank that stands for each class, [classes, 1, batch]."""
        low, high = self.frontiers()
        last = self.launch.placement.ranks - 1.0
        picks = [jnp.zeros_like(low), low, last]
        if self.launch.query_tokens > 1:
            picks = [jnp.zeros_like(low), low, low + 1.0, high, last]
        shape = jnp.broadcast_shapes(*(p.shape for p in (low, last)))
        return jnp.concatenate([jnp.broadcast_to(jnp.minimum(p, last), shape) for p in picks])

    def to_ranks(self, x: Array) -> Array:
        """From one value a class to one a rank."""
        if x.shape[0] == 1:
            return x
        by_class = [x[i : i + 1] for i in range(x.shape[0])]
        if self.launch.query_tokens == 1:
            first, at_low, last = by_class
        else:
            first, at_low, between, at_high, last = by_class
            last = jnp.where(self._past_high, last, at_high)
            last = jnp.where(self._from_high, last, between)
        return jnp.where(self._past_low, last, jnp.where(self._from_low, at_low, first))

    def to_roots(self, x: Array, is_root: Array) -> Array:
        """From one value a rank to that of the one PE of each CUBE where `is_root` holds."""
        if x.shape[1] == 1:
            return x
        return jnp.max(jnp.where(is_root, x, -jnp.inf), axis=1, keepdims=True)

    def shift(self, x: Array, mesh: str, direction: str, hops: int) -> Array:
        """Each rank's value of the rank `hops` away against `direction`; `-inf` from outside."""
        rows, cols = OFFSET[direction]
        if mesh == "cube":
            lead, rest = (self.grid.cube_rows, self.grid.cube_cols), (x.shape[1],)
            x = jnp.broadcast_to(x, (self.grid.cubes, *x.shape[1:]))
            x = x.reshape(*lead, *rest, x.shape[-1])
            axes = (0, 1)
        else:
            x = jnp.broadcast_to(x, (x.shape[0], self.grid.pes, x.shape[-1]))
            x = x.reshape(x.shape[0], self.grid.pe_rows, self.grid.pe_cols, x.shape[-1])
            axes = (1, 2)
        for axis, offset in zip(axes, (rows * hops, cols * hops), strict=True):
            x = _shift_axis(x, axis, offset)
        if mesh == "cube":
            return x.reshape(self.grid.cubes, x.shape[2], x.shape[3])
        return x.reshape(x.shape[0], self.grid.pes, x.shape[3])


def _shift_axis(x: Array, axis: int, offset: int) -> Array:
    if offset == 0:
        return x
    size = x.shape[axis]
    padding = [(0, 0, 0)] * x.ndim
    padding[axis] = (offset, -offset, 0) if abs(offset) < size else (size, -size, 0)
    return jax.lax.pad(x, jnp.array(-jnp.inf, x.dtype), padding)
