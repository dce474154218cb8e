"""The ring's numbers: against the float64 reference, chunk by chunk, and under shard_map."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from ahbm_jax.errors import UsageError
from ahbm_jax.outputs import attention
from ahbm_jax.parity import Errors, measure
from kernels.reference import reference

Arrays = tuple[jax.Array, jax.Array, jax.Array]
SEEN = ("kv_len", "query_start", "window", "sinks", "softcap")  # what the reference takes too


def normal(storage: str, *shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng([seed, *shape]).normal(size=shape), storage)


def qkv(
    storage: str, cubes: int, rows: int, cache: int, *, kv_heads: int = 2, dim: int = 16
) -> Arrays:
    """Normal q, k and v, a query head for each CUBE; values have a mean."""
    k, v = (normal(storage, kv_heads, cache, dim, seed=seed) for seed in (1, 2))
    return normal(storage, kv_heads * cubes, rows, dim), k, v + jnp.ones((), storage)


def ring(inputs: Arrays, **knobs: Any) -> Any:
    return attention("prefill_ring", *inputs, **{"tile": 8, **knobs})


def errors(inputs: Arrays, **knobs: Any) -> Errors:
    """Of the ring, with garbage past kv_len."""
    q, k, v = inputs
    tokens = knobs.get("kv_len", k.shape[1])
    dirty = (k.at[:, tokens:].set(jnp.nan), v.at[:, tokens:].set(jnp.inf))
    o, lse = ring((q, *dirty), **knobs)
    right = reference(q, k, v, **{name: knobs[name] for name in SEEN if name in knobs})
    return measure(o, lse, right, str(q.dtype), exact_p=knobs.get("exact_p", False))


def check(inputs: Arrays, **knobs: Any) -> None:
    found = errors(inputs, **knobs)
    assert found.passed, f"{found}, {knobs}"


CASES: dict[str, tuple[str, int, dict[str, Any]]] = {  # storage, query rows, knobs
    "one rank": ("float32", 20, {"grid": (1, 1)}),
    "two CUBEs": ("bfloat16", 13, {"grid": (2, 1), "exact_p": True}),
    "PEs alone": ("float32", 13, {"grid": (1, 3)}),
    "rounds": ("bfloat16", 20, {"grid": (2, 3), "query_tile": 2, "exact_p": True}),
    "ragged parts": ("float16", 20, {"grid": (2, 3), "ring_chunk": 15, "exact_p": True}),
    "lanes": ("bfloat16", 20, {"grid": (2, 3), "ring_feed": "lanes", "exact_p": True}),
    "zigzag": ("float32", 33, {"grid": (4, 2), "layout": "zigzag", "ring_chunk": 10}),
    "round robin": ("bfloat16", 33, {"grid": (4, 2), "layout": "round_robin", "exact_p": True}),
    "rotated": ("float32", 9, {"grid": (4, 2), "start_cube": 1, "start_pe": 1}),
    "rows without a PE": ("bfloat16", 9, {"grid": (2, 8), "exact_p": True}),
    "few rows": ("bfloat16", 2, {"grid": (2, 3), "exact_p": True}),
    "few rows, one at a time": ("float32", 3, {"grid": (1, 5), "query_tile": 1}),
    "one row": ("float32", 1, {"grid": (4, 2), "level2": "ring", "packed": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_meets_its_bar(name: str) -> None:
    """Full, inside of a shard, on few ranks, fewer keys than rows, one key and none."""
    storage, rows, knobs = CASES[name]
    inputs = qkv(storage, knobs["grid"][0], rows, 75)
    for kv_len in (75, 50, 7, 1, 0):
        check(inputs, kv_len=kv_len, **knobs)


def test_hardware_p_meets_its_bar() -> None:
    check(qkv("bfloat16", 2, 40, 300, dim=64), grid=(2, 3), tile=16)


def test_on_64_ranks() -> None:
    check(qkv("float32", 8, 64, 150, kv_heads=1), grid=(8, 8), kv_len=149)


@pytest.mark.parametrize("rows", [20, 2])
def test_window_sinks_and_softcap(rows: int) -> None:
    """With rows spread over the PEs, and with fewer than PEs."""
    q, k, v = qkv("float32", 2, rows, 75)
    sinks = np.random.default_rng(3).normal(size=4)
    for window in (1, 5, 30, 1000):
        options = {"window": window, "softcap": 2.0, "sinks": sinks}
        for kv_len, query_start in ((75, 75 - rows), (60, 31), (0, 0)):
            where = {"kv_len": kv_len, "query_start": query_start}
            check((4 * q, k, v), grid=(2, 3), **options, **where)


@pytest.mark.parametrize("name", ["window", "sinks", "softcap"])
def test_one_option(name: str) -> None:
    value = {"window": 11, "softcap": 1.5, "sinks": np.linspace(-1.0, 2.0, 8)}[name]
    check(qkv("float32", 4, 19, 75), grid=(4, 2), kv_len=70, layout="zigzag", **{name: value})


@pytest.mark.parametrize("feed", ["gather", "lanes"])
def test_chunks_of_a_prompt_are_the_one_shot_result(feed: str) -> None:
    q, k, v = qkv("bfloat16", 2, 60, 60)
    knobs = {"grid": (2, 3), "exact_p": True, "query_tile": 5, "ring_feed": feed}
    whole, whole_lse = ring((q, k, v), **knobs)
    for start in range(0, 60, 20):
        end = start + 20
        dirty = [x.at[:, end:].set(jnp.nan) for x in (k, v)]
        part, lse = ring((q[:, start:end], *dirty), kv_len=end, query_start=start, **knobs)
        assert jnp.mean(part == whole[:, start:end]) >= 0.999
        np.testing.assert_allclose(lse, whole_lse[:, start:end], rtol=2e-6)


def test_error_is_flat_in_the_size_of_the_ring() -> None:
    """Every head folds the same tiles, wherever they come from."""
    found = [
        errors(qkv("float32", cubes, 24, 192, kv_heads=8 // cubes), grid=(cubes, pes)).rms
        for cubes, pes in ((1, 1), (2, 1), (4, 2), (8, 1))
    ]
    assert max(found) < 1.3 * min(found)


@pytest.mark.parametrize(
    ("grid", "rows", "knobs"),
    [
        ((2, 1), 20, {}),
        ((2, 3), 20, {"layout": "zigzag", "query_tile": 4}),
        ((2, 4), 20, {"ring_feed": "lanes"}),
        ((4, 2), 1, {}),
    ],
)
def test_shard_map_gives_what_vmap_gives(
    grid: tuple[int, int], rows: int, knobs: dict[str, Any]
) -> None:
    inputs = qkv("bfloat16", grid[0], rows, 75)
    devices = jax.devices()[: grid[0] * grid[1]]
    mesh = jax.make_mesh(grid, ("cube", "pe"), axis_types=(AxisType.Auto,) * 2, devices=devices)
    o, lse = ring(inputs, grid=grid, kv_len=70, **knobs)
    o_mesh, lse_mesh = ring(inputs, grid=grid, kv_len=70, mesh=mesh, **knobs)
    np.testing.assert_array_equal(np.asarray(o), np.asarray(o_mesh))
    if rows >= grid[1]:
        np.testing.assert_array_equal(np.asarray(lse), np.asarray(lse_mesh))
    else:  # merging partials is fused in its own way
        np.testing.assert_allclose(lse, lse_mesh, rtol=2e-6)


def test_gradient_is_that_of_one_rank() -> None:
    """Parts that a rank skips leave no trace in it."""
    inputs = qkv("float32", 2, 5, 20, dim=8)
    weight = normal("float32", 4, 5, 8, seed=7)

    def loss(kernel: str, grid: tuple[int, int], *x: jax.Array) -> jax.Array:
        o, lse = attention(kernel, *x, grid=grid, tile=4, kv_len=13)
        assert lse is not None
        return jnp.sum(o * weight) + jnp.sum(lse)

    right = jax.grad(lambda *x: loss("decode", (1, 1), *x), argnums=(0, 1, 2))(*inputs)
    got = jax.grad(lambda *x: loss("prefill_ring", (2, 2), *x), argnums=(0, 1, 2))(*inputs)
    for a, b in zip(got, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"grid": (4, 2)}, "`grid` has 4 CUBEs and `q` has 2 query heads per KV head"),
        ({"grid": (2, 2), "ring_chunk": 15}, "`ring_chunk` is 15; a multiple of P = 2"),
        ({"grid": (2, 2), "ring_chunk": 0}, "`ring_chunk` is 0; a multiple of P = 2"),
        ({"grid": (2, 2), "ring_feed": "lane"}, "`ring_feed` is 'lane' .did you mean `lanes`"),
        ({"grid": (2, 2), "variant": "opt3"}, "`variant` is 'opt3'.*`prefill_ring` has: opt1"),
    ],
)
def test_refuses(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ring(qkv("float32", 2, 4, 20), **knobs)
