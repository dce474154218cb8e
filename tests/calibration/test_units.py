"""Programs of a device's busiest unit: their times are those of the event simulation."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

import ahbm_jax
from ahbm_jax.errors import UsageError
from ahbm_jax.events.simulation import execute
from ahbm_jax.interpret.record import record
from ahbm_jax.knobs import point
from ahbm_jax.machine.params import replace
from ahbm_jax.result import explained
from kernels import PROGRAMS
from kernels.unit_attention import causal_blocks, dealt_splits, divide, filling_splits

ONE_RANK = {"C": 1, "P": 1}
DECODES = [  # sequences, context: splits or not, in cache or not, more items than units or fewer
    *((1, 2), (1, 4096), (3, 1000), (40, 2048), (300, 64), (2, 131)),
]
CHUNKS = [(1, 300, 300), (2, 1000, 1000), (3, 640, 128), (40, 129, 129)]  # the last: query tokens


@functools.cache
def machine(name: str) -> Any:
    return ahbm_jax.load_machine(name)


def both(program: str, variant: str, on: Any, sizes: list[dict[str, int]]) -> None:
    """Times of both at each of `sizes`, in one compiled function."""
    model = ahbm_jax.load_workload("llama3_8b")
    points = [point(program, on, model, {"variant": variant, **ONE_RANK, **s}) for s in sizes]
    reports, paths = explained(points)
    for each, report, path in zip(points, reports, paths, strict=True):
        assert report["result_code"] == 0
        found = record(each.kernel, each.machine, each.launch())
        simulated = execute(each.machine, found, cube_columns=1)
        assert report["latency_ns"] == pytest.approx(simulated.latency_ns, rel=1e-9)
        assert sum(path.values()) == pytest.approx(simulated.latency_ns, rel=1e-9)


@pytest.mark.parametrize(("variant", "name"), [("flash3", "h100_sxm"), ("flash2", "a100_sxm")])
def test_attention(variant: str, name: str) -> None:
    sizes = [{"sequences": b, "context": s} for b, s in DECODES]
    both("unit_attention", variant, machine(name), sizes)
    sizes = [{"sequences": b, "context": s, "query_length": t} for b, s, t in CHUNKS]
    both("unit_attention", variant, machine(name), sizes)


@pytest.mark.parametrize("variant", PROGRAMS["microbench"])
def test_microbenchmarks(variant: str) -> None:
    on = machine("wormhole")
    if variant == "messages":
        on = replace(on, {"grid.pe_rows": 2, "grid.pe_cols": 2, "pe_link.hop_cycles": 9.0})
    sizes = [{"sequences": n, "context": s} for n, s in ((1, 1), (3, 50), (200, 7))]
    if variant == "messages":
        sizes = [size | {"P": 4} for size in sizes]
    both("microbench", variant, on, sizes)


class Sizes:
    """Of a launch, as far as a division looks at them."""

    def __init__(self, **sizes: int) -> None:
        self.__dict__ |= {"sequences": 1, "kv_heads": 1, "units": 10} | sizes


def test_causal_blocks_are_those_one_counts() -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        rows, keys = [(128, 128), (64, 128)][random.integers(2)]
        group, tokens = 2 ** int(random.integers(0, 8)), int(random.integers(1, 2000))
        before = keys * int(random.integers(0, 4))
        launch = Sizes(query_tokens=tokens, context_tokens=tokens + before)
        tall = -(-group * tokens // rows)
        ends = [min(((i + 1) * rows - 1) // group + 1, tokens) + before for i in range(tall)]
        counted = sum(-(-end // keys) for end in ends)
        assert causal_blocks(launch, tall, group, rows, keys) == counted  # type: ignore[arg-type]


def test_splits_cover_the_units_and_no_more() -> None:
    for items in (1, 5, 9, 16, 40):
        for whole in (1, 4, 5, 30, 1000):
            dealt = dealt_splits(10)(items, items * whole, whole)
            filled = filling_splits(10, True)(items, items * whole, whole)
            assert 1 <= dealt <= whole
            assert 1 <= filled <= whole
            if whole <= 4:
                assert dealt == 1
            if items >= 16:
                assert filled == 1
            assert items * filled <= max(20, items)  # two items a unit
    launch = Sizes(query_tokens=1, context_tokens=128_000, group=8)
    work = divide(launch, rows=128, keys=128, packed=True, splits=dealt_splits(10))  # type: ignore[arg-type]
    assert work.items * 10 >= work.splits
    assert work.blocks * 10 >= 1000


def test_a_cache_is_used_only_where_all_fits() -> None:
    on, model = machine("h100_sxm"), ahbm_jax.load_workload("llama3_8b")
    points = [
        point("unit_attention", on, model, ONE_RANK | {"variant": "flash3", "context": 4096} | b)
        for b in ({"sequences": 2}, {"sequences": 40})  # 34 MB and 671 MB of K and V
    ]
    _, (small, large) = explained(points)
    assert "hbm.byte" not in small
    assert small["cache.byte"] > 0
    assert "cache.byte" not in large
    assert large["hbm.byte"] > large["issue.start"]


def test_a_lone_unit_has_more_of_hbm_as_far_as_the_cache_lets_it() -> None:
    """One head a sequence is not split: one unit of 108 reads it, or each its own."""
    bytes_bound = {"gemm.macs_per_cycle": 1e6, "device.cache_bytes": 1.0}
    on = replace(machine("a100_sxm"), bytes_bound)
    model = dataclasses.replace(
        ahbm_jax.load_workload("llama3_8b"), query_heads=1, kv_heads=1, max_context_tokens=2**20
    )
    sizes = ONE_RANK | {"variant": "flash2", "context": 2**20}
    points = [point("unit_attention", on, model, sizes | {"sequences": n}) for n in (1, 54, 108)]
    _, (lone, half, all_units) = explained(points)
    size = 2 * 2 * 128 * 2**20  # K and V
    assert lone["cache.byte"] == pytest.approx(size / 40, rel=1e-3)  # GB/s
    assert "hbm.byte" not in lone
    assert all_units["hbm.byte"] == pytest.approx(size / (0.9 * 18.9), rel=1e-3)
    assert half["hbm.byte"] == pytest.approx(size / (0.9 * 18.9) / 2, rel=1e-3)


def test_programs_need_a_device_and_have_no_values() -> None:
    model = ahbm_jax.load_workload("llama3_8b")
    with pytest.raises(UsageError, match="`one_pe`, without a `device` section"):
        ahbm_jax.run("unit_attention", machine("one_pe"), model, variant="flash3")
    with pytest.raises(UsageError, match=r"`sequences` is for programs .* Use `users`"):
        ahbm_jax.run("decode", machine("one_pe"), model, sequences=2)
