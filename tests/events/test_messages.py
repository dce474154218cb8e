"""Messages of the event simulation, and what waits for them: cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace as with_fields

import pytest
from events.programs import (
    LATE,
    LOOP,
    command,
    composite,
    elementwise,
    load,
    message,
    recv,
    run,
    scope,
    send,
)

from ahbm_jax.events import ARBITRATIONS, Deadlock
from ahbm_jax.interpret.record import Recorded


@pytest.mark.parametrize(
    ("fields", "left", "taken"),
    [({}, 13, 22), ({"hops": 2}, 13, 26), ({"sharers": 3}, 33, 42)],
)
def test_message(fields: dict[str, int], left: float, taken: float) -> None:
    done = run([send(0, 1, **fields)], [recv(0, 1)])
    assert done.finish_ns == {(0, 0): left, (0, 1): taken + 1}
    assert done.latency_ns == taken + 1


def test_a_message_waits_for_a_late_receiver() -> None:
    assert run([send(0, 1)], [LATE, recv(0, 1)]).finish_ns[0, 1] == 32


@pytest.mark.parametrize(
    ("depth", "left", "received"),
    [(1, 43, 53), (2, 25, 35)],  # taken at 31 and 52, or at 31 and 34
)
def test_back_pressure(depth: int, left: float, received: float) -> None:
    sender, receiver = [send(0, 1)] * 2, [LATE, *[recv(0, 1)] * 2]
    done = run(sender, receiver, **{"pe_link.queue_depth_messages": depth})
    assert done.finish_ns == {(0, 0): left, (0, 1): received}


def test_back_pressure_is_of_the_direction_whoever_receives() -> None:
    far = with_fields(send(0, 2), message=message(0, 2, hops=2))
    programs = [send(0, 1), far], [LATE, recv(0, 1)], [recv(0, 2)]
    done = run(*programs, **{"pe_link.queue_depth_messages": 1})
    assert done.finish_ns == {(0, 0): 43, (0, 1): 32, (0, 2): 57}


def test_a_blocked_port_holds_neither_cpu_nor_other_ports() -> None:
    """Rank 1 takes what came from 0 only after a message that depends on 0's port west."""
    middle = [send(1, 2), send(1, 2), send(1, 0)]
    left, right = [recv(1, 0), send(0, 2)], [recv(0, 2), recv(1, 2), recv(1, 2)]
    done = run(left, middle, right, **{"pe_link.queue_depth_messages": 1})
    # West: 3..15, there at 24. From 0: 26..38, there at 47. Then 48, which frees 48..60.
    assert done.finish_ns == {(0, 0): 38, (0, 1): 60, (0, 2): 70}


def test_recv_async_holds_nothing_but_its_users() -> None:
    receiver = [recv(0, 1, op="recv_async"), elementwise("exp", 8), elementwise("add", 4, 30)]
    assert run([send(0, 1)], receiver).finish_ns[0, 1] == 24  # 1, 2..8, 22 + 1 + 1


def test_the_scheduler_awaits_recv_async_not_the_cpu() -> None:
    """What the composite awaits is sent in answer to a later command: GEMM 45..53."""
    asks = [recv(1, 0, op="recv_async"), composite((30, 11)), send(0, 1)]
    done = run(asks, [recv(0, 1), send(1, 0)])
    assert done.finish_ns == {(0, 0): 59, (0, 1): 39}  # 4..16, 25, 27..39, 48..56


def test_a_scope_awaits_a_send_until_it_has_left() -> None:
    done = run([*scope(1, send(0, 1)), *scope(1, LOOP)], [recv(0, 1)])
    assert done.finish_ns[0, 0] == 14


def test_a_scope_awaits_recv_async() -> None:
    receiver = [*scope(1, recv(0, 1, op="recv_async")), *scope(1, LOOP)]
    assert run([send(0, 1)], receiver).finish_ns[0, 1] == 23


def test_send_awaits_its_operand() -> None:
    assert run([load(), send(0, 1, 1)], [recv(0, 1)]).finish_ns == {(0, 0): 34, (0, 1): 44}


@pytest.mark.parametrize(
    ("programs", "stuck"),
    [
        (([recv(1, 0), send(0, 1)], [recv(0, 1), send(1, 0)]), r"PE 0\) .* its `recv`"),
        (([send(0, 1), send(0, 1)], []), r"PE 0\) .* its `send`"),
        (([LOOP], [recv(0, 1), LOOP]), r"PE 1\) .* its `recv`"),
        (
            (
                [load(), command("wait", reads=(1,))],
                [recv(2, 1, op="recv_async"), elementwise("max", 4, 30)],
            ),
            r"PE 1\) .* `max`",
        ),
    ],
    ids=["both receive first", "never taken", "never sent", "never sent, awaited later"],
)
@pytest.mark.parametrize("arbitration", ARBITRATIONS)
def test_deadlock(programs: tuple[list[Recorded], ...], stuck: str, arbitration: str) -> None:
    changes = {"pe_link.queue_depth_messages": 1}
    with pytest.raises(Deadlock, match=stuck):
        run(*programs, arbitration=arbitration, **changes)
