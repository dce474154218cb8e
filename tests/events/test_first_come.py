"""Links taken first come, first served: cases worked out by hand, beside the static ones.

A message of 10 bytes: issue 0..1, port 1..3, its bytes 3..13 on the first link; its head is at the
next link 4 later, and all of it is there 10 + 4 + 5 after the head is on the last one.
"""

from __future__ import annotations

from dataclasses import replace as with_fields

import pytest
from events.programs import LATE, Programs, elementwise, message, recv, run, run_ranks, send

from ahbm_jax.errors import UsageError
from ahbm_jax.events import ARBITRATIONS, Timeline
from ahbm_jax.interpret.record import Recorded

FAR = with_fields(send(0, 2), message=message(0, 2, hops=2))  # by way of PE 1


def first_come(*programs: list[Recorded], **changes: int) -> Timeline:
    return run(*programs, arbitration="first_come", **changes)


@pytest.mark.parametrize("arbitration", ARBITRATIONS)
def test_no_contention(arbitration: str) -> None:
    """One hop: there at 22; two hops: at 26."""
    near = run([send(0, 1)], [recv(0, 1)], arbitration=arbitration)
    assert near.finish_ns == {(0, 0): 13, (0, 1): 23}
    far = run([FAR], [], [recv(0, 2)], arbitration=arbitration)
    assert far.finish_ns == {(0, 0): 13, (0, 1): 0, (0, 2): 27}


def test_the_second_waits_for_the_bytes_of_the_first() -> None:
    """The link from PE 1 on: PE 1's message 3..13; the head from PE 0, there at 7, 13..23."""
    programs = [FAR], [send(1, 2)], [recv(1, 2), recv(0, 2)]
    assert run(*programs).finish_ns == {(0, 0): 13, (0, 1): 13, (0, 2): 27}
    assert first_come(*programs).finish_ns == {(0, 0): 13, (0, 1): 13, (0, 2): 33}


def test_who_comes_first_is_served_first() -> None:
    """The link from PE 1 on: PE 0's message 7..17; PE 1's, from its port at 10, 17..27."""
    late = [elementwise("exp", 8), send(1, 2)]  # MATH 1..7, issue 7..8, port 8..10
    done = first_come([FAR], late, [recv(0, 2), recv(1, 2)])
    assert done.finish_ns == {(0, 0): 13, (0, 1): 27, (0, 2): 37}
    assert done.busy_ns[0, 1]["port"] == 12  # waiting for a link is not being busy


def test_directions_have_links_of_their_own() -> None:
    """East: bytes 3..13, there at 22. West, issued after it: 4..14, there at 23."""
    done = first_come([recv(1, 0)], [send(1, 2), send(1, 0)], [recv(1, 2)])
    assert done.finish_ns == {(0, 0): 24, (0, 1): 14, (0, 2): 23}


def test_a_link_is_free_for_who_comes_after_its_bytes() -> None:
    done = first_come([FAR], [LATE, send(1, 2)], [recv(0, 2), recv(1, 2)])
    assert done.finish_ns == {(0, 0): 13, (0, 1): 44, (0, 2): 54}  # port 32..44, there at 53


def lanes() -> Programs:
    """Two PEs of CUBE 0 that send at once to those of CUBE 1, each told to get half of the link."""
    programs: Programs = {}
    for lane in (0, 1):
        ends = {"mesh": "cube", "source": (0, lane), "target": (1, lane), "sharers": 2}
        shared = with_fields(message(0, 1), **ends)
        programs[0, lane] = [with_fields(send(0, 1), message=shared)]
        programs[1, lane] = [with_fields(recv(0, 1), message=shared)]
    return programs


def test_sharers_of_a_link() -> None:
    """Static: ports 1..23, half as fast, both there at 32. First come: bytes 3..13 and 13..23."""
    static, queued = (run_ranks(lanes(), arbitration=name) for name in ("static", "first_come"))
    assert static.finish_ns == {(0, 0): 23, (0, 1): 23, (1, 0): 33, (1, 1): 33}
    assert queued.finish_ns == {(0, 0): 13, (0, 1): 23, (1, 0): 23, (1, 1): 33}


def test_an_unknown_arbitration_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'first-come' \(did you mean .*; allowed: static, "):
        run([], arbitration="first-come")
