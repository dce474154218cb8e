"""What a kernel author imports."""

from ahbm_jax.machine.topology import Step
from ahbm_jax.tl.context import LOWEST, Context, KernelError
from ahbm_jax.tl.handle import Handle, Ref, Tensor, Tile, Tiles

__all__ = ["LOWEST", "Context", "Handle", "KernelError", "Ref", "Step", "Tensor", "Tile", "Tiles"]
