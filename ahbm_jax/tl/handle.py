"""What a kernel holds: handles, HBM tensors, references to tiles of them, and tile ranges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ahbm_jax.machine.number import cdiv, clip, floordiv, maximum

if TYPE_CHECKING:
    from ahbm_jax.tl.context import Context

Number = Any  # an integer for one rank, or an array of them in the timing interpreter
Shape = tuple[Number, Number]


@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """A matrix in scratch, `shape` rows by columns of `element_bytes`, maybe still in flight.

    `payload` is the interpreter's meaning of it: an array, a ready time, a buffer of the record.
    Arithmetic on handles issues MATH operations.
    """

    tl: Context
    shape: Shape
    element_bytes: int
    payload: Any

    @property
    def bytes(self) -> Number:
        """Size of the matrix in bytes."""
        return self.shape[0] * self.shape[1] * self.element_bytes

    def columns(self, tile: Tile) -> Handle:
        """The columns of `tile` alone: a view, no command."""
        return replace(self, shape=(self.shape[0], tile.size))

    def __add__(self, other: Handle | float) -> Handle:
        return self.tl.add(self, other)

    def __sub__(self, other: Handle | float) -> Handle:
        return self.tl.sub(self, other)

    def __mul__(self, other: Handle | float) -> Handle:
        return self.tl.mul(self, other)

    def __truediv__(self, other: Handle | float) -> Handle:
        return self.tl.div(self, other)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A rank's part of a tensor in HBM. `token_axis` is the axis that tiles cut, or None."""

    name: str
    shape: Shape
    element_bytes: int
    token_axis: int | None = None
    data: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """A tile of an HBM tensor (or all of it), named but not moved: an operand of a composite."""

    tensor: Tensor
    tile: Tile | None

    @property
    def shape(self) -> Shape:
        """Rows and columns, the tokens' axis cut to the tile."""
        shape = list(self.tensor.shape)
        if self.tile is not None and self.tensor.token_axis is not None:
            shape[self.tensor.token_axis] = self.tile.size
        return shape[0], shape[1]

    @property
    def bytes(self) -> Number:
        """Bytes that moving it reads."""
        rows, cols = self.shape
        return rows * cols * self.tensor.element_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Tokens [start, start + size) of a rank's shard. `masked` if some row must not see them all.

    `extent` is the size of a full tile; `exists` is whether the tile holds any token.
    """

    index: Number
    start: Number
    size: Number
    exists: Number
    masked: Number
    extent: Number
    tiles: Tiles | None = field(default=None, repr=False)

    @property
    def next(self) -> Tile:
        """The tile after this one (which may not exist)."""
        return self if self.tiles is None else self.tiles.at(self.index + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """A rank's `length` tokens in tiles of `extent`; every row may see the first `visible`.

    `irregular` bounds how many tiles at the end may differ from a full, unmasked one.
    """

    length: Number
    visible: Number
    extent: Number
    irregular: int

    @property
    def count(self) -> Number:
        """Tiles that hold a token, ceil(length / extent)."""
        return cdiv(self.length, self.extent)

    @property
    def uniform(self) -> Number:
        """Leading iterations whose tile and next tile are both full and unmasked."""
        return maximum(floordiv(self.visible, self.extent) - 1, 0)

    def at(self, index: Number) -> Tile:
        """Tile number `index`."""
        start = index * self.extent
        return Tile(
            index=index,
            start=start,
            size=clip(self.length - start, 0, self.extent),
            exists=start < self.length,
            masked=start + self.extent > self.visible,
            extent=self.extent,
            tiles=self,
        )

    def full(self) -> Tile:
        """A tile that stands for any full, unmasked one followed by another."""
        return Tile(
            index=0, start=0, size=self.extent, exists=True, masked=False, extent=self.extent
        )
