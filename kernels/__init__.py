"""The attention kernels, written once against `ahbm_jax.tl`; `KERNELS` names their variants."""

from kernels import baselines, gqa_decode, gqa_prefill, prefill_ring

KERNELS = {
    "decode": gqa_decode.VARIANTS,
    "prefill": gqa_prefill.VARIANTS,
    "prefill_ring": prefill_ring.VARIANTS,
    **baselines.BASELINES,
}
