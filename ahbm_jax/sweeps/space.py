"""The space of a sweep: its dimensions, and the blocks that it is evaluated and stored in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BLOCK_POINTS = 65536
SAMPLE = "sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension: an axis, or the rows of a sampled design.

    Attributes:
      name: name of the axis, or `SAMPLE`.
      knobs: values of each knob along the dimension; one knob but for a sample.
      numeric: the values are numbers of one compiled function; otherwise each value is a choice,
        which may be compiled on its own.
      labels: the values as a dataset shows them, by knob, where those are not numbers.
    """

    name: str
    knobs: dict[str, Any]
    numeric: bool
    labels: dict[str, Any]

    @property
    def size(self) -> int:
        """Values along the dimension."""
        return len(next(iter(self.knobs.values())))


@dataclass(frozen=True, slots=True)
class Block:
    """A box of the space: what is evaluated at once, and one chunk of each array of a store."""

    start: tuple[int, ...]
    stop: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Values along each dimension."""
        return tuple(b - a for a, b in zip(self.start, self.stop, strict=True))

    @property
    def points(self) -> int:
        """Design points."""
        return math.prod(self.shape)

    @property
    def region(self) -> tuple[slice, ...]:
        """Where the block is in the arrays of the space."""
        return tuple(map(slice, self.start, self.stop))


@dataclass(frozen=True, slots=True)
class Space:
    """All combinations of the values of `dimensions`; they are never listed as a whole."""

    dimensions: tuple[Dimension, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Values along each dimension."""
        return tuple(dimension.size for dimension in self.dimensions)

    @property
    def points(self) -> int:
        """Design points."""
        return math.prod(self.shape)

    @property
    def points_of_choice(self) -> int:
        """Design points that one compiled program may serve."""
        return math.prod(dimension.size for dimension in self.dimensions if dimension.numeric)

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Shape of a block: one choice, and of numbers up to `BLOCK_POINTS`, last ones first."""
        room, shape = BLOCK_POINTS, []
        for dimension in reversed(self.dimensions):
            most = max(1, min(dimension.size, room)) if dimension.numeric else 1
            even = -(-dimension.size // -(-dimension.size // most))  # blocks of about one size
            shape.append(even)
            room //= even
        return tuple(reversed(shape))

    @property
    def blocks(self) -> int:
        """Blocks of the space."""
        return math.prod(self._counts())

    def block(self, number: int) -> Block:
        """A block by its number, counted along the last dimension first."""
        place = np.unravel_index(number, self._counts()) if self.dimensions else ()
        start = tuple(int(i) * b for i, b in zip(place, self.block_shape, strict=True))
        ends = zip(start, self.block_shape, self.shape, strict=True)
        return Block(start, tuple(min(a + b, n) for a, b, n in ends))

    def choices(self, block: Block) -> dict[str, Any]:
        """What a block holds of the choices, by knob."""
        return {
            name: values[at]
            for dimension, at in zip(self.dimensions, block.start, strict=True)
            if not dimension.numeric
            for name, values in dimension.knobs.items()
        }

    def numbers(
        self, values: dict[str, jax.Array], start: jax.Array, shape: jax.Array, size: int
    ) -> dict[str, jax.Array]:
        """The numbers of a block's points by knob, each [size]; its last point fills the rest.

        Args:
          values: of each knob along its dimension.
          start: of the block, [dimensions].
          shape: of the block, [dimensions].
          size: at least the block's points.
        """
        left = jnp.minimum(jnp.arange(size, dtype=jnp.int32), jnp.prod(shape, dtype=jnp.int32) - 1)
        found: dict[str, jax.Array] = {}
        for axis, dimension in reversed(list(enumerate(self.dimensions))):
            at = start[axis] + left % shape[axis]
            left = left // shape[axis]
            if dimension.numeric:
                found |= {name: values[name][at] for name in dimension.knobs}
        return found

    def _counts(self) -> tuple[int, ...]:
        return tuple(-(-n // b) for n, b in zip(self.shape, self.block_shape, strict=True))
