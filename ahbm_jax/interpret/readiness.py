"""What the timing interpreter keeps of a handle, a pending command and a step of a plan."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from ahbm_jax.machine.topology import Position, Route

Array = jax.Array


@dataclass(frozen=True, slots=True)
class Ready:
    """When a handle is ready: at `clock` (None: no later than the CPU), in lanes `space`.

    `level` is the loop depth at which it was made; `drains` marks an accumulator that is ready
    when all composites are.
    """

    clock: Array | None
    space: str
    level: int
    drains: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TracedStep:
    """A step of a plan inside a compiled loop: all its messages go by one of `route_list`."""

    route_list: tuple[Route, ...]
    which: Array
    senders: Array
    receivers: Array

    def routes(self, at: Position, *, outgoing: bool) -> list[tuple[Route, Array]]:
        """Routes that a message may take, and whether it does."""
        return [(route, self.which == number) for number, route in enumerate(self.route_list)]

    def sends(self, at: Position) -> Array:
        """Whether each rank sends."""
        return self.senders

    def receives(self, at: Position) -> Array:
        """Whether each rank receives."""
        return self.receivers


@dataclass(frozen=True, slots=True)
class PendingScopes:
    """Scopes in which a pending ex_composite was issued: how many are still open, and those left.

    `left` holds (depth, generation): how many scopes of that depth have ended since.
    """

    open: int
    left: tuple[tuple[int, int], ...]

    def leave(self, depth: int) -> PendingScopes:
        """After the scope at `depth` ends."""
        left = tuple((d, g + 1) if d == depth else (d, g) for d, g in self.left)
        if depth < self.open:
            return PendingScopes(depth, (*left, (depth, 0)))
        return PendingScopes(self.open, left)

    def left_before(self, depth: int) -> int | None:
        """How many scopes at `depth` ended after the one it was issued in, None if in none."""
        return dict(self.left).get(depth)
