"""The moves that a message may take in a step, and on which ranks it takes each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ahbm_jax.interpret.readiness import TracedStep
from ahbm_jax.machine.line import Way
from ahbm_jax.machine.number import where
from ahbm_jax.machine.topology import Step

if TYPE_CHECKING:
    from ahbm_jax.interpret.timing import Timing

AnyStep = Step | TracedStep | Way


def moves(
    t: Timing, step: AnyStep, mesh: str, *, sending: bool = True
) -> Iterator[tuple[str, int, Any]]:
    """Each (direction, hops) that a step may take, and whether it does.

    Steps of a way differ by rank: by what each sends, or by what it receives.
    """
    if isinstance(step, Way):
        at = t.position(mesh)
        for part in step.steps:
            yield part.direction, part.hops, part.sends(at) if sending else part.receives(at)
    elif isinstance(step, Step):
        yield step.direction, step.hops, True
    else:
        for number, (direction, hops) in enumerate(step.moves):
            yield direction, hops, step.which == number


def directions(t: Timing, step: AnyStep, mesh: str) -> Iterator[tuple[str, Any]]:
    """Each direction that a step may send in, and whether it does."""
    taken: dict[str, Any] = {}
    for direction, _, holds in moves(t, step, mesh):
        taken[direction] = holds if direction not in taken else taken[direction] | holds
    yield from taken.items()


def chosen(values: Iterable[tuple[Any, Any]]) -> Any:
    """The value whose condition holds: one does."""
    (_, out), *others = values
    for holds, value in others:
        out = where(holds, value, out)
    return out
