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
      effective_keys: [H, T] (sum_j p_j)^2 / sum_j p_j^2, on how many keys the weight lies (a sink
        is none); inf where a row sees nothing.
    """

    o: np.ndarray
    lse: np.ndarray
    envelope: np.ndarray
    largest_score: np.ndarray
    effective_keys: np.ndarray


def reference(
    q: Any,
    k: Any,
    v: Any,
    *,
    kv_len: int | None = None,
    softmax_scale: float | None = None,
    query_start: int | None = None,
    window: int | None = None,
    sinks: Any = None,
    softcap: float | None = None,
) -> Reference:
    """Attention of query row t to positions up to query_start + t, and below kv_len.

    Args:
      q: [H, T, D]. Head h reads KV head h // (H / K).
      k: [K, S, D].
      v: [K, S, Dv].
      kv_len: tokens in the cache, at most S (default S); rows at or past it are not read.
      softmax_scale: default 1 / sqrt(D).
      query_start: position of the first row (default kv_len - T: bottom-right causal).
      window: positions that a row sees, its own included (default all).
      sinks: [H] logits that take part in each row's softmax and have no value.
      softcap: scores s become softcap * tanh(s / softcap).
    """
    heads, rows, dim = q.shape
    kv_heads = k.shape[0]
    tokens = k.shape[1] if kv_len is None else kv_len
    start = tokens - rows if query_start is None else query_start
    scale = dim**-0.5 if softmax_scale is None else softmax_scale
    queries, keys, values = (
        np.asarray(x).astype(np.float64) for x in (q, k[:, :tokens], v[:, :tokens])
    )
    out = Reference(
        o=np.zeros((heads, rows, v.shape[2])),
        lse=np.full((heads, rows), -np.inf),
        envelope=np.zeros((heads, rows, v.shape[2])),
        largest_score=np.zeros((heads, rows)),
        effective_keys=np.full((heads, rows), np.inf),
    )
    for head in range(heads):
        kv_head = head // (heads // kv_heads)
        for row in range(rows):
            end = start + row + 1
            seen = slice(0 if window is None else max(end - window, 0), max(end, 0))
            scores = _scores(keys[kv_head, seen] @ (queries[head, row] * scale), softcap)
            sink = [] if sinks is None else [np.float64(sinks[head])]
            if len(scores) + len(sink):
                _attend(out, (head, row), scores, values[kv_head, seen], sink)
    return out


def _scores(scores: np.ndarray, softcap: float | None) -> np.ndarray:
    assert np.isfinite(scores).all(), "a score is not finite"
    return scores if softcap is None else softcap * np.tanh(scores / softcap)


def _attend(
    out: Reference,
    at: tuple[int, int],
    scores: np.ndarray,
    values: np.ndarray,
    sink: list[np.float64],
) -> None:
    logits = np.concatenate([scores, sink])
    largest = logits.max()
    weights = np.exp(logits - largest)
    total, weights = weights.sum(), weights[: len(scores)]
    out.o[at] = weights @ values / total
    out.lse[at] = largest + np.log(total)
    out.envelope[at] = weights @ np.abs(values) / total
    out.largest_score[at] = np.abs(logits).max()
    if len(scores):
        out.effective_keys[at] = weights.sum() ** 2 / (weights**2).sum()
    assert np.isfinite(out.envelope[at]).all(), f"a value of (head, row) {at} is not finite"
