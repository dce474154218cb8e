"""Design spaces: every point of a grid or a sample of knobs, evaluated in chunks of a store."""

from ahbm_jax.sweeps.design import latin, sobol
from ahbm_jax.sweeps.entry import Summary, sweep, sweep_to_store

__all__ = ["Summary", "latin", "sobol", "sweep", "sweep_to_store"]
