"""A bench file run whole: its points, their results and the check of their kernels' numbers."""

from ahbm_jax.bench.document import run_bench

__all__ = ["run_bench"]
