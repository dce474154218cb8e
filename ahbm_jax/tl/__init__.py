"""What a kernel author imports."""

from ahbm_jax.machine.line import Line, Link, Way
from ahbm_jax.machine.number import cdiv, clip, floordiv, maximum, minimum, where
from ahbm_jax.machine.topology import Step
from ahbm_jax.tl.context import LOWEST, Context, KernelError
from ahbm_jax.tl.handle import Block, Handle, Number, Ref, Tensor, Tile, Tiles
from ahbm_jax.tl.launch import Launch
from ahbm_jax.tl.program import AT_ROOT, BY_RANK, FOLDED, ONE, PER_CUBE, declare

__all__ = [
    "AT_ROOT",
    "BY_RANK",
    "FOLDED",
    "LOWEST",
    "ONE",
    "PER_CUBE",
    "Block",
    "Context",
    "Handle",
    "KernelError",
    "Launch",
    "Line",
    "Link",
    "Number",
    "Ref",
    "Step",
    "Tensor",
    "Tile",
    "Tiles",
    "Way",
    "cdiv",
    "clip",
    "declare",
    "floordiv",
    "maximum",
    "minimum",
    "where",
]
