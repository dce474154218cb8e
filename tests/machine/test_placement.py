"""Placement: every token on exactly one rank, slices dense, for any shape, start and length."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahbm_jax.machine.placement import LAYOUTS, Placement

sizes = {
    "layout": st.sampled_from(LAYOUTS),
    "cubes": st.integers(1, 9),
    "pes": st.integers(1, 9),
    "tokens": st.integers(0, 400),
    "spare": st.integers(0, 100),
    "start_cube": st.integers(0, 8),
    "start_pe": st.integers(0, 8),
}


def build(
    layout: str, cubes: int, pes: int, cache: int, start_cube: int, start_pe: int
) -> Placement:
    return Placement(
        layout=layout,
        cubes=cubes,
        pes=pes,
        cache_tokens=max(cache, 1),
        start_cube=start_cube % cubes,
        start_pe=start_pe % pes,
    )


@given(**sizes)
def test_bijection(
    layout: str, cubes: int, pes: int, tokens: int, spare: int, start_cube: int, start_pe: int
) -> None:
    placement = build(layout, cubes, pes, tokens + spare, start_cube, start_pe)
    seen = []
    for cube in range(cubes):
        for pe in range(pes):
            length = placement.length(cube, pe, tokens)
            assert 0 <= length <= placement.shard_tokens
            held = [placement.token(cube, pe, slot) for slot in range(length)]
            assert held == sorted(held)
            seen += held
            for slot, token in enumerate(held):
                assert placement.owner(token) == (cube, pe, slot)
    assert sorted(seen) == list(range(tokens))


@given(**sizes)
def test_growth_is_append_only(
    layout: str, cubes: int, pes: int, tokens: int, spare: int, start_cube: int, start_pe: int
) -> None:
    """One more token lengthens one rank's shard by one slot and moves nothing."""
    placement = build(layout, cubes, pes, tokens + spare + 1, start_cube, start_pe)
    cube, pe, slot = placement.owner(tokens)
    for c in range(cubes):
        for p in range(pes):
            grown = placement.length(c, p, tokens + 1) - placement.length(c, p, tokens)
            assert grown == ((c, p) == (cube, pe))
    assert placement.length(cube, pe, tokens) == slot


@given(**sizes)
def test_fewest_and_most(
    layout: str, cubes: int, pes: int, tokens: int, spare: int, start_cube: int, start_pe: int
) -> None:
    placement = build(layout, cubes, pes, tokens + spare, start_cube, start_pe)
    held = [placement.length(c, p, tokens) for c in range(cubes) for p in range(pes)]
    assert (placement.fewest(tokens), placement.most(tokens)) == (min(held), max(held))


@given(**sizes)
def test_ranks_on_a_side_of_the_frontier_are_alike(
    layout: str, cubes: int, pes: int, tokens: int, spare: int, start_cube: int, start_pe: int
) -> None:
    placement = build(layout, cubes, pes, tokens + spare, start_cube, start_pe)
    frontier = placement.frontier(tokens)
    held = [placement.length_at(order, tokens) for order in range(cubes * pes)]
    assert len(set(held[: max(frontier, 0)])) <= 1
    assert len(set(held[frontier + 1 :])) <= 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_agree_with_integers(layout: str) -> None:
    whole = build(layout, 3, 4, 250, 2, 1)
    traced = build(layout, 3, 4, 250, 2, 1)
    cube, pe = np.divmod(np.arange(12), 4)
    lengths = traced.length(jnp.asarray(cube, jnp.float32), jnp.asarray(pe, jnp.float32), 217.0)
    assert lengths.tolist() == [
        whole.length(int(c), int(p), 217) for c, p in zip(cube, pe, strict=True)
    ]


def test_the_two_round_robins_differ() -> None:
    """Token 1 on 2 x 2: the next PE, or the next CUBE (ADR-0060 section 0 against 2.1)."""
    by_rank = build("round_robin", 2, 2, 8, 0, 0)
    by_cube = build("round_robin_cube_first", 2, 2, 8, 0, 0)
    assert by_rank.owner(1) == (0, 1, 0)
    assert by_cube.owner(1) == (1, 0, 0)


def test_contiguous_blocks() -> None:
    placement = build("contiguous", 2, 2, 10, 0, 0)  # 3 tokens a rank
    assert [placement.owner(t)[:2] for t in (0, 2, 3, 9)] == [(0, 0), (0, 0), (0, 1), (1, 1)]


def test_zigzag_blocks() -> None:
    """Of 8 blocks each rank of 4 has an early and a late one: the visible half is spread evenly."""
    placement = build("zigzag", 2, 2, 30, 0, 0)  # 4 tokens a block
    assert [placement.owner(t)[:2] for t in (0, 4, 8, 12)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [placement.owner(t)[:2] for t in (16, 20, 24, 29)] == [(1, 1), (1, 0), (0, 1), (0, 0)]
    assert placement.shard_tokens == 8
    assert placement.owner(28) == (0, 0, 4)
    cubes = [[sum(placement.length(c, p, n) for p in (0, 1)) for c in (0, 1)] for n in (16, 24)]
    assert cubes == [[8, 8], [8, 16]]
