"""The attention kernels, written once against `ahbm_jax.tl`."""
