"""A launch: one kernel, run for each request of the group, under any interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ahbm_jax.tl.context import Context

Kernel = Callable[..., Any]
# How a kernel takes the G query heads of a KV head, as its attribute `heads` says: all folded into
# the rows of each rank; one after the other, each with a K and V of its own; or one on each CUBE.
FOLDED, ONE, PER_CUBE = "folded", "one", "per_cube"


def heads_of(kernel: Kernel) -> str:
    """How a kernel takes query heads."""
    return getattr(kernel, "heads", FOLDED)


def on_units(kernel: Kernel) -> bool:
    """Whether a kernel is the program of a device's busiest unit, as its attribute says."""
    return getattr(kernel, "on_units", False)


def run_program(interpreter: Any, kernel: Kernel) -> Any:
    """Run `kernel(tl, q, k, v, output)` for the launch's requests; returns the last one's result.

    Requests after the first start as soon as their rank is free. Each keeps its state in one of
    two scratch arenas, so that a partial still being sent is not overwritten.
    """
    tl = Context(interpreter)
    tensors = interpreter.tensors()
    users = interpreter.launch.users
    if isinstance(users, int) and users == 1:
        return kernel(tl, *tensors)

    def request() -> None:
        with tl.scratch_scope(buffers=2):
            kernel(tl, *tensors)

    return interpreter.repeat(users, request)
