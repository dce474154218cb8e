"""Reduce plans: every rank consumed once, one root, and as many rounds as promised."""

from __future__ import annotations

import math

import pytest

from ahbm_jax.machine.topology import (
    CUBE_COLLECTIVES,
    OFFSET,
    PE_COLLECTIVES,
    Collective,
    Position,
    Step,
    broadcast,
    movement,
    rectangle,
)

RECTANGLES = [(r, c, r * c) for r in range(1, 5) for c in range(1, 5)]
COUNTS = [(2, 4, p) for p in range(1, 9)]
CASES = [
    *(
        (name, CUBE_COLLECTIVES[name], (4, 4), size)
        for name in CUBE_COLLECTIVES
        for size in RECTANGLES
    ),
    *((name, PE_COLLECTIVES[name], (2, 4), size) for name in PE_COLLECTIVES for size in COUNTS),
    *(
        (name, PE_COLLECTIVES[name], (2, 8), (2, 8, p))
        for name in PE_COLLECTIVES
        for p in (5, 9, 16)
    ),
]


def at(index: int, size: tuple[int, int, int]) -> Position:
    rows, cols, count = size
    return Position(row=index // cols, col=index % cols, rows=rows, cols=cols, count=count)


def messages(plan: tuple[Step, ...], size: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """(source, target, hops) in order."""
    out = []
    for step in plan:
        down, right = OFFSET[step.direction]
        for index in range(size[2]):
            if step.sends(at(index, size)):
                row, col = index // size[1] + down * step.hops, index % size[1] + right * step.hops
                target = row * size[1] + col
                assert step.receives(at(target, size)), "a message without a receiver"
                out.append((index, target, step.hops))
        received = sum(bool(step.receives(at(i, size))) for i in range(size[2]))
        sent = sum(bool(step.sends(at(i, size))) for i in range(size[2]))
        assert received == sent
    return out


@pytest.mark.parametrize(("name", "collective", "most", "size"), CASES)
def test_reduce_to_one_root(
    name: str, collective: Collective, most: tuple[int, int], size: tuple[int, int, int]
) -> None:
    holds = {i: {i} for i in range(size[2])}
    for source, target, _ in messages(collective.steps(*most), size):
        assert holds[source]
        assert not holds[source] & holds[target]
        holds[target] |= holds.pop(source)
        holds[source] = set()
    roots = [i for i in range(size[2]) if collective.root(at(i, size), most[1])]
    assert len(roots) == 1
    assert holds[roots[0]] == set(range(size[2]))


@pytest.mark.parametrize(("name", "collective", "most", "size"), CASES)
def test_broadcast_is_the_reduce_backwards(
    name: str, collective: Collective, most: tuple[int, int], size: tuple[int, int, int]
) -> None:
    reduce = collective.steps(*most)
    sent = messages(broadcast(reduce), size)
    assert sorted(sent) == sorted((b, a, hops) for a, b, hops in messages(reduce, size))
    (root,) = [i for i in range(size[2]) if collective.root(at(i, size), most[1])]
    reached = {root}
    for source, target, _ in sent:
        assert source in reached
        assert target not in reached
        reached.add(target)
    assert reached == set(range(size[2]))


@pytest.mark.parametrize("pes", range(1, 9))
def test_pe_tree_rounds_and_hops(pes: int) -> None:
    """With one exchange a rank in each round, as many rounds as a binary tree needs."""
    sent = messages(PE_COLLECTIVES["tree"].steps(2, 4), (2, 4, pes))
    last_round = dict.fromkeys(range(pes), 0)
    for source, target, hops in sent:
        assert hops == 1, "each pair of the tree is a physical neighbour"
        last_round[target] = last_round[source] = max(last_round[target], last_round[source]) + 1
    assert max(last_round.values()) == math.ceil(math.log2(pes))


@pytest.mark.parametrize("size", RECTANGLES)
def test_mesh_depth_is_distance_to_the_centre(size: tuple[int, int, int]) -> None:
    depth = dict.fromkeys(range(size[2]), 0)
    for source, target, _ in messages(CUBE_COLLECTIVES["mesh"].steps(4, 4), size):
        depth[target] = max(depth[target], depth[source] + 1)
    assert max(depth.values()) == size[0] // 2 + size[1] // 2


def test_movement_lists_every_size() -> None:
    plan = CUBE_COLLECTIVES["mesh"].steps(4, 4)
    sends, receives = movement(plan, 4, 4, ragged=False)
    assert sends.sum(axis=(1, 2))[2 * 5 + 3] == 5  # of 2 x 3 CUBEs all but the root send
    assert (sends.sum(axis=2) == receives.sum(axis=2)).all()


@pytest.mark.parametrize(
    ("cubes", "shape"), [(1, (1, 1)), (2, (1, 2)), (8, (2, 4)), (12, (3, 4)), (5, None), (7, None)]
)
def test_rectangles(cubes: int, shape: tuple[int, int] | None) -> None:
    assert rectangle(cubes, 4, 4) == shape
