"""A launch: one kernel, run for each request of the group, under any interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ahbm_jax.tl.context import Context

Kernel = Callable[..., Any]
# How a kernel takes the G query heads of a KV head, as its attribute `heads` says: all folded into
# the rows of each rank; one after the other, each with a K and V of its own; or one on each CUBE.
FOLDED, ONE, PER_CUBE = "folded", "one", "per_cube"
# Where the rows of the output end up, as its attribute `rows` says: all on the group root, or those
# of `tl.own_queries()` on each rank.
AT_ROOT, BY_RANK = "at_root", "by_rank"
K = TypeVar("K", bound=Kernel)


def declare(
    *, heads: str = FOLDED, rows: str = AT_ROOT, on_units: bool = False
) -> Callable[[K], K]:
    """Decorator: what a driver must know of a kernel.

    That is how it takes query heads and leaves rows, and whether it is the program of the busiest
    of a device's units.
    """

    def declared(kernel: K) -> K:
        for name, value in (("heads", heads), ("rows", rows), ("on_units", on_units)):
            setattr(kernel, name, value)
        return kernel

    return declared


def heads_of(kernel: Kernel) -> str:
    """How a kernel takes query heads."""
    return getattr(kernel, "heads", FOLDED)


def on_units(kernel: Kernel) -> bool:
    """Whether a kernel is the program of the busiest of a device's units."""
    return getattr(kernel, "on_units", False)


def rows_of(kernel: Kernel) -> str:
    """Where a kernel leaves the rows of its output."""
    return getattr(kernel, "rows", AT_ROOT)


def run_program(interpreter: Any, kernel: Kernel) -> Any:
    """Run `kernel(tl, q, k, v, output)` for the launch's requests; returns the last one's result.

    Those that decode come first, then those with all query tokens: a mixed batch. Requests after
    the first start as soon as their rank is free. Each keeps its state in one of two scratch
    arenas, so that a partial still being sent is not overwritten.
    """
    tl, launch = Context(interpreter), interpreter.launch
    if _is(launch.users, 1) and _is(launch.decode_users, 0):
        return kernel(tl, *interpreter.tensors())

    def request() -> None:
        with tl.scratch_scope(buffers=2):
            kernel(tl, *interpreter.tensors())

    if not _is(launch.decode_users, 0):
        interpreter.repeat(launch.decode_users, request, launch.decoding())
    return interpreter.repeat(launch.users, request, launch)


def _is(number: Any, known: int) -> bool:
    """Whether a number is known to be `known`."""
    return isinstance(number, int) and number == known
