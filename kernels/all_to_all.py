"""All-to-all fan-out: what every rank has goes to every other rank, along a line and both ways.

In round 0 each rank sends its own to its two neighbours on the line of all ranks (`tl.line`), in
every later one what came from one neighbour to the other: after R - 1 rounds everything has been
everywhere. Nothing is combined on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial as partial_of
from typing import Any

from ahbm_jax.tl import Context, Handle, Line, Link

Data = tuple[Handle, ...]
State = tuple[Handle, ...]
Rank = tuple[Any, Any]  # (CUBE, PE)
Take = Callable[[State, Data, Rank], State]
BOTH_WAYS = 2


def all_to_all(tl: Context, data: Data, take: Take, state: State, *, packed: bool) -> State:
    """`state = take(state, data, rank)` with the `data` of every other rank, on every rank.

    Args:
      tl: the context.
      data: what this rank has; of one shape on all ranks.
      take: folds one rank's data into the state.
      state: where it starts.
      packed: send the data as one message, not one for each handle.
    """
    ranks, (line, links) = tl.launch.placement.ranks, tl.line()
    for handle in data * BOTH_WAYS:  # what comes must not overwrite what has not left yet
        tl.buffer(*handle.shape, like=handle)

    def one_round(number: Any, carry: tuple[State, Data, Data]) -> tuple[State, Data, Data]:
        state, onward, back = carry
        origins = line.index - number - 1, line.index + number + 1
        comes = origins[0] >= 0, origins[1] < ranks
        goes = line.index >= number, line.index + number < ranks
        with tl.scratch_scope():
            came = exchange(tl, links, (onward, back), goes, comes, packed=packed)
            for data, here, origin in zip(came, comes, origins, strict=True):
                state = tl.when(here, partial_of(_taken, take, data, line, origin), *state)
        return state, *came

    return tl.times(ranks - 1, one_round, (state, data, data))[0]


def _taken(take: Take, data: Data, line: Line, origin: Any, *state: Handle) -> State:
    return take(state, data, line.rank_at(origin))


def exchange(
    tl: Context,
    links: Sequence[Link],
    passed: tuple[Data, Data],
    goes: tuple[Any, Any],
    comes: tuple[Any, Any],
    *,
    packed: bool,
) -> tuple[Data, Data]:
    """Send what is `passed` onward and back where it `goes`; returns what came where it `comes`.

    What came may be in flight yet. Where nothing came it is what was passed.
    """
    length = len(passed[0])
    onward, back = (list(data) for data in passed)
    for message in [slice(length)] if packed else [slice(i, i + 1) for i in range(length)]:
        for link in links:
            sends = link.sends & (link.onward & goes[0] | link.back & goes[1])
            sent = chosen(tl, link.onward, passed[0][message], passed[1][message])
            tl.when(sends, partial_of(tl.send, link.way, link.mesh, sent))
        for link in links:
            ahead, behind = (
                link.receives & link.onward & comes[0],
                link.receives & link.back & comes[1],
            )
            like = chosen(tl, link.onward, onward[message], back[message])
            came = received(tl, link, ahead | behind, like)
            onward[message] = chosen(tl, ahead, came, onward[message])
            back[message] = chosen(tl, behind, came, back[message])
    return tuple(onward), tuple(back)


def received(tl: Context, link: Link, here: Any, old: Sequence[Handle]) -> Sequence[Handle]:
    """A message shaped as `old` where one comes, `old` elsewhere."""
    if len(old) == 1:
        return [tl.when(here, partial_of(tl.recv_async, link.way, link.mesh), old[0])]
    return tl.when(here, lambda *like: tl.recv_async(link.way, link.mesh, like), *old)


def chosen(tl: Context, condition: Any, a: Sequence[Handle], b: Sequence[Handle]) -> list[Handle]:
    """`a` where the condition holds, else `b`: no command."""
    return [tl.when(condition, lambda _, x=x: x, y) for x, y in zip(a, b, strict=True)]
