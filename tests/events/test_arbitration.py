"""Arbitration of links: none for shipped decode, and a design whose messages meet, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ahbm_jax
from ahbm_jax.events import Timeline, simulate
from ahbm_jax.kernel_names import variant_names
from ahbm_jax.parity import measure
from kernels.reference import reference

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
WORKLOAD = ahbm_jax.load_workload("llama3_70b")
ROOT = Path(__file__).resolve().parents[2]
LANES_FIRST = f"{ROOT / 'benchmarks' / 'arbitration.py'}:lanes_first"


def both(kernel: str, **knobs: Any) -> tuple[Timeline, Timeline]:
    """A point under static arbitration, and under first come, first served."""
    static, first_come = (
        simulate(kernel, MACHINE, WORKLOAD, arbitration=arbitration, **knobs)
        for arbitration in ("static", "first_come")
    )
    return static, first_come


@pytest.mark.parametrize("variant", variant_names("decode"))
@pytest.mark.parametrize(
    "knobs",
    [
        {"C": 16, "P": 4, "packed": True},
        {"C": 8, "P": 7, "level1": "ring", "level2": "ring"},
        {"C": 4, "P": 8, "users": 3, "layout": "round_robin", "start_cube": 1, "start_pe": 5},
    ],
)
def test_messages_of_shipped_decode_meet_nobody(variant: str, knobs: dict[str, Any]) -> None:
    """Each goes to a neighbour, by a link that no other rank sends on."""
    static, first_come = both("decode", variant=variant, context=2500, **knobs)
    sent = [c.message for c in static.commands if c.op == "send" and c.message is not None]
    assert {(message.hops, message.sharers) for message in sent} == {(1, 1)}
    assert first_come.latency_ns == static.latency_ns
    assert first_come.ended_ns == pytest.approx(static.ended_ns, rel=1e-12)


@pytest.mark.parametrize(
    ("cubes", "pes", "depth"), [(2, 2, 1), (4, 1, 2), (4, 2, 2), (8, 2, 3), (16, 8, 4)]
)
def test_lanes_that_reduce_at_once_by_hand(cubes: int, pes: int, depth: int) -> None:
    """All lanes are ready at once. A payload of (m, l, O), 65 ns, takes 65 P of a link for each.

    First come: the last lane leaves the first link as late, P payloads on. From then on each lane
    arrives one payload behind the lane before it, finds the link free, and takes one payload, not
    P, of it: P - 1 payloads less on every link but the first.
    """
    knobs = {"context": 64 * cubes * pes, "tile": 64, "packed": True, "C": cubes, "P": pes}
    static, first_come = both(LANES_FIRST, **knobs)
    rows, cube_bytes_per_ns = WORKLOAD.group, 64
    payload_ns = rows * (1 + 1 + WORKLOAD.head_dim) * 4 / cube_bytes_per_ns
    assert payload_ns == 65
    assert static.latency_ns - first_come.latency_ns == (depth - 1) * (pes - 1) * payload_ns


def test_lanes_first_is_timed_and_computed_right() -> None:
    knobs: dict[str, Any] = {"context": 1000, "C": 4, "P": 2, "tile": 64}
    static = simulate(LANES_FIRST, MACHINE, WORKLOAD, **knobs)
    timed = ahbm_jax.latency_ns(LANES_FIRST, MACHINE, WORKLOAD, **knobs)
    assert float(timed) == pytest.approx(static.latency_ns, rel=1e-6)
    rng, shapes = np.random.default_rng(1), [(8, 1, 32), (1, 300, 32), (1, 300, 32)]
    q, k, v = (jnp.asarray(rng.normal(size=shape), "bfloat16") for shape in shapes)
    o, lse = ahbm_jax.attention(LANES_FIRST, q, k, v, grid=(4, 2), tile=64)
    assert measure(o, lse, reference(q, k, v), "bfloat16").passed
