"""Inputs that have broken other attention kernels, each from a public report; seeded.

The API has no mask of the user's. Reports that need one are expressed through what does mask here:
tokens past `kv_len`, causal rows of speculative decode, and shards without tokens. Where a few keys
alone count P stays in float32: what P's rounding may add is not what those cases are about.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ahbm_jax.parity.case import Case, garbage_past, normal

H, K, D = 4, 2, 64  # of most cases, so that they share compilations
GROUP = H // K
F16_LARGE = 61440.0  # 15 * 2**12: sums of its products are exact in float32

Inputs = dict[str, Any]
Build = Callable[[np.random.Generator], Inputs]

CASES: dict[str, Callable[[int], Case]] = {}
"""From a hard case's name to its builder, which takes a seed."""


def hard_cases(seed: int) -> list[Case]:
    """All of `CASES`."""
    return [build(seed) for build in CASES.values()]


def _case(name: str, *, seen: str, right: str) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        def seeded(seed: int) -> Case:
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            return Case(name=name, seen=seen, right=right, **build(rng))

        CASES[name] = seeded
        return build

    return register


def _inputs(
    rng: np.random.Generator,
    *,
    rows: int = 1,
    cache: int,
    storage: str = "bfloat16",
    **settings: Any,
) -> Inputs:
    """Normal q, k and v with garbage past kv_len."""
    tokens = settings.get("kv_len", cache)
    k, v = (garbage_past(normal(rng, storage, K, cache, D), tokens) for _ in range(2))
    return {"q": normal(rng, storage, H, rows, D), "k": k, "v": v, "settings": settings}


def _by_head(x: np.ndarray) -> np.ndarray:
    """x [K, T, D] for each query head, [H, T, D]."""
    return np.repeat(x, GROUP, axis=0)


# Nothing, or next to nothing, to attend to ------------------------------------------------------


@_case(
    "context 0 in a cache of 64, grid 2 x 2",
    seen="flashinfer 4051, vllm 28181",
    right="output 0, log-sum-exp -inf: merging two empty shards is the identity",
)
def _no_context(rng: np.random.Generator) -> Inputs:
    exact = np.zeros((H, 1, D))
    return _inputs(rng, cache=64, kv_len=0, grid=(2, 2), tile=16) | {"exact": exact}


@_case(
    "cache of 0 tokens, grid 1 x 2",
    seen="flashinfer 4051, vllm 28181",
    right="output 0, log-sum-exp -inf",
)
def _no_cache(rng: np.random.Generator) -> Inputs:
    return _inputs(rng, cache=0, grid=(1, 2), tile=16) | {"exact": np.zeros((H, 1, D))}


@_case(
    "context 3 in a cache of 64, three ranks of four empty",
    seen="flashinfer 4051, vllm 28181",
    right="the float64 reference: empty shards add nothing",
)
def _empty_ranks(rng: np.random.Generator) -> Inputs:
    return _inputs(rng, cache=64, kv_len=3, grid=(2, 2), tile=16, exact_p=True)


@_case("context 1, grid 8 x 8", seen="rocMLIR 2371", right="V[0] exactly")
def _one_token(rng: np.random.Generator) -> Inputs:
    inputs = _inputs(rng, cache=64, kv_len=1, grid=(8, 8), tile=16)
    return inputs | {"exact": _by_head(inputs["v"][:, :1])}


@_case(
    "one score of -2e4 beside a masked one, head dim 1",
    seen="lattice 373",
    right="the one visible key has weight exactly 1, which a finite mask constant would not give",
)
def _one_finite_score(rng: np.random.Generator) -> Inputs:
    k = np.full((1, 2, 1), 156.0).astype(normal(rng, "bfloat16", 0).dtype)
    v = normal(rng, "bfloat16", 1, 2, 1)
    q = (k[:, :1] * 0 - 128).astype(k.dtype)  # -128 * 156 = -19968
    settings = {"kv_len": 1, "softmax_scale": 1.0, "grid": (1, 2), "tile": 16}
    k, v = garbage_past(k, 1), garbage_past(v, 1)
    return {"q": q, "k": k, "v": v, "settings": settings, "exact": v[:, :1]}


@_case(
    "5 query rows, 2 keys, one rank",
    seen="flash-attention 1778",
    right="rows 0 to 2 give 0 and -inf, row 3 sees key 0, row 4 both",
)
def _more_rows_than_keys(rng: np.random.Generator) -> Inputs:
    return _inputs(rng, rows=5, cache=2, tile=16, exact_p=True)


@_case(
    "5 query rows, 2 keys, grid 2 x 2",
    seen="flash-attention 1778",
    right="rows 0 to 2 give 0 and -inf, row 3 sees key 0, row 4 both",
)
def _more_rows_than_keys_on_a_grid(rng: np.random.Generator) -> Inputs:
    settings = {"grid": (2, 2), "tile": 32, "layout": "round_robin", "exact_p": True}
    return _inputs(rng, rows=5, cache=256, kv_len=2, **settings)


# Tile and shard boundaries ----------------------------------------------------------------------


@_case(
    "context 192, tile 128",
    seen="jax 23819, jax 27224",
    right="the float64 reference: the half tile counts",
)
def _half_tile(rng: np.random.Generator) -> Inputs:
    return _inputs(rng, cache=192, tile=128)


@_case(
    "context 4092 in a cache of 4096, tile 128, exact P",
    seen="jax 23819, jax 27224",
    right="the float64 reference: the four absent tokens do not count",
)
def _short_of_a_tile(rng: np.random.Generator) -> Inputs:
    return _inputs(rng, cache=4096, kv_len=4092, tile=128, exact_p=True)


@_case(
    "context 4092, tile 128, grid 2 x 2",
    seen="jax 23819, jax 27224",
    right="the float64 reference",
)
def _short_tiles_on_a_grid(rng: np.random.Generator) -> Inputs:
    return _inputs(rng, cache=4092, tile=128, grid=(2, 2))


@_case(
    "5 speculative rows [195, 200) with garbage after them",
    seen="sparkinfer 3, nano-vllm 213",
    right="the rows of the one-shot result, whatever the cache holds later",
)
def _speculative_rows(rng: np.random.Generator) -> Inputs:
    settings = {"grid": (2, 2), "tile": 32, "layout": "round_robin"}
    return _inputs(rng, rows=5, cache=256, kv_len=200, **settings)


@_case(
    "context 50 on 4 x 2 ranks, all of it on CUBE 0",
    seen="tt-metal 37888, tt-metal 39925",
    right="the float64 reference; the same bits on a rerun",
)
def _one_cube_holds_data(rng: np.random.Generator) -> Inputs:
    return _inputs(rng, cache=256, kv_len=50, grid=(4, 2), tile=16)


# Chunks, windows, sinks, soft-cap ---------------------------------------------------------------


@_case(
    "chunk [100, 200) after 100 tokens, garbage after it",
    seen="sparkinfer 3, nano-vllm 213",
    right="the rows of the one-shot result, whatever the cache holds later",
)
def _chunk(rng: np.random.Generator) -> Inputs:
    settings = {"grid": (2, 2), "tile": 32, "query_tile": 32}
    return _inputs(rng, rows=100, cache=256, kv_len=200, **settings)


@_case(
    "chunk [100, 200) with the future in the cache, 400 tokens",
    seen="sparkinfer 3, nano-vllm 213",
    right="the rows of the one-shot result: tokens past a row's own position do not count",
)
def _chunk_before_the_future(rng: np.random.Generator) -> Inputs:
    return _inputs(rng, rows=100, cache=400, query_start=100, tile=32, query_tile=48)


@_case(
    "window of 1",
    seen="a row's own position left out of its window",
    right="V of the row's own position, exactly",
)
def _own_position(rng: np.random.Generator) -> Inputs:
    inputs = _inputs(rng, rows=5, cache=64, window=1, grid=(2, 2), tile=16)
    return inputs | {"exact": _by_head(inputs["v"][:, 59:64])}


@_case(
    "window of 20 over shards and tiles of 16",
    seen="windows cut at tiles rather than at tokens",
    right="the float64 reference",
)
def _window(rng: np.random.Generator) -> Inputs:
    return _inputs(rng, rows=40, cache=200, window=20, grid=(2, 2), tile=16, query_tile=16)


@_case(
    "sinks far above every score, context 0 and 70",
    seen="rows whose sink takes all of the weight",
    right="finite: next to nothing is left for the values",
)
def _high_sinks(rng: np.random.Generator) -> Inputs:
    sinks = (80.0, -80.0, 0.0, 3.0)
    return _inputs(rng, cache=70, kv_len=70, sinks=sinks, grid=(2, 2), tile=16)


@_case(
    "soft-cap of 50 on scores up to 2000",
    seen="tanh after the mask, or overflow before it",
    right="the float64 reference: capped scores, masked afterwards",
)
def _soft_cap(rng: np.random.Generator) -> Inputs:
    inputs = _inputs(rng, rows=5, cache=200, softcap=50.0, grid=(2, 2), tile=32, exact_p=True)
    return inputs | {"q": inputs["q"] * np.asarray(64, inputs["q"].dtype)}


@_case(
    "head dims 192 and 128",
    seen="kernels that take V's head dim from K",
    right="the float64 reference",
)
def _unequal_dims(rng: np.random.Generator) -> Inputs:
    q, k = (normal(rng, "bfloat16", n, t, 192) for n, t in ((H, 3), (K, 100)))
    settings = {"grid": (2, 2), "tile": 32}
    return {"q": q, "k": k, "v": normal(rng, "bfloat16", K, 100, 128), "settings": settings}


# The merge of partials --------------------------------------------------------------------------


@_case(
    "two shards with sums of exponentials in ratio 2:8",
    seen="sglang 40903",
    right="weights 0.2 and 0.8, log-sum-exp 3 + ln 10: natural logarithms throughout",
)
def _ratio(rng: np.random.Generator) -> Inputs:
    inputs = _inputs(rng, cache=16, kv_len=10, grid=(1, 2), tile=16, start_pe=1)
    q, k, v = (np.zeros_like(inputs[name]) for name in ("q", "k", "v"))
    q[..., 0], k[..., 0] = 8, 3  # 8 * 3 / sqrt(64)
    v[:, 8:, 0], v[:, :8, 1] = 1, 1  # PE 0 holds tokens 8 and 9, PE 1 the first eight
    exact = np.zeros((H, 1, D), v.dtype)
    exact[..., 0], exact[..., 1] = 0.2, 0.8
    k, v = garbage_past(k, 10), garbage_past(v, 10)
    return inputs | {"q": q, "k": k, "v": v, "exact": exact}


def _raised(rng: np.random.Generator, *, raised: slice, **settings: Any) -> Inputs:
    """Scores of the tokens `raised` are larger by 200."""
    inputs = _inputs(rng, cache=256, kv_len=250, tile=32, **settings)
    q, k = inputs["q"], inputs["k"]
    q[..., 0], k[:, :250, 0] = 16, 0
    k[:, raised, 0] = 100  # 16 * 100 / sqrt(64)
    return inputs


for _name, _tokens, _grid in (
    ("the last 40 tokens larger by 200, one rank", slice(210, 250), (1, 1)),
    ("the last 40 tokens larger by 200, grid 2 x 2", slice(210, 250), (2, 2)),
    ("the first 40 tokens larger by 200, grid 2 x 2", slice(0, 40), (2, 2)),
):
    _case(_name, seen="EasyContext 14", right="finite: they alone count")(
        functools.partial(_raised, raised=_tokens, grid=_grid)
    )


# Large numbers in a small type ------------------------------------------------------------------


@_case(
    "float16, V = 6e4, uniform scores, context 300",
    seen="llama.cpp 13975",
    right="6e4: the unnormalised output is past 65504",
)
def _large_values(rng: np.random.Generator) -> Inputs:
    inputs = _inputs(rng, cache=300, storage="float16", grid=(2, 2), tile=32)
    q, v = np.zeros_like(inputs["q"]), np.full_like(inputs["v"], 6e4)
    return inputs | {"q": q, "v": v, "exact": np.full(q.shape, 6e4)}


@_case(
    "float16, q and k = +-6e4, one key alike",
    seen="flash-attention 543, HabanaAI 275",
    right="V of the key that has the signs of q, exactly",
)
def _one_key_alike(rng: np.random.Generator) -> Inputs:
    inputs = _inputs(rng, cache=300, storage="float16", grid=(2, 2), tile=32)
    q = np.repeat(np.sign(normal(rng, "float16", K, 1, D)), GROUP, axis=0) * np.float16(6e4)
    k = np.sign(normal(rng, "float16", K, 300, D)) * np.float16(6e4)
    k[:, 170] = q[::GROUP, 0]
    return inputs | {"q": q, "k": k, "exact": _by_head(inputs["v"][:, 170:171])}


@_case(
    "float16, q and k = +-61440 at random, exact P",
    seen="flash-attention 543, HabanaAI 275",
    right="the float64 reference: keys that tie share the weight",
)
def _ties(rng: np.random.Generator) -> Inputs:
    settings = {"grid": (2, 2), "tile": 32, "exact_p": True}
    inputs = _inputs(rng, cache=300, storage="float16", **settings)
    q, k = (np.sign(inputs[name]) * np.float16(F16_LARGE) for name in ("q", "k"))
    k[:, 1::2] = k[:, :-1:2]  # pairs tie
    return inputs | {"q": q, "k": k}


@_case(
    "float16, scores + 2000",
    seen="flash-attention 543, HabanaAI 275",
    right="the float64 reference: softmax does not see the shift",
)
def _shifted(rng: np.random.Generator) -> Inputs:
    inputs = _inputs(rng, cache=300, storage="float16", grid=(2, 2), tile=32)
    inputs["q"][..., 0], inputs["k"][..., 0] = 128, 125  # 128 * 125 / sqrt(64)
    return inputs


@_case(
    "float16, scores of -1e9 and less beside masked ones",
    seen="ocannl 548",
    right="the float64 reference: no overflow, and what is masked does not tie with what is seen",
)
def _below_a_mask_constant(rng: np.random.Generator) -> Inputs:
    settings = {"grid": (2, 2), "tile": 32, "softmax_scale": 1.0}
    inputs = _inputs(rng, rows=5, cache=256, kv_len=45, storage="float16", **settings)
    q, k = np.zeros_like(inputs["q"]), np.zeros_like(inputs["k"])
    q[..., 0], k[..., 0] = -32768, 32752
    k[:, ::3, 0] = 30528  # -1000341504
    return inputs | {"q": q, "k": garbage_past(k, 45)}


# Memory layout ----------------------------------------------------------------------------------


@_case(
    "K strided, V contiguous",
    seen="FlagAttention 45",
    right="the float64 reference: strides do not matter",
)
def _strided(rng: np.random.Generator) -> Inputs:
    inputs = _inputs(rng, cache=512, grid=(2, 2), tile=32)
    return inputs | {"k": inputs["k"][:, ::2], "v": np.ascontiguousarray(inputs["v"][:, ::2])}
