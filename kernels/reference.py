"""Attention in float64 numpy: what every kernel is measured against.

Written row by row from the definition, with no JAX and nothing of the kernels' arithmetic, so that
an error of theirs cannot be here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Attention in float64.

    Attributes:
      o: [H, T, D] output; 0 where a row sees nothing.
      lse: [H, T] natural logarithm of the sum of exponentials; -inf where a row sees nothing.
      envelope: [H, T, D] sum_j p_j |v_j|, the scale of the output before cancellation.
      largest_score: [H, T] largest magnitude of a visible score; 0 where a row sees nothing.
      effective_keys: [H, T] 1 / sum_j p_j^2, on how many keys the weight lies; inf where a row
        sees nothing.
    """

    o: np.ndarray
    lse: np.ndarray
    envelope: np.ndarray
    largest_score: np.ndarray
    effective_keys: np.ndarray


def reference(
    q: Any, k: Any, v: Any, *, kv_len: int | None = None, softmax_scale: float | None = None
) -> Reference:
    """Attention of query row t of T to positions up to kv_len - T + t (bottom-right causal).

    Args:
      q: [H, T, D]. Head h reads KV head h // (H / K).
      k: [K, S, D].
      v: [K, S, D].
      kv_len: tokens in the cache, at most S (default S); rows at or past it are not read.
      softmax_scale: default 1 / sqrt(D).
    """
    heads, rows, dim = q.shape
    kv_heads = k.shape[0]
    tokens = k.shape[1] if kv_len is None else kv_len
    scale = dim**-0.5 if softmax_scale is None else softmax_scale
    queries, keys, values = (
        np.asarray(x).astype(np.float64) for x in (q, k[:, :tokens], v[:, :tokens])
    )
    out = Reference(
        o=np.zeros((heads, rows, dim)),
        lse=np.full((heads, rows), -np.inf),
        envelope=np.zeros((heads, rows, dim)),
        largest_score=np.zeros((heads, rows)),
        effective_keys=np.full((heads, rows), np.inf),
    )
    for head in range(heads):
        kv_head = head // (heads // kv_heads)
        for row in range(rows):
            visible = tokens - rows + row + 1
            if visible > 0:
                seen = (keys[kv_head, :visible], values[kv_head, :visible])
                _attend(out, (head, row), queries[head, row] * scale, *seen)
    return out


def _attend(
    out: Reference, at: tuple[int, int], query: np.ndarray, keys: np.ndarray, values: np.ndarray
) -> None:
    scores = keys @ query
    assert np.isfinite(scores).all(), f"a score of (head, row) {at} is not finite"
    largest = scores.max()
    weights = np.exp(scores - largest)
    total = weights.sum()
    out.o[at] = weights @ values / total
    out.lse[at] = largest + np.log(total)
    out.envelope[at] = weights @ np.abs(values) / total
    out.largest_score[at] = np.abs(scores).max()
    out.effective_keys[at] = total**2 / (weights**2).sum()
    assert np.isfinite(out.envelope[at]).all(), f"a value of (head, row) {at} is not finite"
