"""`attention`: variants, spreads, identities, gradients, transformations, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, PartitionSpec

from ahbm_jax.errors import UsageError
from ahbm_jax.kernel_names import variant_names
from ahbm_jax.outputs import attention
from ahbm_jax.parity import measure
from kernels.gqa_decode import VARIANTS
from kernels.reference import reference

BITWISE = ["dot", "opt1", "opt3", "opt3v", "opt2"]  # one_shot sums in another order

Arrays = tuple[jax.Array, jax.Array, jax.Array]


def normal(storage: str, *shape: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng([seed, *shape]).normal(size=shape), storage)


def qkv(
    storage: str,
    *,
    rows: int = 2,
    cache: int = 200,
    heads: int = 8,
    kv_heads: int = 2,
    dim: int = 64,
) -> Arrays:
    """Normal q, k and v; values have a mean, so that outputs do not cancel."""
    k, v = (normal(storage, kv_heads, cache, dim, seed=seed) for seed in (1, 2))
    return normal(storage, heads, rows, dim), k, v + jnp.ones((), storage)


def device_mesh(cubes: int, pes: int) -> Mesh:
    return jax.make_mesh(
        (cubes, pes),
        ("cube", "pe"),
        axis_types=(AxisType.Auto,) * 2,
        devices=jax.devices()[: cubes * pes],
    )


def share_equal(a: jax.Array, b: jax.Array) -> float:
    return float(jnp.mean(a == b))


# One answer, however it is computed ---------------------------------------------------------------


@pytest.mark.parametrize("exact_p", [False, True])
def test_variants_and_reruns_are_bitwise_equal(exact_p: bool) -> None:
    knobs = {"grid": (2, 2), "tile": 16, "kv_len": 187, "exact_p": exact_p}
    inputs = qkv("bfloat16")
    first = attention("decode", *inputs, variant=BITWISE[0], **knobs)
    for variant in [*BITWISE[1:], BITWISE[0]]:
        for a, b in zip(attention("decode", *inputs, variant=variant, **knobs), first, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=variant)


@pytest.mark.parametrize(
    ("storage", "grid", "knobs"),
    [
        ("bfloat16", (2, 4), {"variant": "opt3"}),
        ("bfloat16", (4, 3), {"level1": "ring", "level2": "ring", "packed": True}),
        ("float16", (3, 2), {"variant": "opt2", "start_cube": 1, "start_pe": 1}),
        ("float32", (4, 4), {"variant": "one_shot", "layout": "round_robin"}),
    ],
)
def test_shard_map_gives_what_vmap_gives(
    storage: str, grid: tuple[int, int], knobs: dict[str, Any]
) -> None:
    inputs = qkv(storage)
    knobs = {"grid": grid, "tile": 16, "kv_len": 187, **knobs}
    o, lse = attention("decode", *inputs, **knobs)
    o_mesh, lse_mesh = attention("decode", *inputs, mesh=device_mesh(*grid), **knobs)
    if storage == "float32":
        envelope = reference(*inputs, kv_len=187).envelope
        assert (np.abs(o - o_mesh) <= 1e-6 * np.maximum(1, envelope)).all()
    else:
        assert share_equal(o, o_mesh) >= 0.999
    np.testing.assert_allclose(lse, lse_mesh, rtol=2e-6)


@pytest.mark.parametrize("storage", ["bfloat16", "float32"])
def test_another_grid_gives_the_same(storage: str) -> None:
    inputs = qkv(storage, heads=16, kv_heads=4)
    envelope = reference(*inputs, kv_len=187).envelope
    knobs = {"tile": 16, "kv_len": 187, "exact_p": True}
    o, lse = attention("decode", *inputs, **knobs)
    for grid, layout in [((2, 2), "round_robin"), ((3, 1), "contiguous"), ((4, 4), "contiguous")]:
        other, other_lse = attention("decode", *inputs, grid=grid, layout=layout, **knobs)
        if storage == "bfloat16":
            assert share_equal(o, other) >= 0.999, grid
        else:
            assert (np.abs(o - other) <= 1e-6 * np.maximum(1, envelope)).all(), grid
        np.testing.assert_allclose(lse, other_lse, rtol=2e-6)


def test_what_lies_past_kv_len_does_not_change_a_bit() -> None:
    q, k, v = qkv("bfloat16", rows=1)
    results = []
    for garbage in (0.0, math.nan, math.inf, -3e38):
        dirty = [x.at[:, 55:].set(garbage) for x in (k, v)]
        results.append(attention("decode", q, *dirty, kv_len=55, grid=(2, 2), tile=16))
    for o, lse in results[1:]:
        np.testing.assert_array_equal(np.asarray(o), np.asarray(results[0][0]))
        np.testing.assert_array_equal(np.asarray(lse), np.asarray(results[0][1]))


def test_speculative_rows_are_the_one_row_results() -> None:
    q, k, v = qkv("bfloat16", rows=5)
    knobs = {"grid": (2, 2), "tile": 16, "exact_p": True}
    o, lse = attention("decode", q, k, v, kv_len=190, **knobs)
    for row in range(5):
        one, one_lse = attention("decode", q[:, row : row + 1], k, v, kv_len=186 + row, **knobs)
        assert share_equal(o[:, row : row + 1], one) >= 0.999
        np.testing.assert_allclose(lse[:, row : row + 1], one_lse, rtol=2e-6)


# Identities ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", variant_names("decode"))
def test_one_key_gives_its_value(variant: str) -> None:
    q, k, v = qkv("bfloat16", rows=1)
    o, _ = attention("decode", q, k, v, variant=variant, kv_len=1, grid=(2, 2), tile=16)
    np.testing.assert_array_equal(np.asarray(o), np.repeat(v[:, :1], 4, axis=0))


@pytest.mark.parametrize("exact_p", [False, True])
@pytest.mark.parametrize("kv_len", [2, 55, 200])
def test_values_of_one_give_one(kv_len: int, exact_p: bool) -> None:
    q, k, v = qkv("bfloat16")
    knobs = {"grid": (2, 2), "tile": 16, "kv_len": kv_len, "exact_p": exact_p}
    o, _ = attention("decode", q, k, jnp.ones_like(v), **knobs)
    assert (o == 1).all()


@pytest.mark.parametrize("grid", [(1, 1), (2, 2)])
def test_the_first_causal_row_gives_the_first_value(grid: tuple[int, int]) -> None:
    q, k, v = qkv("bfloat16", rows=5, cache=5)
    for exact_p in (False, True):
        o, lse = attention("decode", q, k, v, grid=grid, tile=16, exact_p=exact_p)
        np.testing.assert_array_equal(np.asarray(o[:, 0]), np.repeat(v[:, 0], 4, axis=0))
    assert measure(o, lse, reference(q, k, v), "bfloat16", exact_p=True).passed


# Gradients ----------------------------------------------------------------------------------------

SMALL = {"heads": 4, "kv_heads": 2, "dim": 8, "cache": 64}
WEIGHT = (
    np.random.default_rng(5).normal(size=(4, 2, 8)),
    np.random.default_rng(6).normal(size=(4, 2)),
)


def loss(q: Any, k: Any, v: Any, kv_len: Any, **knobs: Any) -> jax.Array:
    """A weighted sum of all outputs and log-sum-exps."""
    weight_o, weight_lse = (jnp.asarray(w, jnp.float32) for w in WEIGHT)
    o, lse = attention("decode", q, k, v, kv_len=kv_len, tile=4, **knobs)
    lse = jnp.where(jnp.isneginf(lse), 0.0, lse)
    return jnp.sum(o.astype(jnp.float32) * weight_o) + jnp.sum(lse * weight_lse)


def reference_loss(q: np.ndarray, k: np.ndarray, v: np.ndarray, kv_len: int) -> float:
    right = reference(q, k, v, kv_len=kv_len)
    lse = np.where(np.isneginf(right.lse), 0.0, right.lse)
    return float((right.o * WEIGHT[0]).sum() + (lse * WEIGHT[1]).sum())


def reference_gradient(inputs: Arrays, kv_len: int) -> Iterator[np.ndarray]:
    """Central differences of `reference_loss` in float64; 0 past kv_len."""
    arrays = [np.asarray(x).astype(np.float64) for x in inputs]
    step = 1e-5
    for which, x in enumerate(arrays):
        gradient = np.zeros_like(x)
        for at in np.ndindex(x[:, :kv_len].shape if which else x.shape):
            value, sides = x[at], []
            for x[at] in (value + step, value - step):
                sides.append(reference_loss(*arrays, kv_len))
            x[at] = value
            gradient[at] = (sides[0] - sides[1]) / (2 * step)
        yield gradient


def garbage_past(inputs: Arrays, kv_len: int) -> Arrays:
    q, k, v = inputs
    return q, k.at[:, kv_len:].set(jnp.nan), v.at[:, kv_len:].set(jnp.inf)


@pytest.fixture(scope="module")
def gradients() -> dict[int, list[np.ndarray]]:
    """By kv_len: one sees nothing, one leaves row 0 and most ranks empty, one cuts a tile."""
    inputs = qkv("float32", **SMALL)
    return {n: list(reference_gradient(inputs, n)) for n in (0, 1, 30)}


@pytest.mark.parametrize("variant", variant_names("decode"))
def test_gradient_is_the_reference_s(variant: str, gradients: dict[int, list[np.ndarray]]) -> None:
    gradient = jax.jit(
        jax.grad(lambda *x: loss(*x, variant=variant, grid=(2, 2)), argnums=(0, 1, 2))
    )
    for kv_len, right in gradients.items():
        got = gradient(*garbage_past(qkv("float32", **SMALL), kv_len), kv_len)
        for a, b in zip(got, right, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"{kv_len=}")
        assert not any(x[:, kv_len:].any() for x in got[1:])


def test_gradient_under_shard_map(gradients: dict[int, list[np.ndarray]]) -> None:
    gradient = jax.grad(
        lambda *x: loss(*x, 30, grid=(2, 2), mesh=device_mesh(2, 2)), argnums=(0, 1, 2)
    )
    got = gradient(*garbage_past(qkv("float32", **SMALL), 30))
    for a, b in zip(got, gradients[30], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("exact_p", [False, True])
def test_gradient_in_bfloat16(exact_p: bool) -> None:
    inputs = qkv("bfloat16", **SMALL)
    right = reference_gradient(inputs, 7)
    gradient = jax.grad(lambda *x: loss(*x, 7, grid=(2, 2), exact_p=exact_p), argnums=(0, 1, 2))
    for a, b in zip(gradient(*garbage_past(inputs, 7)), right, strict=True):
        assert a.dtype == jnp.bfloat16
        np.testing.assert_allclose(a.astype(jnp.float32), b, atol=2e-2 * np.abs(b).max())


# Transformations ----------------------------------------------------------------------------------


def counted() -> tuple[Any, list[None]]:
    """The opt3 kernel, and a list that grows with each trace of it."""
    traces: list[None] = []

    def kernel(*args: Any) -> Any:
        traces.append(None)
        return VARIANTS["opt3"](*args)

    return kernel, traces


def test_every_kv_len_shares_one_compilation() -> None:
    kernel, traces = counted()
    inputs = qkv("bfloat16", rows=1)
    for kv_len in (1, 77, 200, None):
        attention(kernel, *inputs, kv_len=kv_len, softmax_scale=0.1, tile=64)
    assert len(traces) == 1


def test_kv_len_may_be_traced() -> None:
    kernel, traces = counted()
    q, k, v = qkv("bfloat16", rows=1)

    @jax.jit
    def run(kv_len: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        return attention(kernel, q, k, v, kv_len=kv_len, softmax_scale=scale, tile=64)

    for kv_len in (1, 77, 200):
        o, lse = run(jnp.int32(kv_len), jnp.float32(0.125))
        right = reference(q, k, v, kv_len=kv_len)
        assert measure(o, lse, right, "bfloat16").passed
    assert len(traces) == 1


def test_outer_vmap() -> None:
    q, k, v = qkv("bfloat16", rows=1)
    q = jnp.stack([q, -q, 2 * q])
    lengths = jnp.array([200, 0, 3])

    def one(q: jax.Array, kv_len: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        return attention("decode", q, k, v, kv_len=kv_len, grid=(2, 2), tile=16)

    o, lse = jax.vmap(one)(q, lengths)
    for index, kv_len in enumerate((200, 0, 3)):
        right = reference(q[index], k, v, kv_len=kv_len)
        assert measure(o[index], lse[index], right, "bfloat16").passed


# The SPMD body ------------------------------------------------------------------------------------

COLLECTIVES = ("ppermute", "psum", "pmax", "pmin", "all_gather", "all_to_all", "reduce_scatter")


def collectives(jaxpr: Any, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """Each collective of a jaxpr, and whether it is inside a cond or a while."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        name = equation.primitive.name
        if name.startswith(COLLECTIVES):
            yield name, inside
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                if hasattr(part, "eqns") or hasattr(part, "jaxpr"):
                    yield from collectives(part, inside or name in ("cond", "while"))


@pytest.mark.parametrize(("level1", "level2"), [("mesh", "tree"), ("ring", "ring")])
@pytest.mark.parametrize("variant", variant_names("decode"))
def test_no_collective_waits_inside_a_branch(variant: str, level1: str, level2: str) -> None:
    knobs = {"variant": variant, "level1": level1, "level2": level2, "grid": (4, 4), "tile": 16}
    jaxpr = jax.make_jaxpr(lambda *x: attention("decode", *x, mesh=device_mesh(4, 4), **knobs))(
        *qkv("bfloat16")
    )
    found = list(collectives(jaxpr))
    assert {name for name, _ in found} == {"ppermute"}
    assert not any(inside for _, inside in found)


def test_a_collective_inside_a_branch_would_be_seen() -> None:
    def body(x: jax.Array) -> jax.Array:
        def summed(x: jax.Array) -> jax.Array:
            return jax.lax.ppermute(x, "cube", [(0, 1), (1, 0)])

        return jax.lax.cond(jax.lax.axis_index("cube") == 0, summed, lambda x: x, x)

    spec = PartitionSpec("cube")
    spmd = jax.shard_map(
        body, mesh=device_mesh(2, 1), in_specs=spec, out_specs=spec, check_vma=False
    )
    assert list(collectives(jax.make_jaxpr(spmd)(jnp.ones(2)))) == [("ppermute", True)]


# What is refused ----------------------------------------------------------------------------------


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


REFUSED = {
    "33 heads on 2": ({"q": ones(33, 1, 8)}, "33 query heads on 2 KV heads.*use 32 or 34"),
    "1 head on 2": ({"q": ones(1, 1, 8)}, "1 query heads on 2 KV heads.*use 2"),
    "no KV heads": ({"k": ones(0, 9, 8), "v": ones(0, 9, 8)}, "on 0 KV heads.*at least one"),
    "no rows": ({"q": ones(4, 0, 8)}, "`q` has 0 query rows; at least 1"),
    "rank": ({"q": ones(4, 8)}, r"`q` has shape \(4, 8\); \[heads, tokens, head dim\]"),
    "head dim": ({"q": ones(4, 1, 6)}, "head dim of `q` is 6 and of `k` 8"),
    "k and v": ({"v": ones(2, 8, 8)}, r"`k` has shape \(2, 9, 8\) and `v` \(2, 8, 8\)"),
    "float64": (
        {"q": ones(4, 1, 8, dtype=np.float64)},
        "`q` is float64; allowed: bfloat16, float16",
    ),
    "int8": ({"k": ones(2, 9, 8, dtype=np.int8)}, "`k` is int8; allowed: bfloat16, float16"),
    "mixed": ({"v": ones(2, 9, 8, dtype=np.float16)}, "`v` is float16 and `q` is float32"),
    "kv_len over": ({"kv_len": 10}, "`kv_len` is 10; 0 to 9"),
    "kv_len under": ({"kv_len": -1}, "`kv_len` is -1; 0 to 9"),
    "tile 0": ({"tile": 0}, "`tile` is 0; an integer of at least 1"),
    "tile 1.5": ({"tile": 1.5}, "`tile` is 1.5; an integer"),
    "grid 0": ({"grid": (0, 2)}, r"`grid` is \(0, 2\); C and P must be at least 1"),
    "grid": ({"grid": 4}, r"`grid` is 4; \(C, P\), two positive integers"),
    "group shape": ({"grid": (4, 1), "group_shape": (3, 1)}, "`group_shape` is 3 x 1.*C is 4"),
    "kernel": ({"kernel": "decod"}, "`kernel` is 'decod' .did you mean `decode`.*FILE.py:NAME"),
    "variant": ({"variant": "opt4"}, "`variant` is 'opt4'.*dot, opt1, opt3, opt3v, opt2, one_shot"),
    "layout": (
        {"layout": "round_robbin"},
        "`layout` is 'round_robbin' .did you mean `round_robin`.*contiguous",
    ),
    "level2": ({"level2": "star"}, "`level2` is 'star'; allowed: tree, ring"),
    "level1": ({"level1": "tree"}, "`level1` is 'tree'; allowed: mesh, ring"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str) -> None:
    changed, message = REFUSED[name]
    arguments = {"kernel": "decode", "q": ones(4, 1, 8), "k": ones(2, 9, 8), "v": ones(2, 9, 8)}
    with pytest.raises(UsageError, match=message):
        attention(**{**arguments, **changed})


def test_refuses_a_mesh_of_another_shape() -> None:
    inputs = ones(4, 1, 8), ones(2, 9, 8), ones(2, 9, 8)
    for grid in ((1, 2), (2, 1)):
        with pytest.raises(UsageError, match=r"`mesh` has axes.*'cube': 2, 'pe': 2.*needed"):
            attention("decode", *inputs, grid=(2, 2), mesh=device_mesh(*grid))
    other = jax.make_mesh(
        (2, 2), ("x", "pe"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:4]
    )
    with pytest.raises(UsageError, match=r"`mesh` has axes \{'x': 2, 'pe': 2\}"):
        attention("decode", *inputs, grid=(2, 2), mesh=other)
