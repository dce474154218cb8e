"""The lanes of the timing interpreter: which ranks' clocks are kept, and how they relate.

A clock is an array [lanes, lanes, batch]. Until ranks talk to each other, all that tells them
apart is how many tokens they hold, so there is one clock for each *class* of ranks (3 for one
query token, 5 for several, 5 and 9 with a window). While only PEs of one CUBE talk, CUBEs fall into
as many classes. From
then on there is a clock for each CUBE of the machine's largest group, of which those in use are
marked; and only one for each CUBE while one of its PEs acts alone.

| space | shape | from |
|---|---|---|
| `CLASSES` | [classes, 1, batch] | the start |
| `CUBE_CLASSES` | [classes, PEs, batch] | the first look at the PE mesh |
| `RANKS` | [CUBEs, PEs, batch] | the first look at the CUBE mesh |
| `ROOTS` | [CUBEs, 1, batch] | inside `tl.on_pe` |
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ahbm_jax.interpret.algebra import largest
from ahbm_jax.machine.number import floordiv, mod
from ahbm_jax.machine.params import Grid
from ahbm_jax.machine.topology import Position, Step, movement
from ahbm_jax.tl.launch import Launch

CLASSES, CUBE_CLASSES, RANKS, ROOTS = "classes", "cube classes", "ranks", "roots"
WORD = 32  # lanes whose bits are kept together
Array = jax.Array


class Classes:
    """Positions on a line in classes: before, at, between and after frontiers, in rising order."""

    def __init__(self, frontiers: list[Array], last: Array) -> None:
        self.frontiers = frontiers
        picks = [last * 0.0]
        for frontier in frontiers:
            picks += [frontier, frontier + 1.0]
        picks[-1] = last  # after the last frontier all are alike
        shape = jnp.broadcast_shapes(last.shape, *(frontier.shape for frontier in frontiers))
        self.representatives = jnp.concatenate(
            [jnp.broadcast_to(jnp.clip(pick, 0.0, last), shape) for pick in picks]
        )

    def spread(self, x: Array, position: Array) -> Array:
        """The value of each position's class; classes are the first axis of `x`."""
        by_class = iter(x[i : i + 1] for i in range(x.shape[0]))
        value = next(by_class)
        for frontier in self.frontiers:
            value = jnp.where(position >= frontier, next(by_class), value)
            value = jnp.where(position > frontier, next(by_class), value)
        return value


class Lanes:
    """Lane arithmetic of one launch on one grid; numbers of the launch are [1, 1, batch].

    Attributes:
      cube: every CUBE of the largest group, [CUBEs, 1, 1]; the group's rectangle is in use.
      pe: every PE of a CUBE, [1, PEs, 1]; the first P are in use.
      used: whether a rank is in use.
      orders: fill-order position of the lanes of each space.
    """

    def __init__(self, grid: Grid, launch: Launch, dtype: Any) -> None:
        self.grid = grid
        placement = launch.placement
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
            count=placement.pes,
        )
        self.used = self.cube.used & self.pe.used

        ends = [placement.frontier(tokens) for tokens in _limits(launch)]
        if launch.sinks:  # the first rank has them
            ends = [jnp.zeros_like(ends[0]), *ends]
        if grid.cubes * grid.pes == 1:  # one rank is one class
            ends = []
        self._ranks = Classes(_sorted(ends), placement.ranks - 1.0)
        cube_ends = [placement.local_cube(end) for end in ends]
        self._cubes = Classes(_sorted(cube_ends), placement.cubes - 1.0)
        self._local_cube = mod(self.cube.index - placement.start_cube, placement.cubes)
        class_cube = mod(self._cubes.representatives + placement.start_cube, placement.cubes)
        self.orders = {
            CLASSES: self._ranks.representatives,
            CUBE_CLASSES: placement.order(class_cube, self.pe.index),
            RANKS: placement.order(self.cube.index, self.pe.index),
        }

    def shape(self, space: str, batch: int) -> tuple[int, int, int]:
        """Shape of a clock."""
        classes = self._ranks.representatives.shape[0]
        return {
            CLASSES: (classes, 1, batch),
            CUBE_CLASSES: (classes, self.grid.pes, batch),
            RANKS: (self.grid.cubes, self.grid.pes, batch),
            ROOTS: (self.grid.cubes, 1, batch),
        }[space]

    def in_use(self, space: str) -> Array:
        """Which lanes stand for ranks in use: every class does."""
        return {
            CLASSES: jnp.ones((1, 1, 1), bool),
            CUBE_CLASSES: self.pe.used,
            RANKS: self.used,
            ROOTS: self.cube.used,
        }[space]

    def convert(self, x: Array, source: str, target: str, root: Array | None) -> Array:
        """A value made in space `source`, in the later space `target`; numbers stay as they are.

        `root` marks the acting PE of each CUBE, for `ROOTS`.
        """
        if source == target or x.shape[:2] == (1, 1):
            return x
        if source == ROOTS:
            return x  # of one PE of each CUBE: the same for all of them
        if source == CLASSES:
            source = RANKS if target == RANKS else CUBE_CLASSES
            x = self._ranks.spread(x, self.orders[source])
        if target == ROOTS:
            assert root is not None
            assert root.shape[0] == 1, "the same PE of every CUBE acts"
            x = largest(jnp.where(root, x, -jnp.inf), 1)[:, None]
        if source == CUBE_CLASSES and target != CUBE_CLASSES:
            x = self._cubes.spread(x, self._local_cube)
        return x

    def movement(self, plan: tuple[Step, ...], mesh: str) -> tuple[Array, Array]:
        """Who sends and who receives in each step, [steps, words, batch]: see `marked`."""
        grid = self.grid
        if mesh == "pe":
            tables = movement(plan, grid.pe_rows, grid.pe_cols, ragged=True)
            size = self.pe.count
        else:
            tables = movement(plan, grid.cube_rows, grid.cube_cols, ragged=False)
            size = self.cube.rows * (grid.cube_cols + 1) + self.cube.cols
        number = jnp.asarray(size, jnp.int32).reshape(-1)  # out of range is clamped
        sends, receives = (jnp.moveaxis(_words(table)[number], 0, -1) for table in tables)
        return sends, receives

    def marked(self, words: Array, mesh: str) -> Array:
        """Whether the bit of each lane of a mesh is set in [words, batch]."""
        lane = jnp.arange(self.grid.pes if mesh == "pe" else self.grid.cubes, dtype=jnp.uint32)
        bits = jnp.repeat(words, WORD, axis=0, total_repeat_length=WORD * len(words))[: len(lane)]
        on = (bits >> (lane % WORD)[:, None]) & 1 > 0
        return jnp.expand_dims(on, 0 if mesh == "pe" else 1)

    def shift(self, x: Array, mesh: str, offset: tuple[int, int]) -> Array:
        """Values moved by rows and columns of a mesh; `-inf` from outside."""
        shape = x.shape
        if mesh == "cube":
            x = x.reshape(self.grid.cube_rows, self.grid.cube_cols, *shape[1:])
            axes = (0, 1)
        else:
            x = x.reshape(shape[0], self.grid.pe_rows, self.grid.pe_cols, shape[2])
            axes = (1, 2)
        for axis, places in zip(axes, offset, strict=True):
            x = _shift_axis(x, axis, places)
        return x.reshape(shape)

    def shift_by_one_of(
        self, x: Array, mesh: str, offsets: list[tuple[int, int]], which: Array
    ) -> Array:
        """As `shift` by `offsets[which]`; what comes from outside of the mesh is not defined."""
        axis, cols = (0, self.grid.cube_cols) if mesh == "cube" else (1, self.grid.pe_cols)
        places = [rows * cols + columns for rows, columns in offsets]
        margin = min(max(abs(place) for place in places), x.shape[axis])
        padding = [(0, 0, 0)] * x.ndim
        padding[axis] = (margin, margin, 0)
        wide = jax.lax.pad(x, jnp.array(-jnp.inf, x.dtype), padding)
        starts = [max(0, min(margin - place, 2 * margin)) for place in places]
        return jax.lax.dynamic_slice_in_dim(
            wide, jnp.asarray(starts)[which], x.shape[axis], axis, allow_negative_indices=False
        )


def _words(table: np.ndarray) -> Array:
    """Booleans [..., lanes] as bits of [..., words]: what differs by point is then small."""
    lanes = table.shape[-1]
    padded = np.pad(table, [(0, 0)] * (table.ndim - 1) + [(0, -lanes % WORD)])
    bits = padded.reshape(*table.shape[:-1], -1, WORD).astype(np.uint32)
    return jnp.asarray((bits << np.arange(WORD, dtype=np.uint32)).sum(-1, dtype=np.uint32))


def _limits(launch: Launch) -> list[Array]:
    """Positions at which what all query tokens, or some, see begins or ends."""
    single = isinstance(launch.query_tokens, int)
    first = launch.query_start + 1.0
    last = first if single else launch.query_start + launch.query_tokens
    limits = [first] if single else [first, last]
    if launch.window is not None:
        limits += [limit - launch.window for limit in limits]
    return [jnp.clip(limit, 0.0, launch.context_tokens) for limit in limits]


def _sorted(values: list[Array]) -> list[Array]:
    return list(jnp.sort(jnp.stack(values), axis=0)) if len(values) > 1 else values


def _shift_axis(x: Array, axis: int, offset: int) -> Array:
    if offset == 0:
        return x
    offset = max(-x.shape[axis], min(offset, x.shape[axis]))
    padding = [(0, 0, 0)] * x.ndim
    padding[axis] = (offset, -offset, 0)
    return jax.lax.pad(x, jnp.array(-jnp.inf, x.dtype), padding)
