"""What a kernel author imports."""

from ahbm_jax.machine.number import cdiv, clip, floordiv, maximum, minimum, where
from ahbm_jax.machine.topology import Step
from ahbm_jax.tl.context import LOWEST, Context, KernelError
from ahbm_jax.tl.handle import Block, Handle, Number, Ref, Tensor, Tile, Tiles
from ahbm_jax.tl.launch import Launch

__all__ = [
    "LOWEST",
    "Block",
    "Context",
    "Handle",
    "KernelError",
    "Launch",
    "Number",
    "Ref",
    "Step",
    "Tensor",
    "Tile",
    "Tiles",
    "cdiv",
    "clip",
    "floordiv",
    "maximum",
    "minimum",
    "where",
]
