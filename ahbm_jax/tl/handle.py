"""What a kernel holds: handles, HBM tensors, references to tiles of them, and tile ranges."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
        return self.resized(self.shape[0], tile.size)

    def resized(self, rows: Number, columns: Number) -> Handle:
        """The same place in scratch as a matrix of another size: a view, no command."""
        return replace(self, shape=(rows, columns))

    def rows(self, tile: Tile) -> Handle:
        """The rows of `tile` alone: a view, no command."""
        return self.resized(tile.size, self.shape[1])

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
    """A rank's part of a tensor in HBM.

    `token_axis` is the axis that tiles, or blocks of query rows, cut, or None; a token takes
    `token_size` places along it.
    """

    name: str
    shape: Shape
    element_bytes: int
    token_axis: int | None = None
    data: Any = None
    token_size: Number = 1


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """A part of an HBM tensor (or all of it), named but not moved: an operand of a composite.

    `cached` is the share of its bytes that the cache of a device serves; `active` that of the
    device's units which move data at once, so that they share HBM.
    """

    tensor: Tensor
    tile: Tile | Block | None
    cached: Number = 0
    active: Number = 1

    @property
    def shape(self) -> Shape:
        """Rows and columns, the tokens' axis cut to the tile."""
        shape = list(self.tensor.shape)
        if self.tile is not None and self.tensor.token_axis is not None:
            shape[self.tensor.token_axis] = self.tile.size * self.tensor.token_size
        return shape[0], shape[1]

    @property
    def bytes(self) -> Number:
        """Bytes that moving it reads."""
        rows, cols = self.shape
        return rows * cols * self.tensor.element_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Query tokens [start, start + size) of the request; the first is at `position`.

    `extent` is the size of a full block, `exists` whether it holds any token. `shared` is the block
    of which this is one PE's part, if it is.
    """

    index: Number
    start: Number
    size: Number
    exists: Number
    extent: Number
    position: Number
    shared: Block | None = None

    @property
    def round(self) -> Block:
        """What all PEs of the CUBE attend to at the time."""
        return self if self.shared is None else self.shared


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The request's `length` query tokens, the first at `position`, in blocks of `extent`.

    In rounds of `sharers` blocks at once this rank takes number `share` of each round.
    """

    length: Number
    extent: Number
    position: Number
    share: Number = 0
    sharers: Number = 1

    @property
    def count(self) -> Number:
        """Blocks (or rounds) that hold a token."""
        return cdiv(self.length, self.round_extent)

    @property
    def full(self) -> Number:
        """Leading blocks (or rounds) that are full."""
        return floordiv(self.length, self.round_extent)

    @property
    def _alone(self) -> bool:
        return isinstance(self.sharers, int) and self.sharers == 1

    @property
    def round_extent(self) -> Number:
        """Query tokens of a full round."""
        return self.extent if self._alone else self.extent * self.sharers

    def at(self, index: Number, *, full: bool = False) -> Block:
        """Block number `index`, or this rank's of that round, which the caller may know is full."""
        extent = self.round_extent
        whole = self._block(index, index * extent, extent, full)
        if self._alone:
            return whole
        start = whole.start + self.share * self.extent
        return replace(self._block(index, start, self.extent, full), shared=whole)

    def _block(self, index: Number, start: Number, extent: Number, full: bool) -> Block:
        return Block(
            index=index,
            start=start,
            size=extent if full else clip(self.length - start, 0, extent),
            exists=True if full else start < self.length,
            extent=extent,
            position=self.position + start,
        )


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
    tiles: Tiles
    one_of_many: bool = False  # stands for any full, unmasked tile that is followed by another

    @property
    def next(self) -> Tile:
        """The tile after this one (which may not exist)."""
        return self if self.one_of_many else self.tiles.at(self.index + 1)

    @property
    def seen(self) -> Number:
        """Whether some row sees a token of it: it exists, and a window has not left it behind."""
        if _is_zero(self.tiles.start):
            return self.exists
        return self.exists & (self.start + self.size > self.tiles.start)


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """What a block of query rows looks at of a rank's shard, in tiles of `extent`.

    Some row sees the tokens [start, end), and every row those of [all_start, all_end). Tiles begin
    at multiples of `extent`; those that no row sees are left out. `owner` is the rank, (CUBE, PE),
    whose shard it is, or None: this one's. Where tile n is
    tile n of every rank, `own` are this rank's.
    """

    start: Number
    all_start: Number
    all_end: Number
    end: Number
    extent: Number
    queries: Block
    owner: tuple[Number, Number] | None = None
    own: Tiles | None = None

    @property
    def first(self) -> Number:
        """Number of the first tile."""
        return floordiv(self.start, self.extent)

    @property
    def count(self) -> Number:
        """Number of the tile after the last."""
        return maximum(cdiv(self.end, self.extent), self.first)

    @property
    def uniform(self) -> tuple[Number, Number]:
        """Numbers [from, to) of tiles that are full and unmasked, and so is the next."""
        begin = self.first
        if not _is_zero(self.all_start):
            begin = maximum(begin, cdiv(self.all_start, self.extent))
        return begin, maximum(floordiv(self.all_end, self.extent) - 1, begin)

    def at(self, index: Number) -> Tile:
        """Tile number `index`."""
        start = index * self.extent
        masked = start + self.extent > self.all_end
        if not _is_zero(self.all_start):
            masked = masked | (start < self.all_start)
        return Tile(
            index=index,
            start=start,
            size=clip(self.end - start, 0, self.extent),
            exists=start < self.end,
            masked=masked,
            extent=self.extent,
            tiles=self,
        )

    def full(self) -> Tile:
        """A tile that stands for any full, unmasked one followed by another."""
        return Tile(
            index=0,
            start=0,
            size=self.extent,
            exists=True,
            masked=False,
            extent=self.extent,
            tiles=self,
            one_of_many=True,
        )


def _is_zero(x: Number) -> bool:
    return isinstance(x, int) and x == 0
