"""Attention on a device of identical units (a GPU's SMs): the program of the unit with most to do.

The units divide all (sequence, KV head) problems of a launch. An *item* is a block of query rows of
one of them, with all the keys that it sees or a split of those; a *block* is a tile of keys that an
item multiplies by. The variants are two ways in which software divides: `flash3` (persistent units,
packed query heads, splits as a metadata kernel deals them) and `flash2` (one unit an item).

Softmax runs behind GEMM on other warps and is no command here. The order of a unit's items does not
matter to its time: their set-up is issued first, then their blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ahbm_jax.tl import (
    Context,
    Handle,
    Launch,
    Number,
    Tensor,
    Tile,
    cdiv,
    clip,
    declare,
    floordiv,
    maximum,
    minimum,
    where,
)

PARTIAL_BYTES = 4  # an element of a split's output, float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How a launch is divided.

    Attributes:
      items: of the unit with most to do.
      blocks: of the unit with most to do.
      rows: query rows of an item.
      keys: keys of a block.
      splits: parts of the keys that a row sees, each an item's.
      readers: items that read the same keys.
      active: share of the units at work, on average until the last is done.
    """

    items: Number
    blocks: Number
    rows: Number
    keys: Number
    splits: Number
    readers: Number
    active: Number


def divide(
    launch: Launch, *, rows: int, keys: int, packed: Number, splits: Callable[..., Number]
) -> Division:
    """Items of `rows` query rows and blocks of `keys` keys over the units.

    Args:
      launch: the request.
      rows: query rows of an item.
      keys: keys of a block.
      packed: whether the query heads of a KV head share items.
      splits: of an item's blocks, given problems x items, their blocks, and those of an item.
    """
    heads = where(packed, launch.group, 1)
    problems = launch.sequences * launch.kv_heads * where(packed, 1, launch.group)
    whole = cdiv(launch.context_tokens, keys)
    tall = cdiv(heads * launch.query_tokens, rows)
    blocks = problems * causal_blocks(launch, tall, heads, rows, keys)
    parts = splits(problems * tall, blocks, whole)
    most = maximum(cdiv(blocks, launch.units), cdiv(whole, parts))
    return Division(
        items=cdiv(problems * tall * parts, launch.units),
        blocks=most,
        rows=minimum(heads * launch.query_tokens, rows),
        keys=cdiv(launch.context_tokens, whole),
        splits=parts,
        readers=tall * where(packed, 1, launch.group),
        active=minimum(blocks / (most * launch.units), 1),
    )


def causal_blocks(launch: Launch, tall: Number, heads: Number, rows: int, keys: int) -> Number:
    """Blocks of all `tall` items of a problem: each sees the past, and more the later it is.

    Exact where what was there before the queries is whole blocks (or nothing).
    """
    whole = cdiv(launch.context_tokens, keys)
    before = cdiv(launch.context_tokens - launch.query_tokens, keys)
    alike = maximum(floordiv(heads * keys, rows), 1)  # items in a row that see as many blocks
    full = floordiv(tall, alike)
    grown = alike * floordiv(full * (full + 1), 2) + (tall - full * alike) * (full + 1)
    return where(tall == 1, whole, tall * before + grown)


def dealt_splits(units: Number) -> Callable[..., Number]:
    """Splits of the rule that deals each unit an equal number of blocks, a tenth to spare."""

    def splits(items: Number, blocks: Number, whole: Number) -> Number:
        share = cdiv(11 * blocks, 10 * units)
        return where(whole <= 4, 1, cdiv(whole, maximum(share, 1)))

    return splits


def filling_splits(units: Number, allowed: Number) -> Callable[..., Number]:
    """Splits of the rule that fills two items a unit, unless four in five are filled anyway."""

    def splits(items: Number, blocks: Number, whole: Number) -> Number:
        fill = clip(floordiv(2 * units, items), 1, minimum(whole, 128))
        return where(allowed & (10 * items < 16 * units), fill, 1)

    return splits


def attend(tl: Context, work: Division, q: Tensor, k: Tensor, v: Tensor) -> None:
    """The unit's items and blocks, and its share of combining splits."""
    launch, size = tl.launch, q.element_bytes
    d, dv = k.shape[0], v.shape[1]
    fits = footprint_bytes(launch, (d + dv) * size) <= launch.cache_bytes
    warm = where(fits, 1, 0)
    active = work.active
    queries = tl.ref(Tensor("q", (work.rows, d), size), cached=warm, active=active)
    output = tl.ref(Tensor("output", (work.rows, dv), size), cached=warm, active=active)
    again = where(fits, 1, 1 - 1 / work.readers)  # the first of an item's readers finds no key
    keys = tl.ref(Tensor("k", (d, work.keys), size), cached=again, active=active)
    values = tl.ref(Tensor("v", (work.keys, dv), size), cached=again, active=active)

    def item(_: Tile, carry: tuple) -> tuple:
        with tl.scratch_scope(buffers=2):
            tl.wait(tl.load(queries))
            tl.store(output, tl.buffer(work.rows, dv))
        return carry

    def block(_: Tile, carry: tuple) -> tuple:
        with tl.scratch_scope(buffers=2):
            scores = tl.composite("gemm", a=rows, b=keys)
            tl.composite("gemm", a=scores, b=values)
        return carry

    tl.loop(tl.pieces(launch.sequences), lambda _, carry: carry, ())  # finds its items
    tl.loop(tl.pieces(work.items), item, ())
    rows = tl.buffer(work.rows, d)
    tl.loop(tl.pieces(work.blocks), block, ())
    tl.wait()
    tl.when(work.splits > 1, lambda: combine(tl, work, dv))


def combine(tl: Context, work: Division, dv: Number) -> None:
    """A program of its own, which merges the splits of the unit's share of all rows."""
    launch = tl.launch
    rows = launch.sequences * launch.kv_heads * launch.group * launch.query_tokens
    share = Tensor("partial", (cdiv(rows, launch.units), dv), PARTIAL_BYTES)

    def part(_: Tile, last: Handle) -> Handle:
        return tl.load(tl.ref(share, cached=1))

    tl.join()
    tl.wait(tl.loop(tl.pieces(work.splits), part, tl.buffer(share.shape[0], dv)))


def footprint_bytes(launch: Launch, of_token: Number) -> Number:
    """Bytes of all that a launch touches; `of_token` are those of a token of one head's K and V."""
    kept = launch.kv_heads * launch.context_tokens
    asked = launch.kv_heads * launch.group * launch.query_tokens
    return launch.sequences * (kept + asked) * of_token


@declare(on_units=True)
def flash3(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> None:
    """FlashAttention-3: query heads packed, 128 x 128 tiles, splits dealt over persistent units."""
    launch = tl.launch
    deal, chunk = dealt_splits(launch.units), launch.query_tokens > 1

    def splits(*sizes: Number) -> Number:
        return where(chunk, 1, deal(*sizes))

    tl.start()
    attend(tl, divide(launch, rows=128, keys=128, packed=True, splits=splits), q, k, v)


@declare(on_units=True)
def flash2(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> None:
    """FlashAttention-2: 64 x 128 tiles; one query token packs its heads, and only then splits.

    With several sequences and several KV heads packing puts the queries in another order, by a
    program of its own.
    """
    launch = tl.launch
    packed = (launch.query_tokens == 1) & (launch.group > 1)
    tl.start()
    tl.when(packed & (launch.kv_heads > 1) & (launch.sequences > 1), tl.join)
    splits = filling_splits(launch.units, packed)
    attend(tl, divide(launch, rows=64, keys=128, packed=packed, splits=splits), q, k, v)


VARIANTS = {"flash3": flash3, "flash2": flash2}
