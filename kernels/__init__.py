"""The attention kernels, written once against `ahbm_jax.tl`; `KERNELS` names their variants."""

from kernels.gqa_decode import VARIANTS

KERNELS = {"decode": VARIANTS}
