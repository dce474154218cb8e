"""Two-level reduce-to-root of partials (ADR-0060 section 4): PEs of a CUBE, then CUBEs of a group.

And the way back, which makes an all-reduce of it.

Data-driven, without a barrier: a rank sends as soon as it holds its partial, and folds in its
children's as they arrive, in an order fixed by the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial as partial_of
from typing import Any

from ahbm_jax.tl import Context, Handle, Ref, Step, Tensor
from kernels.online_softmax import Partial, merge, normalised


def reduce_and_store(tl: Context, partial: Partial, output: Tensor | Ref) -> Partial:
    """Merge the group's partials on the group root, which stores O / l. Returns the root's."""

    def across_cubes(inner: Partial) -> Partial:
        inner = reduce_on(tl, "cube", inner)
        tl.when(tl.is_root("cube"), lambda: tl.store(output, normalised(tl, inner)))
        return inner

    partial = reduce_on(tl, "pe", partial)
    return tl.on_pe(tl.is_root("pe"), across_cubes, partial)


def reduce_on(tl: Context, mesh: str, partial: Partial) -> Partial:
    """Merge the partials of one mesh on its root, along the launch's plan."""

    def fold_in_step(step: Step, mine: Partial) -> Partial:
        receives, received = _pass_on(tl, mesh, step, mine)
        return tl.when(receives, lambda *mine: merge(tl, mine, _parts(received)), *mine)

    return tl.steps(mesh, fold_in_step, partial)


def broadcast_on(tl: Context, mesh: str, partial: Partial) -> Partial:
    """The root's partial on every rank of one mesh, back along the launch's plan."""

    def take_in_step(step: Step, mine: Partial) -> Partial:
        receives, received = _pass_on(tl, mesh, step, mine)
        return tl.when(receives, lambda *_: _parts(received), *mine)

    return tl.steps(mesh, take_in_step, partial, "broadcast")


def _pass_on(
    tl: Context, mesh: str, step: Step, mine: Partial
) -> tuple[Any, list[Sequence[Handle]]]:
    """Whether this rank receives in a step, and what, by message; defined on receivers alone."""
    here = tl.position(mesh)
    sends, receives = step.sends(here), step.receives(here)
    received = []
    for message in [mine] if tl.launch.packed else [(part,) for part in mine]:
        tl.when(sends, partial_of(tl.send, step, mesh, message))
        received.append(tl.when(receives, partial_of(tl.recv, step, mesh, message)))
    return receives, received


def _parts(received: list[Sequence[Handle]]) -> Partial:
    m, l, o = (part for message in received for part in message)
    return m, l, o
