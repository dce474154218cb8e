"""The tile step that all kernels share (ADR-0060 section 3), and the merge of two partials.

A partial is (m, l, O): running row maximum [M, 1], sum of exponentials [M, 1] and unnormalised
output [M, D], all float32. m starts at the lowest float32 rather than -inf, so that rows with
nothing to attend to need no special case: exp(m - m) is 1, and their l stays 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ahbm_jax.tl import LOWEST, Block, Context, Handle, Tensor, Tile

Partial = tuple[Handle, Handle, Handle]


def empty_partial(tl: Context, q: Handle, v: Tensor) -> Partial:
    """The partial of no tokens, the identity of `merge`, for the rows of `q`."""
    rows = q.shape[0]
    return tl.full(rows, 1, LOWEST), tl.full(rows, 1, 0.0), tl.full(rows, v.shape[1], 0.0)


def first_partial(
    tl: Context, q: Handle, v: Tensor, queries: Block, *, holds_sinks: Any = None
) -> Partial:
    """Where a sweep starts: no tokens, but the sinks, if there are any, where `holds_sinks`.

    A sink is a logit per head that takes part in the softmax and has no value (as in gpt-oss). Of
    the ranks whose partials are merged one alone (default: the group's first) may hold them.
    """
    empty = empty_partial(tl, q, v)
    if tl.sinks is None:
        return empty
    first = tl.holds_first() if holds_sinks is None else holds_sinks
    return tl.when(first, lambda *partial: with_sinks(tl, partial, queries), *empty)


def with_sinks(tl: Context, partial: Partial, queries: Block) -> Partial:
    """The empty partial with the sinks of its rows, if there are any."""
    m, l, o = partial
    if tl.sinks is None:
        return partial
    return tl.maximum(m, tl.load(tl.ref(tl.sinks, queries))), tl.add(l, 1.0), o


def capped(tl: Context, s: Handle) -> Handle:
    """Scores after the soft-cap c tanh(s / c), if the request has one (as in Gemma 2)."""
    cap = tl.launch.softcap
    return s if cap is None else tl.tanh(s * (1.0 / cap)) * cap


def mask_boundary(tl: Context, s: Handle, tile: Tile) -> Handle:
    """Mask scores, on boundary tiles alone."""
    return tl.when(tile.masked, lambda scores: tl.mask(scores, tile), s)


def fold(
    tl: Context, partial: Partial, s: Handle, tile: Tile, times_v: Callable[[Handle], Handle]
) -> Partial:
    """Fold the scores `s` [M, N] of a tile into `partial`; `times_v(P)` issues P V."""
    m, l, o = partial
    s = mask_boundary(tl, capped(tl, s.columns(tile)), tile)
    m_new = tl.maximum(m, tl.max(s))
    p = tl.exp(s - m_new)
    correction = tl.exp(m - m_new)
    l_new = l * correction + tl.sum(p)
    return m_new, l_new, o * correction + times_v(p)


def merge(tl: Context, a: Partial, b: Partial) -> Partial:
    """The partial of the tokens of `a` and `b` together (log-sum-exp merge)."""
    m = tl.maximum(a[0], b[0])
    scale_a, scale_b = tl.exp(a[0] - m), tl.exp(b[0] - m)
    return m, a[1] * scale_a + b[1] * scale_b, a[2] * scale_a + b[2] * scale_b


def normalised(tl: Context, partial: Partial) -> Handle:
    """O / l, and 0 where l is 0 (nothing to attend to); otherwise l >= 1, as exp(m - m) is 1."""
    return partial[2] / tl.maximum(partial[1], 1.0)
