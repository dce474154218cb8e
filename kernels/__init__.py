"""The attention kernels, written once against `ahbm_jax.tl`; `KERNELS` names their variants."""

from kernels import baselines, gqa_decode, gqa_prefill

KERNELS = {
    "decode": gqa_decode.VARIANTS,
    "prefill": gqa_prefill.VARIANTS,
    **baselines.BASELINES,
}
