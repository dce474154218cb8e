"""One combination of a sweep's choices: its kernel, and the leaves of points by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ahbm_jax.interpret.evaluate import Static, leaf_names
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.knobs import Point, point
from ahbm_jax.sweeps.program import spread
from ahbm_jax.sweeps.request import Request
from ahbm_jax.sweeps.space import Block

Leaves = tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a block's choices settle; `leaves` compiles once and serves all their blocks.

    Attributes:
      kernel: the kernel's function.
      static: what an evaluation of it is specialised to.
      energies: numbers of the machine's energy section; 0 without one.
      leaves: of the values that vary, a block's start and shape: leaves and energies [size].
    """

    kernel: Kernel
    static: Static
    energies: int
    leaves: Callable[..., Leaves]


def choice_of(request: Request, block: Block, size: int) -> Choice:
    """The choice that a block holds.

    Numbers are settled as tracers, so that what is compiled does not depend on their values.

    Raises:
      UsageError: the kernel, machine or model refuses it.
    """
    space = request.space
    machine, workload, held = request.settings(space.choices(block))
    settled: list[Point] = []

    def leaves(values: dict[str, jax.Array], start: jax.Array, shape: jax.Array) -> Leaves:
        given = space.numbers(values, start, shape, size)
        if "context" in given and "cache_tokens" not in given | held:
            given = given | {"cache_tokens": jnp.maximum(given["context"], 1)}
        if "C" in given:
            given["C"] = given["C"].astype(jnp.int32)  # which is looked up in a table
        dtype = jnp.result_type(float)

        def wide(x: Any) -> jax.Array:
            return jnp.broadcast_to(jnp.asarray(x, dtype), size)

        one = point(request.kernel, machine, workload, held | given)
        settled.append(one)
        found = tuple(wide(one.leaves[name]) for name in leaf_names(one.static))
        return found, tuple(map(wide, jax.tree.leaves(one.machine.energy)))

    lowered = jax.jit(leaves, out_shardings=spread()).lower(*arguments(request, block))
    one = settled[0]
    energies = len(jax.tree.leaves(one.machine.energy))
    return Choice(one.kernel, one.static, energies, lowered.compile())


def arguments(request: Request, block: Block) -> tuple[dict[str, np.ndarray], Any, Any]:
    """What `Choice.leaves` takes of a block."""
    dtype = np.dtype(jnp.result_type(float))
    values = {
        name: x.astype(dtype)
        for dimension in request.space.dimensions
        if dimension.numeric
        for name, x in dimension.knobs.items()
    }
    return values, np.array(block.start, np.int32), np.array(block.shape, np.int32)
