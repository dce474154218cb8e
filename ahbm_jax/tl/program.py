"""A launch: one kernel, run for each request of the group, under any interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ahbm_jax.tl.context import Context

Kernel = Callable[..., Any]


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
