"""Kernels, written once against `ahbm_jax.tl`, by name and variant.

`KERNELS` compute attention. `PROGRAMS` stand for the busiest of a device's units, or measure one
cost: they have times alone, no values.
"""

from kernels import baselines, gqa_decode, gqa_prefill, microbench, prefill_ring, unit_attention

KERNELS = {
    "decode": gqa_decode.VARIANTS,
    "prefill": gqa_prefill.VARIANTS,
    "prefill_ring": prefill_ring.VARIANTS,
    **baselines.BASELINES,
}
PROGRAMS = {"microbench": microbench.VARIANTS, "unit_attention": unit_attention.VARIANTS}
