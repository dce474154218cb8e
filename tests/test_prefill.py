"""Prefill: which tiles are issued, chunk by chunk, and that it is the one-shot result."""

from __future__ import annotations

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ahbm_jax
from ahbm_jax.errors import UsageError
from ahbm_jax.interpret.record import record
from ahbm_jax.knobs import point

MACHINE = ahbm_jax.load_machine("one_pe")
MODEL = ahbm_jax.load_workload("smollm2_135m")


def issued(**knobs: int | None) -> list[tuple[int, int]]:
    """(rows, columns) of each Q K^T composite, in order."""
    given_ = {name: x for name, x in knobs.items() if x is not None}
    settled = point("prefill", MACHINE, MODEL, {"variant": "opt1", "C": 1, "P": 1} | given_)
    (entry,) = record(settled.kernel, settled.machine, settled.launch())
    return [(c.rows, c.cols) for c in entry.commands if c.op == "composite" and c.tensor == "k"]


def triangle(
    start: int, length: int, block: int, tile: int, window: int | None
) -> list[tuple[int, int]]:
    """The same by the definition: tiles of which some row of a block sees a token."""
    found = []
    for first in range(start, start + length, block):
        rows = range(first, min(first + block, start + length))
        low = max(rows[0] + 1 - (window or rows[-1] + 1), 0)
        for begin in range(low // tile * tile, rows[-1] + 1, tile):
            seen = min(rows[-1] + 1, begin + tile) - begin
            found.append((len(rows) * MODEL.group, seen))
    return found


@settings(max_examples=60)
@given(
    start=st.integers(0, 300),
    length=st.integers(1, 300),
    block=st.sampled_from([1, 16, 37, 64, 128]),
    tile=st.sampled_from([16, 37, 64, 128]),
    window=st.none() | st.integers(1, 300),
)
def test_tiles_issued_are_those_of_the_triangle(
    start: int, length: int, block: int, tile: int, window: int | None
) -> None:
    knobs = {"context": start + length + 50, "query_start": start, "query_length": length}
    got = issued(**knobs, query_tile=block, tile=tile, window=window)
    assert got == triangle(start, length, block, tile, window)


def test_causal_skip_is_about_half() -> None:
    full = issued(context=4096, query_start=2048, query_length=2048, query_tile=128, tile=128)
    half = issued(context=2048, query_length=2048, query_tile=128, tile=128)
    assert len(half) == 16 * 17 / 2
    assert len(full) == len(half) + 16 * 16


@pytest.mark.parametrize("cuts", [(0, 100), (0, 1, 100), (0, 33, 64, 100), (0, 99, 100)])
def test_chunks_are_the_one_shot_result(cuts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(n, 100, 32)), jnp.float32) for n in (4, 2, 2))
    options = {"tile": 32, "query_tile": 16, "window": 40, "softcap": 20.0}
    whole, lse = ahbm_jax.attention("prefill", q, k, v, **options)
    parts = [
        ahbm_jax.attention("prefill", q[:, a:b], k, v, query_start=a, kv_len=b, **options)
        for a, b in pairwise(cuts)
    ]
    # Blocks begin elsewhere in each cut, so tiles do not, but what a row rescales by may differ.
    np.testing.assert_allclose(jnp.concatenate([o for o, _ in parts], 1), whole, atol=2e-6)
    assert lse is not None
    np.testing.assert_allclose(jnp.concatenate([x for _, x in parts], 1), lse, atol=2e-6)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"query_start": 90, "query_length": 20}, "queries end past the `context` of 100"),
        ({"query_length": 0}, "`query_length` is 0"),
        ({"window": 0}, "`window` is 0"),
        ({"query_tile": 0}, "`query_tile` is 0"),
        ({"softcap": 3.0}, "`softcap` is 3.0"),
    ],
)
def test_what_a_chunk_cannot_be(knobs: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        point("prefill", MACHINE, MODEL, {"context": 100} | knobs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": 0}, "`window` is 0"),
        ({"softcap": 0.0}, "`softcap` is 0.0"),
        ({"sinks": np.zeros(3)}, r"`sinks` has shape \(3,\)"),
        ({"query_tile": 0}, "`query_tile` is 0"),
    ],
)
def test_options_out_of_range(arguments: dict, message: str) -> None:
    x = jnp.zeros((2, 4, 8), jnp.float32)
    with pytest.raises(UsageError, match=message):
        ahbm_jax.attention("prefill", x, x, x, **arguments)
