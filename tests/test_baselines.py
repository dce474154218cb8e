"""The baselines: numbers, what they send and read, and how they are named and chosen."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

import ahbm_jax
from ahbm_jax.errors import UsageError
from ahbm_jax.interpret.record import RankRecord, Recorded, message_depth, record
from ahbm_jax.interpret.values import Operands, Values
from ahbm_jax.kernel_names import default_variant, resolve_kernel
from ahbm_jax.knobs import point
from ahbm_jax.machine.params import replace
from ahbm_jax.machine.placement import Placement
from ahbm_jax.outputs import attention
from ahbm_jax.parity import measure
from ahbm_jax.tl.launch import Launch
from ahbm_jax.tl.program import run_program
from kernels.reference import reference

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
WORKLOAD = ahbm_jax.load_workload("llama3_8b")  # 4 query heads on a KV head
BASELINES = ("mesh_mlo", "mesh_mlo_2d", "mesh_kv")
ON_EVERY_RANK = ("mesh_mlo", "mesh_mlo_2d")
GRIDS = ((1, 1), (2, 3), (4, 2), (3, 1))
SHARES = [(1, 1), (2, 3), (4, 2), (3, 1), (2, 5), (4, 4)]

Arrays = tuple[jax.Array, jax.Array, jax.Array]


def qkv(storage: str, *, rows: int = 3, tokens: int = 150, heads: int = 4, dim: int = 32) -> Arrays:
    rng = np.random.default_rng([rows, tokens, dim])
    shapes = (heads, rows, dim), (2, tokens, dim), (2, tokens, dim)
    q, k, v = (jnp.asarray(rng.normal(size=shape), storage) for shape in shapes)
    return q, k, v


def garbage_past(inputs: Arrays, kv_len: int) -> Arrays:
    q, k, v = inputs
    return q, k.at[:, kv_len:].set(jnp.nan), v.at[:, kv_len:].set(jnp.inf)


def check(kernel: str, inputs: Arrays, kv_len: int, **knobs: Any) -> tuple[jax.Array, jax.Array]:
    """Run twice, the same bits, within the bars of the float64 reference."""
    dirty = garbage_past(inputs, kv_len)
    (o, lse), again = (attention(kernel, *dirty, kv_len=kv_len, **knobs) for _ in range(2))
    for a, b in zip((o, lse), again, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    right = reference(*inputs, kv_len=kv_len)
    exact_p = knobs.get("exact_p", False)
    errors = measure(np.asarray(o), np.asarray(lse), right, str(o.dtype), exact_p=exact_p)
    assert errors.passed, errors
    assert lse is not None
    return o, lse


# Numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("kernel", BASELINES)
def test_numbers_are_the_reference_s(kernel: str, grid: tuple[int, int]) -> None:
    check(kernel, qkv("bfloat16"), 131, grid=grid, tile=16)


@pytest.mark.parametrize(
    ("storage", "knobs"),
    [
        ("bfloat16", {"tile": 5, "exact_p": True, "layout": "round_robin"}),
        ("float16", {"tile": 64, "packed": True, "start_cube": 1, "start_pe": 2}),
        ("float32", {"layout": "round_robin_cube_first", "level1": "ring", "level2": "ring"}),
    ],
)
@pytest.mark.parametrize("kernel", BASELINES)
def test_numbers_at_other_spreads(kernel: str, storage: str, knobs: dict[str, Any]) -> None:
    rows = 17 if kernel == "mesh_kv" else 2
    check(kernel, qkv(storage, rows=rows), 150, grid=(2, 3), **knobs)


@pytest.mark.parametrize("kv_len", [0, 1, 3, 7])
@pytest.mark.parametrize("kernel", BASELINES)
def test_most_ranks_are_empty(kernel: str, kv_len: int) -> None:
    o, lse = check(kernel, qkv("bfloat16"), kv_len, grid=(2, 3), tile=16)
    if kv_len < 3:  # the first rows see nothing
        assert not np.asarray(o[:, : 3 - kv_len]).any()
        assert np.isneginf(lse[:, : 3 - kv_len]).all()


@pytest.mark.parametrize("kernel", BASELINES)
def test_shard_map_gives_what_vmap_gives(kernel: str) -> None:
    devices = jax.devices()[:6]
    mesh = jax.make_mesh((2, 3), ("cube", "pe"), axis_types=(AxisType.Auto,) * 2, devices=devices)
    assert isinstance(mesh, Mesh)
    inputs = qkv("bfloat16")
    o, lse = attention(kernel, *inputs, grid=(2, 3), tile=16)
    o_mesh, lse_mesh = attention(kernel, *inputs, grid=(2, 3), tile=16, mesh=mesh)
    assert (np.asarray(o) == np.asarray(o_mesh)).mean() >= 0.999
    np.testing.assert_allclose(lse, lse_mesh, rtol=2e-6)


@pytest.mark.parametrize("kernel", BASELINES)
def test_options_are_those_of_decode(kernel: str) -> None:
    inputs, sinks = qkv("float32", rows=4), jnp.array([0.5, -1.0, 2.0, 0.0])
    knobs = {"grid": (2, 2), "tile": 16, "window": 40, "softcap": 3.0, "sinks": sinks}
    expected = attention("decode", *inputs, kv_len=140, query_start=90, **knobs)
    got = attention(kernel, *inputs, kv_len=140, query_start=90, **knobs)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def on_all_ranks(kernel: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, tile: int) -> tuple:
    """(m, l, O) of one head on each of 2 x 3 ranks, [2, 3, ...]; shards hold whole tiles."""
    cubes, pes, (tokens, dim) = 2, 3, k.shape
    placement = Placement(layout="contiguous", cubes=cubes, pes=pes, cache_tokens=tokens)
    launch = Launch(
        context_tokens=tokens,
        query_tokens=len(q),
        query_start=tokens - len(q),
        query_block_tokens=len(q),
        group=1,
        head_dim=dim,
        value_dim=dim,
        element_bytes=4,
        softmax_scale=dim**-0.5,
        tile_tokens=tile,
        cube_rows=1,
        cube_cols=cubes,
        placement=placement,
    )

    def body(k: jax.Array, v: jax.Array) -> tuple:
        values = Values(launch, Operands(q=jnp.asarray(q), k=k, v=v), (1, pes), exact_p=False)
        partial: Any = run_program(values, resolve_kernel(kernel))
        return tuple(handle.payload for handle in partial)

    shards = (cubes, pes, tokens // (cubes * pes), dim)
    keys, values = (jnp.asarray(x).reshape(shards) for x in (k, v))
    spmd = jax.vmap(jax.vmap(body, axis_name="pe"), axis_name="cube")
    return jax.jit(spmd)(jnp.moveaxis(keys, -1, -2), values)


@pytest.mark.parametrize("kernel", ON_EVERY_RANK)
def test_every_rank_has_the_answer(kernel: str) -> None:
    q, k, v = (np.asarray(x[0]) for x in qkv("float32", tokens=96))
    right = reference(q[None], k[None], v[None])
    m, l, o = on_all_ranks(kernel, q, k, v, tile=8)
    assert o.shape[:2] == (2, 3)
    np.testing.assert_allclose(o / l, np.broadcast_to(right.o[0], o.shape), rtol=2e-5, atol=1e-6)
    lse = np.broadcast_to(right.lse[0][:, None], m.shape)
    np.testing.assert_allclose(m + jnp.log(l), lse, rtol=2e-6)


# What is sent and read ----------------------------------------------------------------------------


def recorded(kernel: str, grid: tuple[int, int], **knobs: Any) -> list[RankRecord]:
    settings = {"context": 600, "C": grid[0], "P": grid[1], "tile": 64, **knobs}
    settled = point(kernel, MACHINE, WORKLOAD, settings)
    return record(settled.kernel, settled.machine, settled.launch())


def commands(records: list[RankRecord], op: str) -> list[Recorded]:
    return [c for entry in records for c in entry.commands if c.op == op]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("grid", SHARES)
def test_a_fan_out_sends_each_partial_to_all_others(grid: tuple[int, int], packed: bool) -> None:
    ranks, heads = math.prod(grid), WORKLOAD.group
    records = recorded("mesh_mlo", grid, packed=packed)
    sends = commands(records, "send")
    parts = 1 if packed else 3
    assert len(sends) == heads * parts * ranks * (ranks - 1)
    assert len(commands(records, "recv_async")) == len(sends)
    assert not commands(records, "recv")
    for entry in records:
        received = [c for c in entry.commands if c.op == "recv_async"]
        assert len(received) == heads * parts * (ranks - 1)
    assert {(c.message.hops, c.message.sharers) for c in sends if c.message} <= {(1, 1)}
    sizes = sum(c.message.size_bytes for c in sends if c.message)
    assert sizes == heads * ranks * (ranks - 1) * 4 * (WORKLOAD.head_dim + 2)
    assert len(commands(records, "store")) == heads


@pytest.mark.parametrize("grid", SHARES)
def test_keys_and_values_go_to_all_others_once_for_each_head(grid: tuple[int, int]) -> None:
    ranks, heads, size = math.prod(grid), WORKLOAD.group, WORKLOAD.head_dim * WORKLOAD.storage_bytes
    records = recorded("mesh_kv", grid, query_length=10)
    sends = commands(records, "send")
    assert len(sends) == heads * 2 * ranks * (ranks - 1)  # whatever lies in the future of a row
    shard = -(-600 // ranks)
    assert {c.message.size_bytes for c in sends if c.message} <= {shard * size}
    assert len(commands(records, "dot")) == heads * 2 * ranks**2
    assert len(commands(records, "mask")) == heads * ranks**2
    stores = commands(records, "store")
    assert len(stores) == heads * ranks
    assert sum(c.rows for c in stores) == heads * 10


@pytest.mark.parametrize("grid", SHARES)
def test_an_all_reduce_sends_each_partial_there_and_back(grid: tuple[int, int]) -> None:
    heads, ranks = WORKLOAD.group, math.prod(grid)
    records = recorded("mesh_mlo_2d", grid)
    assert len(commands(records, "send")) == heads * 3 * 2 * (ranks - 1)
    for entry in records:  # all but the root hear from it
        sent = sum(c.op == "send" for c in entry.commands)
        received = sum(c.op == "recv" for c in entry.commands)
        assert sent == received


@pytest.mark.parametrize("grid", SHARES)
def test_rounds(grid: tuple[int, int]) -> None:
    """R - 1 against the depth of a reduce, and twice that."""

    def rounds(kernel: str) -> int:
        settled = point(kernel, MACHINE, WORKLOAD, {"context": 64, "C": grid[0], "P": grid[1]})
        one_head = dataclasses.replace(settled.launch(), users=1)
        return message_depth(record(settled.kernel, settled.machine, one_head))

    assert rounds("mesh_mlo") == rounds("mesh_kv") == math.prod(grid) - 1
    assert rounds("mesh_mlo_2d") == 2 * rounds("decode")


@pytest.mark.parametrize("kernel", BASELINES)
def test_each_head_reads_keys_and_values_again(kernel: str) -> None:
    def read(kernel: str) -> int:
        commands = [c for entry in recorded(kernel, (2, 3)) for c in entry.commands]
        return sum(c.hbm_bytes for c in commands if c.tensor in ("k", "v"))

    once = 2 * 600 * WORKLOAD.head_dim * WORKLOAD.storage_bytes
    assert read("decode") == once
    assert read(kernel) == WORKLOAD.group * once


# Times --------------------------------------------------------------------------------------------


def test_a_fan_out_is_slower_than_a_reduce_and_slower_the_more_ranks_there_are() -> None:
    def latency(kernel: str, cubes: int) -> float:
        one_head = replace(WORKLOAD, {"query_heads": WORKLOAD.kv_heads})
        return ahbm_jax.simulate(kernel, MACHINE, one_head, context=256, C=cubes, P=2).latency_ns

    small, large = latency("mesh_mlo", 2), latency("mesh_mlo", 6)
    assert latency("decode", 6) < latency("mesh_mlo_2d", 6) < large
    assert small < large


# Names --------------------------------------------------------------------------------------------


def test_the_default_variant_is_one_that_the_kernel_has() -> None:
    for kernel, variant in (("decode", "opt3"), ("prefill", "opt3"), ("mesh_kv", "dot")):
        assert default_variant(kernel) == variant
        assert point(kernel, MACHINE, WORKLOAD, {}).knobs.variant == variant
        assert resolve_kernel(kernel) is resolve_kernel(kernel, variant)
    own = point(resolve_kernel("mesh_mlo"), MACHINE, WORKLOAD, {})
    assert own.knobs.variant is None
    assert own.kernel is resolve_kernel("mesh_mlo")


def test_a_variant_that_the_kernel_has_not_is_refused() -> None:
    with pytest.raises(UsageError, match="`variant` is 'opt3'; kernel `mesh_mlo` has: dot"):
        point("mesh_mlo", MACHINE, WORKLOAD, {"variant": "opt3"})
    with pytest.raises(UsageError, match="`variant` is 'opt3'; kernel `mesh_kv` has: dot"):
        attention("mesh_kv", *qkv("float32"), variant="opt3")


def test_a_group_of_heads_is_as_many_requests() -> None:
    settled = point("mesh_mlo", MACHINE, WORKLOAD, {"users": 3})
    assert settled.launch().group == 1
    assert settled.launch().users == 3 * WORKLOAD.group
    assert settled.knobs.users == 3
    result = ahbm_jax.run("mesh_mlo_2d", MACHINE, WORKLOAD, context=500, C=2, P=2)
    assert (result.variant, result.users) == ("dot", 1)
    assert result.counts["sends"] == WORKLOAD.group * 3 * 2 * 3
    assert result.counts["reduce_rounds"] == 4
    assert sum(result.critical_path.values()) == pytest.approx(result.latency_ns, rel=1e-9)
