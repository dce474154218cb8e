"""Two-level reduce-to-root of partials (ADR-0060 section 4): PEs of a CUBE, then CUBEs of a group.

Data-driven, without a barrier: a rank sends as soon as it holds its partial, and folds in its
children's as they arrive, in an order fixed by the plan.
"""

from __future__ import annotations

from functools import partial as partial_of

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
        here = tl.position(mesh)
        sends, receives = step.sends(here), step.receives(here)
        messages = [mine] if tl.launch.packed else [(part,) for part in mine]
        received = []  # by message; defined on receivers alone
        for message in messages:
            tl.when(sends, partial_of(tl.send, step, mesh, message))
            received.append(tl.when(receives, partial_of(tl.recv, step, mesh, message)))

        def fold_in(m: Handle, l: Handle, o: Handle) -> Partial:
            theirs = [part for message in received for part in message]
            return merge(tl, (m, l, o), (theirs[0], theirs[1], theirs[2]))

        return tl.when(receives, fold_in, *mine)

    return tl.steps(mesh, fold_in_step, partial)
