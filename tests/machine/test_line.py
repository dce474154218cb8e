"""The line through all ranks: every rank once, one hop each, for every size of both meshes."""

from __future__ import annotations

import pytest

from ahbm_jax.machine.line import Line, line_index, line_position, line_ways
from ahbm_jax.machine.topology import OFFSET, Position, Step

MESHES = {
    "cube": ((4, 4), [(r, c, r * c) for r in range(1, 5) for c in range(1, 5)]),
    "pe": ((2, 4), [(2, 4, p) for p in range(1, 9)]),
    "deep pe": ((3, 3), [(3, 3, p) for p in range(1, 10)]),
    "one row": ((1, 5), [(1, 5, p) for p in range(1, 6)]),
    "one column": ((4, 1), [(r, 1, r) for r in range(1, 5)]),
}
CASES = [(most, size) for most, sizes in MESHES.values() for size in sizes]


def at(index: int, size: tuple[int, int, int]) -> Position:
    rows, cols, count = size
    return Position(row=index // cols, col=index % cols, rows=rows, cols=cols, count=count)


def target(step: Step, here: Position) -> int:
    down, right = OFFSET[step.direction]
    row, col = here.row + down * step.hops, here.col + right * step.hops
    assert 0 <= row < here.rows
    assert 0 <= col < here.cols
    return row * here.cols + col


@pytest.mark.parametrize(("most", "size"), CASES)
def test_line_of_a_mesh(most: tuple[int, int], size: tuple[int, int, int]) -> None:
    count = size[2]
    places = [at(i, size) for i in range(count)]
    order = sorted(places, key=line_index)
    assert [line_index(p) for p in order] == list(range(count))
    assert [line_position(i, places[0]) for i in range(count)] == [p.index for p in order]
    for way, distance in zip(line_ways(*most), (1, -1), strict=True):
        for place in places:
            there = line_index(place) + distance
            sends = [step for step in way.steps if step.sends(place)]
            assert way.sends(place) == (0 <= there < count)
            assert len(sends) == way.sends(place)
            if not sends:
                continue
            (step,) = sends
            receiver = order[there]
            assert way.routes(place, outgoing=True) == [(step.route, True)]
            assert step.hops == 1
            assert target(step, place) == receiver.index
            assert way.routes(receiver, outgoing=False) == [(step.route, True)]
            assert [s for s in way.steps if s.receives(receiver)] == [step]
        assert sum(bool(way.receives(p)) for p in places) == count - 1


@pytest.mark.parametrize("cubes", [(1, 1), (1, 2), (2, 3), (3, 3), (2, 4)])
@pytest.mark.parametrize("pes", [1, 2, 5, 8])
def test_line_of_all_ranks(cubes: tuple[int, int], pes: int) -> None:
    rows, cols = cubes
    size, ranks = (rows, cols, rows * cols), rows * cols * pes
    lines = {
        (c, p): Line(at(c, size), at(p, (2, 4, pes)))
        for c in range(rows * cols)
        for p in range(pes)
    }
    by_index = {line.index: rank for rank, line in lines.items()}
    assert sorted(by_index) == list(range(ranks))
    assert all(line.rank_at(line.index) == rank for rank, line in lines.items())
    for index in range(ranks):
        line = lines[by_index[index]]
        links = line.links((4, 4), (2, 4))
        for towards, there in (("onward", index + 1), ("back", index - 1)):
            used = [link for link in links if link.sends and getattr(link, towards)]
            assert len(used) == (0 <= there < ranks)
            for link in used:
                here = line.pe if link.mesh == "pe" else line.cube
                [(route, _)] = link.way.routes(here, outgoing=True)
                other = here.moved(*route.offset).index
                cube, pe = by_index[index]
                assert by_index[there] == ((cube, other) if link.mesh == "pe" else (other, pe))
                back = lines[by_index[there]].links((4, 4), (2, 4))
                (received,) = [x for x in back if x.receives and getattr(x, towards)]
                assert (received.mesh, received.way) == (link.mesh, link.way)


def test_one_position_has_no_way() -> None:
    alone = at(0, (1, 1, 1))
    for way in line_ways(1, 1):
        assert way.steps == ()
        assert not way.sends(alone)
        assert not way.receives(alone)
    assert Line(alone, alone).links((1, 1), (1, 1)) == []
