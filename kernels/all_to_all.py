"""All-to-all fan-out: what every rank has goes to every other rank, in R - 1 rounds of one hop.

Over the CUBEs first, between PEs of one number. Then along the PEs of a CUBE, and each time
something has come from one of them, that over the CUBEs in turn. So each rank's data crosses one
link to each of the R - 1 others, and nothing is combined on the way. In a round a rank sends both
ways what came to it in the last one, receives from both sides, and takes in what it received.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial as partial_of
from typing import Any

from ahbm_jax.tl import Context, Handle, Round, Way

Data = tuple[Handle, ...]
State = tuple[Handle, ...]
Rank = tuple[Any, Any]  # (CUBE, PE)
Move = tuple[Way, Any, Any]  # a way, whether this rank sends on it, whether it receives
WAYS = 2


def all_to_all(
    tl: Context,
    data: Data,
    take: Callable[[State, Data, Rank], State],
    state: State,
    *,
    packed: bool,
) -> State:
    """`state = take(state, data, rank)` with the `data` of every other rank, on every rank.

    Args:
      tl: the context.
      data: what this rank has; of one shape on all ranks.
      take: folds one rank's data into the state.
      state: where it starts.
      packed: send the data as one message, not one for each handle.
    """
    own_cube, own_pe = tl.position("cube").index, tl.position("pe").index
    for _ in ("cube", "pe"):  # what comes one way must not overwrite what still leaves that way
        for handle in data * WAYS:
            tl.buffer(*handle.shape, handle.element_bytes)

    def over_cubes(state: State, data: Data, pe: Any, held: Any) -> State:
        def from_cube(state: State, data: Data, cube: Any, came: Any) -> State:
            return tl.when(came, lambda *old: take(old, data, (cube, pe)), *state)

        return fan_out(tl, "cube", data, from_cube, state, held=held, packed=packed)

    def from_pe(state: State, data: Data, pe: Any, came: Any) -> State:
        state = tl.when(came, lambda *old: take(old, data, (own_cube, pe)), *state)
        return over_cubes(state, data, pe, came)

    state = over_cubes(state, data, own_pe, True)
    return fan_out(tl, "pe", data, from_pe, state, held=True, packed=packed)


def fan_out(
    tl: Context,
    mesh: str,
    data: Data,
    take: Callable[[State, Data, Any, Any], State],
    state: State,
    *,
    held: Any,
    packed: bool,
) -> State:
    """`state = take(state, data, position, came)`, for both ways of each round on one mesh.

    `came` says whether data came, `position` whose it is; `held` whether the ranks of this line
    have any.
    """

    def one_round(both: Round, carry: tuple[State, Data, Data]) -> tuple[State, Data, Data]:
        state, *passed = carry
        at, ways = tl.position(mesh), (both.forward, both.backward)
        moves = [(way, held & way.sends(at), held & way.receives(at)) for way in ways]
        with tl.scratch_scope():
            came = exchange(tl, mesh, moves, passed, packed=packed)
            for data, (_, _, here), position in zip(came, moves, both.origins(at), strict=True):
                state = take(state, data, position, here)
        return state, *came

    return tl.steps(mesh, one_round, (state, data, data), "fan_out")[0]


def exchange(
    tl: Context, mesh: str, moves: Sequence[Move], passed: Sequence[Data], *, packed: bool
) -> tuple[Data, Data]:
    """Send what is `passed` each way; returns what came that way, which may be in flight yet."""
    sharers = tl.launch.placement.pes if mesh == "cube" else 1
    length = len(passed[0])
    came = [list(data) for data in passed]
    for message in [slice(length)] if packed else [slice(i, i + 1) for i in range(length)]:
        for (way, sends, _), data in zip(moves, passed, strict=True):
            tl.when(sends, partial_of(tl.send, way, mesh, data[message], sharers=sharers))
        for (way, _, receives), data in zip(moves, came, strict=True):
            data[message] = received(tl, way, mesh, receives, data[message])
    forward, backward = (tuple(data) for data in came)
    return forward, backward


def received(
    tl: Context, way: Way, mesh: str, receives: Any, old: Sequence[Handle]
) -> Sequence[Handle]:
    """The message that came, or `old` on ranks to which none did."""
    if len(old) == 1:
        return [tl.when(receives, partial_of(tl.recv_async, way, mesh), old[0])]
    return tl.when(receives, lambda *like: tl.recv_async(way, mesh, like), *old)
