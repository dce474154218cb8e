"""The sub-tile pipeline of a composite in closed form.

DMA fetches n equal sub-tiles, each occupying it for `fetch` and there `latency` later; GEMM takes
`multiply` for each, in order; DMA runs at most `depth` ahead. As a graph of n starts and n ends,
its longest paths take a DMA or a GEMM step for each sub-tile, or go from DMA to GEMM (one `turn`)
and back by a freed place in the window, which skips `depth` sub-tiles. The length is linear in the
number of such returns, so only none, one and the most need to be looked at.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

Number = Any


def streamed(
    dma: Number,
    gemm: Number,
    *,
    n: Number,
    fetch: Number,
    latency: Number,
    multiply: Number,
    depth: Number,
) -> tuple[Number, Number]:
    """When DMA and GEMM are free again, given when each may start; ns, n >= 1."""
    steps = n - 1.0
    returns = jnp.floor(steps / depth)
    rate = jnp.maximum(fetch, multiply)
    turn = fetch + latency + multiply

    def through(count: Number, turns: Number) -> Number:
        """Steps at the slower engine's rate, with `count` returns and `turns` turns."""
        return turns * turn + (steps - count * depth) * rate

    returning = returns > 0
    most = through(returns, returns)
    least = through(1.0, 1.0)
    # From GEMM's start a path reaches DMA by its first return only: one multiply, then back.
    back = multiply + jnp.maximum(through(1.0, 0.0), through(returns, returns - 1.0))
    dma_free = fetch + jnp.maximum(
        dma + jnp.maximum(steps * fetch, jnp.where(returning, jnp.maximum(least, most), 0.0)),
        jnp.where(returning, gemm + back, -jnp.inf),
    )
    gemm_free = jnp.maximum(
        dma + turn + jnp.maximum(steps * rate, most),
        gemm + jnp.maximum(n * multiply, jnp.where(returning, back + turn, 0.0)),
    )
    return dma_free, gemm_free
