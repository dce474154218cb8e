"""The closed form of a composite's sub-tile pipeline against stepping through it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ahbm_jax.interpret.pipeline import streamed

times = st.one_of(st.integers(0, 30).map(float), st.floats(0, 100))


def stepped(
    dma: float, gemm: float, n: int, fetch: float, latency: float, multiply: float, depth: int
) -> tuple[float, float]:
    ends: list[float] = []
    for i in range(n):
        start = max(dma, ends[i - depth]) if i >= depth else dma
        dma = start + fetch
        gemm = max(gemm, dma + latency) + multiply
        ends.append(gemm)
    return dma, gemm


@given(times, times, st.integers(1, 60), times, times, times, st.integers(1, 40))
def test_equals_stepping(
    dma: float, gemm: float, n: int, fetch: float, latency: float, multiply: float, depth: int
) -> None:
    expected = stepped(dma, gemm, n, fetch, latency, multiply, depth)
    with jax.enable_x64(True):
        got = streamed(
            jnp.float64(dma),
            jnp.float64(gemm),
            n=jnp.float64(n),
            fetch=jnp.float64(fetch),
            latency=jnp.float64(latency),
            multiply=jnp.float64(multiply),
            depth=jnp.float64(depth),
        )
    np.testing.assert_allclose([float(x) for x in got], expected, rtol=1e-12, atol=1e-12)
