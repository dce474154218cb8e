"""What a kernel author imports."""

from ahbm_jax.machine.topology import Step
from ahbm_jax.tl.context import LOWEST, Context, KernelError
from ahbm_jax.tl.handle import Block, Handle, Ref, Tensor, Tile, Tiles

__all__ = [
    "LOWEST",
    "Block",
    "Context",
    "Handle",
    "KernelError",
    "Ref",
    "Step",
    "Tensor",
    "Tile",
    "Tiles",
]
