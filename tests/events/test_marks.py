"""The graph of instants, and the critical path read from it, on random points."""

from __future__ import annotations

from dataclasses import replace as with_fields

import pytest
from contracts.agreement import STRUCTURES
from contracts.points import points
from events.programs import elementwise, message, recv, run, send
from hypothesis import given, settings
from hypothesis import strategies as st

from ahbm_jax.events import ARBITRATIONS, Timeline, simulate_point
from ahbm_jax.events.marks import ORIGIN, Marks
from kernels import KERNELS

LONGEST = 1500  # tokens
VARIANTS = [(kernel, variant) for kernel, variants in KERNELS.items() for variant in variants]


@pytest.mark.parametrize("arbitration", ARBITRATIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_laws(arbitration: str, data: st.DataObject) -> None:
    kernel, variant = data.draw(st.sampled_from(VARIANTS))
    structure = STRUCTURES[data.draw(st.sampled_from(sorted(STRUCTURES)))]
    point = data.draw(points(kernel, variant, structure, LONGEST))
    check(simulate_point(point, arbitration=arbitration))


def test_laws_where_messages_meet_and_wait() -> None:
    """Decode has neither: a message that queues for its second link, and one taken late."""
    far = with_fields(send(0, 2), message=message(0, 2, hops=2))
    late = [recv(1, 2), recv(0, 2, op="recv_async"), elementwise("max", 4, 30)]
    check(run([far], [send(1, 2)], late, arbitration="first_come"))


def check(done: Timeline) -> None:
    """Marks, path and slack of a simulation."""
    marks, end = done.marks, done.latency_ns
    for mark, causes in enumerate(marks.causes):
        if mark != ORIGIN:
            spent = sum(ns for _, ns in marks.spent[mark])
            latest = max(marks.times_ns[cause] for cause in causes)
            assert max(causes) < mark
            assert marks.times_ns[mark] == pytest.approx(latest + spent, rel=1e-12, abs=1e-9)

    path = list(done.critical_path())
    at = 0.0
    for _, start, stop, costs in path:
        assert start == pytest.approx(at, rel=1e-12, abs=1e-9)  # nothing between two steps
        assert stop - start == pytest.approx(sum(ns for _, ns in costs), rel=1e-9, abs=1e-9)
        at = stop
    assert at == pytest.approx(end, rel=1e-12)
    assert sum(done.spent_ns().values()) == pytest.approx(end, rel=1e-9)

    slack = marks.slack_ns(done.end)
    assert min(slack) >= -1e-9
    assert max(slack[mark] for mark in marks.path_to(done.end)) <= 1e-9


def test_slack_by_hand() -> None:
    """Two ways to the end, 7 and 10 long, and a mark that nothing waits for."""
    marks = Marks()
    short = marks.add(3.0, (ORIGIN,), 0, (("a", 3.0),))
    long = marks.add(6.0, (ORIGIN,), 1, (("b", 6.0),))
    aside = marks.add(9.0, (long,), 1, (("b", 3.0),))
    end = marks.add(10.0, (short, long), 2, (("a", 1.0), ("c", 3.0)))
    assert marks.path_to(end) == [ORIGIN, long, end]
    assert marks.slack_ns(end) == [0.0, 3.0, 0.0, float("inf"), 0.0]
    assert marks.path_to(aside) == [ORIGIN, long, aside]
