"""Prefill of one KV head (ADR-0060 section 5.4): query tokens in blocks, causal, chunk by chunk.

The G heads of a block's tokens fold into the rows of GEMM, as in decode, and each block sweeps the
tiles that it sees: all-past tiles unmasked, partial ones masked, all-future ones never issued. On
one rank nothing is left to do; on more, each block's partials are reduced to the group root, which
moves [T, d] from every rank: what the ring avoids.
"""

from __future__ import annotations

from collections.abc import Callable

from ahbm_jax.tl import Block, Context, Tensor
from kernels.gqa_decode import SWEEPS, Sweep
from kernels.online_softmax import Partial
from kernels.reduce import reduce_and_store


def _variant(sweep: Sweep) -> Callable:
    def kernel(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> Partial:
        def attend(queries: Block) -> Partial:
            with tl.scratch_scope():
                partial = sweep(tl, tl.load(tl.ref(q, queries)), k, v, queries)
                return reduce_and_store(tl, partial, tl.ref(output, queries))

        return tl.for_each(tl.blocks(), attend)

    kernel.__doc__ = sweep.__doc__
    return kernel


VARIANTS = {name: _variant(sweep) for name, sweep in SWEEPS.items() if name != "one_shot"}
