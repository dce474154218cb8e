"""KV that goes round: rings of PEs or CUBEs, nested, each with buffers to receive ahead into.

One turn of a ring passes what a rank holds to the next one, receives what comes, and meanwhile
works on what is at hand. A scope around each turn waits until the sends of the turn before have
left: what they read from is what this turn receives into.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ahbm_jax.tl import Context, Handle, Ref, Tile

Part = tuple[Handle, Handle]  # K [D, n] and V [n, D] of some tokens of one rank
Turns = dict[str, Any]  # of each ring so far
Visit = Callable[[Turns, Part, Any], Any]


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring along the cycle of `mesh`, and the buffers that it receives into, in turn.

    `sharers` PEs use a link between neighbours at once.
    """

    mesh: str
    spares: tuple[Part, Part]
    sharers: Any = 1


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is at hand after some turns: whether anybody looks at it, and where it came from."""

    wanted: Any
    tile: Tile
    source: tuple[Ref, Ref]

    def of(self, part: Part) -> Part:
        """It, in the buffers that hold it."""
        return part[0].columns(self.tile), part[1].rows(self.tile)


def go_round(
    tl: Context,
    rings: tuple[Ring, ...],
    part: Part,
    state: Any,
    *,
    arrival: Callable[[Turns], Arrival],
    visit: Visit,
    turns: Turns,
) -> Any:
    """`state = visit(turns, part, state)` for the parts of all ranks of the nested rings.

    After each turn of the first ring, what is at hand goes once round the others. Parts that nobody
    wants are not passed on.
    """
    if not rings:
        return visit(turns, part, state)
    ring, *inner = rings
    size = tl.position(ring.mesh).count

    def turn(index: Any, carry: tuple) -> tuple:
        held, spare, after, state = carry
        here, following = ({**turns, ring.mesh: index + ahead} for ahead in (0, 1))
        with tl.scratch_scope():
            more = index + 1 < size
            leaves, comes = arrival(here), arrival(following)
            received = _pass_on(
                tl, ring, leaves.of(held), spare, sends=leaves.wanted & more, comes=comes, more=more
            )
            state = go_round(
                tl, tuple(inner), held, state, arrival=arrival, visit=visit, turns=here
            )
        return received, after, received, state

    return tl.times(size, turn, (part, *ring.spares, state))[-1]


def _pass_on(
    tl: Context, ring: Ring, held: Part, spare: Part, *, sends: Any, comes: Arrival, more: Any
) -> Part:
    """Send what is held if it `sends`, and receive into `spare` what `comes`, one turn along."""
    step, here = tl.onward(ring.mesh), tl.position(ring.mesh)
    tl.when(
        step.sends(here) & sends,
        lambda: tl.send(step, ring.mesh, held, sharers=ring.sharers),
    )
    return tl.when(
        step.receives(here) & comes.wanted & more,
        lambda *_: tl.recv_async(step, ring.mesh, comes.source, out=spare),
        *spare,
    )
