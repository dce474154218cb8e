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

from ahbm_jax.tl import Context, Handle, Round, Step

Data = tuple[Handle, ...]
State = tuple[Handle, ...]
Rank = tuple[Any, Any]  # (CUBE, PE)
Move = tuple[Step, Any, Any]  # a step, whether this rank sends in it, whether it receives
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
    """`state = take(state, data, position, came)`, both ways in each round on one mesh.

    `came` says whether data came that way, `position` whose it is; `held` whether the ranks of
    this line have any.
    """

    def one_round(both: Round, carry: tuple[State, Data, Data]) -> tuple[State, Data, Data]:
        state, *passed = carry
        at = tl.position(mesh)
        ways = [
            [(step, held & step.sends(at), held & step.receives(at)) for step in way]
            for way in both.ways
        ]
        with tl.scratch_scope():
            forward, backward = exchange(tl, mesh, ways, passed, packed=packed)
            for way, data, position in zip(
                ways, (forward, backward), both.origins(at), strict=True
            ):
                state = take(state, data, position, any_of([came for _, _, came in way]))
        return state, forward, backward

    return tl.steps(mesh, one_round, (state, data, data), "fan_out")[0]


def exchange(
    tl: Context, mesh: str, ways: Sequence[Sequence[Move]], passed: Sequence[Data], *, packed: bool
) -> list[Data]:
    """Send what is `passed` on each way; returns what came that way, maybe still in flight."""
    sharers = tl.launch.placement.pes if mesh == "cube" else 1
    length = len(passed[0])
    messages = [slice(length)] if packed else [slice(i, i + 1) for i in range(length)]
    came = [list(data) for data in passed]
    for message in messages:
        for way, data in zip(ways, passed, strict=True):
            for step, sends, _ in way:
                send = partial_of(tl.send, step, mesh, data[message], sharers=sharers)
                tl.when(sends, send)
        for way, data in zip(ways, came, strict=True):
            for step, _, receives in way:
                data[message] = received(tl, step, mesh, receives, data[message])
    return [tuple(data) for data in came]


def received(
    tl: Context, step: Step, mesh: str, receives: Any, old: Sequence[Handle]
) -> Sequence[Handle]:
    """The message of `step` where this rank receives one, `old` elsewhere."""
    if len(old) == 1:
        return [tl.when(receives, partial_of(tl.recv_async, step, mesh), old[0])]
    return tl.when(receives, lambda *like: tl.recv_async(step, mesh, like), *old)


def any_of(conditions: Sequence[Any]) -> Any:
    """Whether one of them holds."""
    out = conditions[0]
    for condition in conditions[1:]:
        out = out | condition
    return out
