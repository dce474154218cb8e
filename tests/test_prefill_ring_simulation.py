"""The ring as an event simulation: it ends, nothing is overwritten, and what is faster where."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace as with_fields
from typing import Any

import pytest

import ahbm_jax
from ahbm_jax.events.timeline import Timeline

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
LLAMA_8B = ahbm_jax.load_workload("llama3_8b")  # 4 query heads a KV head


def simulated(settings: dict[str, Any] | None = None, **knobs: Any) -> Timeline:
    """On small heads, as many as CUBEs."""
    model = with_fields(LLAMA_8B, query_heads=8 * knobs["C"], head_dim=32)
    return ahbm_jax.simulate("prefill_ring", MACHINE, model, **(settings or {}), **knobs)


def timed(settings: dict[str, Any] | None = None, **knobs: Any) -> Timeline:
    """On tiles as they come: D = 128, 64 query tokens a PE, 128 KV tokens."""
    shape = {"C": 4, "tile": 128, "query_tile": 64}
    return ahbm_jax.simulate("prefill_ring", MACHINE, LLAMA_8B, **(settings or {}), **shape | knobs)


SMALL = {"C": 4, "P": 3, "context": 200, "query_length": 50, "tile": 8, "query_tile": 4}


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"ring_feed": "lanes"},
        {"query_length": 2},
        {"layout": "zigzag", "window": 40},
        {"C": 6, "P": 5, "group_shape": (2, 3)},
        {"C": 3, "P": 8},
    ],
)
def test_ends_with_queues_of_any_depth(depth: int, knobs: dict[str, Any]) -> None:
    links = {f"{mesh}_link.queue_depth_messages": depth for mesh in ("pe", "cube")}
    narrow = {"cube_link.bytes_per_cycle": 2.0}
    assert simulated(links | narrow, **SMALL | knobs).latency_ns > 0


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("feed", ["gather", "lanes"])
@pytest.mark.parametrize("slow", ["pe", "cube"])
def test_no_buffer_is_written_while_it_is_read(depth: int, feed: str, slow: str) -> None:
    """What is received or loaded into a buffer is asked for when all that read it is complete."""
    links = {f"{mesh}_link.queue_depth_messages": depth for mesh in ("pe", "cube")}
    links[f"{slow}_link.bytes_per_cycle"] = 0.5
    links["math.blocking"] = False
    timeline = simulated(links, **SMALL, ring_feed=feed)
    reads: dict[tuple, float] = defaultdict(float)
    written = 0
    for rank, c, issued, ended in zip(
        timeline.ranks, timeline.commands, timeline.issued_ns, timeline.ended_ns, strict=True
    ):
        if c.into_buffer and c.op in ("load", "recv_async"):
            written += 1
            assert all(reads[rank, buffer] <= issued for buffer in c.writes)
        for buffer in c.reads:
            reads[rank, buffer] = max(reads[rank, buffer], ended)
    assert written > 100


def test_first_come_links() -> None:
    assert simulated({"arbitration": "first_come"}, **SMALL | {"P": 5}).latency_ns > 0


def test_messages_hide_behind_the_folds() -> None:
    """Most of the time that the ports are busy costs nothing."""
    shape = {"P": 4, "context": 2048, "query_length": 256}
    links = {f"{mesh}_link.bytes_per_cycle": 1e6 for mesh in ("pe", "cube")}
    timeline = timed(**shape)
    busy = min(workers["port"] for workers in timeline.busy_ns.values())
    free = timed(links, **shape).latency_ns
    assert busy > 0.25 * free
    assert timeline.latency_ns < free + 0.35 * busy


def finish_by_cube(timeline: Timeline) -> list[float]:
    found: dict[int, float] = defaultdict(float)
    for (cube, _), ns in timeline.finish_ns.items():
        found[cube] = max(found[cube], ns)
    return list(found.values())


def test_zigzag_evens_out_the_cubes() -> None:
    """While half of a prompt is there, contiguous slices leave half of the CUBEs without KV."""
    chunk = {"context": 1024, "query_start": 512, "query_length": 512, "cache_tokens": 2048}
    even, uneven = (timed(P=2, **chunk, layout=layout) for layout in ("zigzag", "contiguous"))
    assert even.latency_ns < 0.8 * uneven.latency_ns
    spread = [max(ns) - min(ns) for ns in map(finish_by_cube, (even, uneven))]
    assert 0 < spread[0] < spread[1]


@pytest.mark.parametrize(
    ("cube_link", "pe_link", "faster"), [(16.0, 64.0, "gather"), (256.0, 16.0, "lanes")]
)
def test_the_feed_that_spares_the_narrow_link_is_faster(
    cube_link: float, pe_link: float, faster: str
) -> None:
    shape = {"P": 4, "context": 2048, "query_length": 256}
    links = {"cube_link.bytes_per_cycle": cube_link, "pe_link.bytes_per_cycle": pe_link}
    latency = {f: timed(links, **shape, ring_feed=f).latency_ns for f in ("gather", "lanes")}
    assert latency[faster] < 0.8 * max(latency.values())
