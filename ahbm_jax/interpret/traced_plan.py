"""A communication plan inside a compiled loop: one body for all of its items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ahbm_jax.machine.topology import Position, Step

Array = jax.Array
Plan = Sequence[Any]  # of steps, or of trees of steps and numbers, all of one structure


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step of a plan inside a compiled loop: one of `moves`, (direction, hops), by number."""

    moves: tuple[tuple[str, int], ...]
    which: Array
    senders: Array
    receivers: Array

    @property
    def direction(self) -> str:
        """Direction of a step that has one move."""
        ((direction, _),) = self.moves
        return direction

    @property
    def hops(self) -> int:
        """Hops of a step that has one move."""
        ((_, hops),) = self.moves
        return hops

    def sends(self, at: Position) -> Array:
        """Whether each rank sends."""
        return self.senders

    def receives(self, at: Position) -> Array:
        """Whether each rank receives."""
        return self.receivers


def steps_of(plan: Plan) -> tuple[Step, ...]:
    """All steps of a plan, item by item."""
    return tuple(leaf for leaf in jax.tree.leaves(list(plan)) if isinstance(leaf, Step))


class TracedPlan:
    """Items of `plan` for a scan over `xs`, of which `item` makes what the body sees.

    Args:
      plan: the items.
      sends: who sends in each of `steps_of(plan)`, stacked.
      receives: who receives.
      dtype: of numbers.
    """

    def __init__(self, plan: Plan, sends: Array, receives: Array, dtype: Any) -> None:
        self._structure = jax.tree.structure(plan[0])
        columns = list(zip(*map(jax.tree.leaves, plan), strict=True))
        self._moves = [_moves(column) for column in columns]
        self.xs: list[Any] = []
        stride = len(columns) - self._moves.count(())
        for column, moves in zip(columns, self._moves, strict=True):
            if not moves:
                self.xs.append(jnp.asarray(column, dtype))
                continue
            which = jnp.array([moves.index((step.direction, step.hops)) for step in column])
            place = sum(isinstance(x, tuple) for x in self.xs)
            self.xs.append((which, sends[place::stride], receives[place::stride]))

    def item(self, x: Sequence[Any]) -> Any:
        """An item, of its part of `xs`."""
        leaves = [
            TracedStep(moves, *part) if moves else part
            for moves, part in zip(self._moves, x, strict=True)
        ]
        return jax.tree.unflatten(self._structure, leaves)

    @property
    def first(self) -> Any:
        """The first item."""
        return self.item(jax.tree.map(lambda x: x[0], self.xs))


def _moves(column: Sequence[Any]) -> tuple[tuple[str, int], ...]:
    """Moves of a column of steps; none of a column of numbers."""
    return tuple(dict.fromkeys((x.direction, x.hops) for x in column if isinstance(x, Step)))
