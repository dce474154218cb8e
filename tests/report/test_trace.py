"""A trace says what the timeline says: every slice, message and count, in a form viewers take."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from events.programs import elementwise, recv, run, send

from ahbm_jax import load_machine, load_workload
from ahbm_jax.events import Timeline, simulate
from ahbm_jax.machine.params import replace
from ahbm_jax.report.slices import KINDS, Slices
from ahbm_jax.report.trace import chrome_trace, write_trace

Events = list[dict[str, Any]]
POINTS = [
    {"variant": "opt3"},
    {"variant": "opt1", "arbitration": "first_come"},
    {"variant": "opt2", "query_length": 3},
    {"variant": "opt3v", "packed": True, "users": 2},
    {"variant": "dot"},
    {"variant": "one_shot", "context": 2},  # fewer tokens than ranks
]


@pytest.fixture(scope="module", params=POINTS, ids=lambda point: point["variant"])
def timeline(request: pytest.FixtureRequest) -> Timeline:
    # A clock that no decimal fits, so that rounding is tried too.
    machine = replace(load_machine("ahbm_4sip"), {"clock.frequency_ghz": 0.7})
    knobs = {"context": 2500, "C": 4, "P": 3, "tile": 64} | request.param
    return simulate("decode", machine, load_workload("llama3_70b"), **knobs)


@pytest.fixture(scope="module")
def events(timeline: Timeline) -> Events:
    return chrome_trace(timeline)["traceEvents"]


def of(events: Events, *phases: str) -> Events:
    return [event for event in events if event["ph"] in phases]


def names(events: Events, what: str) -> dict[Any, str]:
    """By process, or by thread."""
    found = [event for event in of(events, "M") if event["name"] == what]
    key = "pid" if what == "process_name" else "tid"
    assert len({event[key] for event in found}) == len(found)
    return {event[key]: event["args"]["name"] for event in found}


def slices_by_thread(events: Events) -> dict[int, Events]:
    threads = defaultdict(list)
    for event in of(events, "X"):
        threads[event["tid"]].append(event)
    return threads


def test_processes_are_cubes_and_threads_are_workers(timeline: Timeline, events: Events) -> None:
    assert list(names(events, "process_name").values()) == [f"CUBE {i}" for i in range(4)]
    assert 0 not in {event["pid"] for event in events}  # which viewers take for idle
    threads = names(events, "thread_name")
    workers = {"cpu": "CPU", "dma": "DMA", "gemm": "GEMM", "math": "MATH"}
    for pe in range(3):
        for shown in workers.values():
            assert list(threads.values()).count(f"PE {pe} {shown}") == 4
    assert sum("port" in name for name in threads.values()) == sum(
        worker.startswith("port") for lanes in timeline.spans.values() for worker in lanes
    )
    order = {
        event["tid"]: event["args"]["sort_index"]
        for event in of(events, "M")
        if event["name"] == "thread_sort_index"
    }
    assert sorted(order, key=order.__getitem__) == list(threads)
    assert {event["tid"] for event in of(events, "X", "s", "f")} <= set(threads)


def test_slices_of_a_thread_do_not_overlap(timeline: Timeline, events: Events) -> None:
    assert max(event["ts"] + event["dur"] for event in of(events, "X")) == pytest.approx(
        max(span.end_ns for lanes in timeline.spans.values() for x in lanes.values() for span in x)
        / 1e3
    )
    for slices in slices_by_thread(events).values():
        assert all(event["dur"] >= 0 for event in slices)
        for before, after in pairwise(slices):
            assert before["ts"] + before["dur"] <= after["ts"]


def test_every_span_and_hold_is_a_slice(timeline: Timeline, events: Events) -> None:
    spans = sum(len(spans) for lanes in timeline.spans.values() for spans in lanes.values())
    held = [event for event in of(events, "X") if event["cat"] == "held"]
    assert len(held) == sum(map(len, timeline.holds.values()))
    assert len(of(events, "X")) == spans + len(held)
    assert {event["cat"] for event in of(events, "X")} <= set(KINDS)


def test_busy_times_add_up(timeline: Timeline, events: Events) -> None:
    threads = names(events, "thread_name")
    processes = names(events, "process_name")
    found: dict[Any, float] = defaultdict(float)
    for event in of(events, "X"):
        _, pe, worker, *_ = threads[event["tid"]].split()
        rank = int(processes[event["pid"]].removeprefix("CUBE ")), int(pe)
        if worker == "CPU":
            found[rank, "cpu"] += 1e3 * event["dur"] * (event["cat"] == "issue")
        else:
            found[rank, worker.lower()] += event["args"]["busy_ns"]
    for rank, busy in timeline.busy_ns.items():
        for worker, busy_ns in busy.items():
            assert found[rank, worker] == pytest.approx(busy_ns, abs=0.5), (rank, worker)


def test_every_message_ends_in_its_receive(timeline: Timeline, events: Events) -> None:
    slices = slices_by_thread(events)

    def command(event: dict[str, Any]) -> int:
        """Of the slice that begins with a message's end."""
        (number,) = (
            each["args"]["command"] for each in slices[event["tid"]] if each["ts"] == event["ts"]
        )
        return number

    flows: dict[int, dict[str, Any]] = defaultdict(dict)
    for event in of(events, "s", "f"):
        flows[event["id"]][event["ph"]] = event
    sends = [i for i, each in enumerate(timeline.commands) if each.op == "send"]
    assert sorted(command(flow["s"]) for flow in flows.values()) == sends
    for flow in flows.values():
        send, receive = command(flow["s"]), command(flow["f"])
        assert flow["s"]["ts"] < flow["f"]["ts"]
        assert timeline.commands[receive].op == "recv"
        assert send in timeline.waits_for[receive]


def test_counters_come_back(timeline: Timeline, events: Events) -> None:
    counters: dict[Any, list[float]] = defaultdict(list)
    times: dict[Any, list[float]] = defaultdict(list)
    for event in of(events, "C"):
        counters[event["pid"], event["name"]].append(event["args"]["value"])
        times[event["pid"], event["name"]].append(event["ts"])
    assert all(a < b for each in times.values() for a, b in pairwise(each))
    last = dict(zip(timeline.ranks, timeline.commands, strict=True))
    for (pid, name), values in counters.items():
        assert min(values) >= 0
        assert all(a != b for a, b in pairwise(values))
        if name.endswith("scratch bytes"):
            rank = (pid - 1, int(name.split()[1]))
            assert values[-1] == last[rank].scratch_bytes
            assert max(values) <= max(entry.scratch_peak_bytes for entry in timeline.records)
        else:
            assert values[-1] == 0
        if name.endswith("in flight"):
            assert max(values) <= 4  # the machine's queue


def test_a_trace_is_the_same_each_time(timeline: Timeline, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        write_trace(timeline, tmp_path / name)
    text = (tmp_path / "a.json").read_text()
    assert text == (tmp_path / "b.json").read_text()
    assert json.loads(text) == chrome_trace(timeline)
    assert ": " not in text.replace('": "', "")


def test_slices_are_named_by_op_and_tile() -> None:
    point = {"variant": "opt3v", "context": 600, "C": 1, "P": 2, "tile": 100}
    shown = Slices(
        simulate("decode", load_machine("ahbm_4sip"), load_workload("llama3_70b"), **point)
    )
    lanes = shown.lanes((0, 0))
    assert named(lanes["dma"])[:4] == ["load q", "composite k[0]", "composite k[1]", "load v[0]"]
    assert named(lanes["gemm"])[:3] == ["composite k[0]", "composite k[1]", "composite v[0]"]
    assert [each.kind for each in lanes["gemm"][:3]] == ["Q K^T", "Q K^T", "P V"]
    assert "exp [2]" in named(lanes["math"])
    cpu = set(named(lanes["cpu"]))
    assert {"issue composite k[0]", "issue loop [0]", "issue recv from PE 1"} <= cpu
    assert {"held by composite v[0]", "held by exp [1]"} <= cpu
    assert "held by a message from CUBE 0 PE 1" in cpu
    assert named(shown.lanes((0, 1))["port.pe.W"]) == ["send to PE 0"] * 3


def named(slices: Iterable[Any]) -> list[str]:
    return [each.name for each in slices]


def test_what_a_slice_tells() -> None:
    point = {"variant": "opt3", "context": 512, "C": 1, "P": 1, "tile": 256}
    done = simulate("decode", load_machine("ahbm_4sip"), load_workload("llama3_70b"), **point)
    events = of(chrome_trace(done)["traceEvents"], "X")
    on_dma, on_gemm = (event for event in events if event["name"] == "composite k[0]")
    number = on_gemm["args"]["command"]
    assert done.commands[number].tensor == "k"
    assert on_gemm["args"] == {
        "command": number,
        "bytes": 256 * 128 * 2,
        "shape": [8, 256],
        "inner": 128,
        "sub-tiles": 16,
        "busy_ns": 256.0,
        "waits_for": list(done.waits_for[number]),
    }
    assert on_dma["args"] == on_gemm["args"] | {"busy_ns": 720.0}
    assert on_gemm["dur"] == pytest.approx(0.691)  # 15 sub-tiles come 45 ns apart, and one takes 16


def test_a_message_that_the_cpu_does_not_await_ends_in_an_inbox() -> None:
    receiver = [recv(0, 1, op="recv_async"), elementwise("exp", 40), elementwise("add", 4, 30)]
    done = run([send(0, 1)], receiver)
    events = chrome_trace(done)["traceEvents"]
    threads = names(events, "thread_name")
    assert [name for name in threads.values() if "inbox" in name] == ["PE 1 inbox"]
    (end,) = of(events, "f")
    assert threads[end["tid"]] == "PE 1 inbox"
    taken = [event for event in of(events, "X") if event["tid"] == end["tid"]]
    assert [(event["name"], event["ts"]) for event in taken] == [
        ("recv_async from PE 0", end["ts"])
    ]
    assert end["ts"] == pytest.approx(done.ended_ns[1] / 1e3)
