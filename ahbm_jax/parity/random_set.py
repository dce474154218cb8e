"""A seeded set of random inputs over everything that `attention` can be asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ahbm_jax.kernel_names import Kernel, variant_names
from ahbm_jax.machine.placement import LAYOUTS
from ahbm_jax.machine.topology import CUBE_COLLECTIVES, PE_COLLECTIVES
from ahbm_jax.parity.case import STORAGE, Case, garbage_past

MODES = (  # storage type, exact_p
    ("bfloat16", False),
    ("bfloat16", True),
    ("float16", False),
    ("float16", True),
    ("float32", False),
)
LENGTHS = ("full", "inside", "few", "at most T")
AS_DRAWN = (  # arguments of attention
    "variant",
    "tile",
    "query_tile",
    "layout",
    "level2",
    "level1",
    "packed",
    "window",
    "softcap",
)
KNOBS: dict[str, Sequence[Any]] = {
    "group": (1, 3, 4, 5, 8, 12, 16),
    "kv_heads": (1, 2, 3),
    "head_dim": (32, 48, 64, 80, 96, 128, 192),
    "rows": (1, 1, 2, 3, 4, 5),
    "tile": (5, 8, 16, 33, 64, 128),
    "mode": MODES,
    "length": LENGTHS,
    "cubes": (1, 2, 3, 4),
    "pes": (1, 2, 3, 4),
    "layout": LAYOUTS,
    "level2": tuple(PE_COLLECTIVES),
    "level1": tuple(CUBE_COLLECTIVES),
    "packed": (False, True),
    "rotated": (False, True),
    "scaled": (False, False, True),
    "value_dim": (None, None, 32, 128),
    "start": ("last", "last", "inside", "first"),
    "window": (None, None, 5, 7, 50),
    "sinks": (False, False, True),
    "softcap": (None, None, 5.0, 50.0),
    "query_tile": (2, 3, 64),
}


def random_cases(seed: int, count: int, kernel: str | Kernel = "decode") -> list[Case]:
    """The first `count` cases of `seed`; each knob takes all its values before one comes again.

    Variants are those of `kernel`.
    """
    rng = np.random.default_rng([seed, 1])
    knobs = {**KNOBS, "variant": variant_names(kernel) or (None,)}
    decks = {name: _deck(rng, values) for name, values in knobs.items()}
    return [
        _draw(index, rng, {name: next(deck) for name, deck in decks.items()})
        for index in range(count)
    ]


def _deck(rng: np.random.Generator, values: Sequence[Any]) -> Iterator[Any]:
    while True:
        for index in rng.permutation(len(values)):
            yield values[index]


def _draw(index: int, rng: np.random.Generator, knobs: dict[str, Any]) -> Case:
    storage, exact_p = knobs["mode"]
    cubes, pes, rows = knobs["cubes"], knobs["pes"], knobs["rows"]
    cache = int(rng.integers(rows, 400))
    settings = {
        **{name: knobs[name] for name in AS_DRAWN},
        "grid": (cubes, pes),
        "kv_len": _length(rng, knobs["length"], cache, rows, cubes * pes),
        "exact_p": exact_p,
        "group_shape": _shape(rng, cubes),
        "start_cube": int(rng.integers(cubes)) if knobs["rotated"] else 0,
        "start_pe": int(rng.integers(pes)) if knobs["rotated"] else 0,
    }
    dim = knobs["head_dim"]
    if knobs["scaled"]:
        settings["softmax_scale"] = float(np.float32(rng.uniform(0.3, 1.5) / np.sqrt(dim)))
    sizes = (knobs["kv_heads"], knobs["group"], rows, cache, dim)
    q, k, v = (x.astype(STORAGE[storage]) for x in _values(rng, *sizes))
    if knobs["value_dim"] is not None:
        v = np.resize(v, (*v.shape[:2], knobs["value_dim"]))
    if knobs["sinks"]:
        settings["sinks"] = tuple(float(x) for x in rng.normal(size=len(q)).astype(np.float32))
    if knobs["start"] != "last":
        settings["query_start"] = _start(rng, knobs["start"], settings["kv_len"], rows)
    k, v = (garbage_past(x, settings["kv_len"]) for x in (k, v))
    return Case(name=f"random {index}", q=q, k=k, v=v, settings=settings)


def _length(rng: np.random.Generator, kind: str, cache: int, rows: int, ranks: int) -> int:
    if kind == "full":
        return cache
    low, most = {"inside": (1, cache), "few": (2, 2 * ranks + 2), "at most T": (0, rows)}[kind]
    return int(rng.integers(low, min(most, cache), endpoint=True))


def _start(rng: np.random.Generator, kind: str, kv_len: int, rows: int) -> int:
    return 0 if kind == "first" else int(rng.integers(0, max(kv_len - rows, 0), endpoint=True))


def _shape(rng: np.random.Generator, cubes: int) -> tuple[int, int]:
    rows = int(rng.choice([n for n in range(1, cubes + 1) if cubes % n == 0]))
    return rows, cubes // rows


def _values(
    rng: np.random.Generator, kv_heads: int, group: int, rows: int, cache: int, dim: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries of unlike sizes, keys with an outlier channel, values over four decades."""
    q = rng.normal(size=(kv_heads * group, rows, dim))
    q *= 2.0 ** rng.uniform(-2, 1, size=(len(q), 1, 1))
    k = rng.normal(size=(kv_heads, cache, dim)) + rng.normal(size=(kv_heads, 1, dim))
    k[..., rng.integers(dim)] *= 8
    v = rng.normal(size=k.shape) * 10.0 ** rng.uniform(-2, 2, size=(kv_heads, 1, dim))
    return q, k, v + rng.normal(size=(kv_heads, 1, dim))
