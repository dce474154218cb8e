"""The ring's commands: what moves, what is skipped, what fits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as with_fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ahbm_jax
from ahbm_jax.errors import UsageError
from ahbm_jax.interpret.record import RankRecord, Record, Recorded, record
from ahbm_jax.knobs import point
from ahbm_jax.machine.params import Workload
from ahbm_jax.tl.program import run_program

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
LLAMA_8B = ahbm_jax.load_workload("llama3_8b")  # 4 query heads a KV head
DIM = 32
TOKEN_BYTES = DIM * 2  # of K or of V


def model(cubes: int) -> Workload:
    return with_fields(LLAMA_8B, query_heads=8 * cubes, kv_heads=8, head_dim=DIM)


def recorded(**knobs: Any) -> list[RankRecord]:
    settled = point("prefill_ring", MACHINE, model(knobs["C"]), knobs)
    return record(settled.kernel, settled.machine, settled.launch())


def commands(records: list[RankRecord], *ops: str) -> list[Recorded]:
    return [c for entry in records for c in entry.commands if c.op in ops]


def sent(records: list[RankRecord], mesh: str) -> list[int]:
    """Bytes of each message on a mesh."""
    return [c.message.size_bytes for c in commands(records, "send") if c.message.mesh == mesh]


class Ring:
    """What each rank must do, from the definition: token by token, no arithmetic of tiles."""

    def __init__(
        self,
        *,
        C: int,
        P: int,
        part: int,
        cache_tokens: int,
        query_start: int,
        query_length: int,
        query_tile: int,
        window: int | None,
    ) -> None:
        self.window = window
        block = -(-cache_tokens // (C * P))
        shards = [
            range(r * block, min((r + 1) * block, query_start + query_length)) for r in range(C * P)
        ]
        self.parts = [s[i : i + part] for s in shards for i in range(0, len(s), part)]
        tile = min(query_tile, -(-query_length // P))
        blocks = [range(i, min(i + tile, query_length)) for i in range(0, query_length, tile)]
        rows = [range(query_start + b.start, query_start + b.stop) for b in blocks]
        self.rounds = [rows[i : i + P] for i in range(0, len(rows), P)]  # rows of each PE

    def seen(self, part: range, rows: range) -> bool:
        """Whether some row sees a token of a part."""
        first = 0 if self.window is None else rows[0] + 1 - self.window
        return any(first <= token <= rows[-1] for token in part)

    def moved(self) -> list[int]:
        """Tokens of each part that goes round, in each round."""
        found = []
        for round_ in self.rounds:
            whole = range(round_[0].start, round_[-1].stop)
            found += [
                len([t for t in p if t < whole.stop]) for p in self.parts if self.seen(p, whole)
            ]
        return found

    def folds(self) -> int:
        """Parts that PEs fold, on one CUBE."""
        blocks = [rows for round_ in self.rounds for rows in round_]
        return sum(self.seen(part, rows) for rows in blocks for part in self.parts)


@settings(max_examples=60)
@given(
    cubes=st.sampled_from([1, 2, 3, 4]),
    pes=st.integers(1, 5),
    part=st.integers(1, 9),
    start=st.integers(0, 60),
    more=st.integers(0, 30),
    tile=st.integers(1, 12),
    spare=st.integers(0, 40),
    window=st.none() | st.integers(1, 60),
    feed=st.sampled_from(["gather", "lanes"]),
)
def test_what_moves_is_what_somebody_looks_at(
    cubes: int,
    pes: int,
    part: int,
    start: int,
    more: int,
    tile: int,
    spare: int,
    window: int | None,
    feed: str,
) -> None:
    """Nothing goes round that no row of the round sees, and everything else once."""
    length = pes + more
    shape = {
        "C": cubes,
        "P": pes,
        "cache_tokens": start + length + spare,
        "query_start": start,
        "query_length": length,
        "query_tile": tile,
    }
    right = Ring(part=part, window=window, **shape)
    given_ = {} if window is None else {"window": window}
    records = recorded(
        context=start + length, ring_chunk=part * pes, ring_feed=feed, **shape, **given_
    )
    moved = right.moved()
    loads = [c.hbm_bytes for c in commands(records, "load") if c.tensor in "kv"]
    assert sorted(loads) == sorted(2 * [n * TOKEN_BYTES for n in moved])
    assert len(commands(records, "composite")) == 2 * cubes * right.folds()
    hops = {"cube": cubes - 1, "pe": cubes * (pes - 1)}
    if feed == "lanes":
        hops = {"cube": pes * (cubes - 1), "pe": pes - 1}
    for mesh, times in hops.items():
        assert Counter(sent(records, mesh)) == Counter([2 * n * TOKEN_BYTES for n in moved] * times)
    rows = sum(c.rows for c in commands(records, "store"))
    assert rows == cubes * length


@pytest.mark.parametrize("feed", ["gather", "lanes"])
def test_closed_form(feed: str) -> None:
    """Of a whole prompt whose parts and rounds divide it: the triangle, and nothing else."""
    C, P, part, tile, rounds = 4, 2, 16, 8, 8
    tokens = rounds * P * tile
    records = recorded(
        context=tokens,
        query_length=tokens,
        query_tile=tile,
        C=C,
        P=P,
        ring_chunk=P * part,
        ring_feed=feed,
    )
    assert part == P * tile  # so that round r (from 1) sees r parts, and so does each of its blocks
    turns = rounds * (rounds + 1) // 2
    assert len(commands(records, "composite")) == 2 * turns * C * P
    assert len(sent(records, "cube")) == turns * (C - 1) * (P if feed == "lanes" else 1)
    assert len(sent(records, "pe")) == turns * (P - 1) * (1 if feed == "lanes" else C)
    assert sum(c.hbm_bytes for c in commands(records, "load")) == (
        2 * turns * part * TOKEN_BYTES + C * tokens * TOKEN_BYTES
    )


@pytest.mark.parametrize("knobs", [{}, {"ring_feed": "lanes"}, {"query_length": 3}])
def test_each_message_is_consumed_once(knobs: dict[str, Any]) -> None:
    shape = {"C": 4, "P": 5, "context": 300, "query_length": 40, "tile": 8, "query_tile": 3}
    records = recorded(**shape | knobs)
    channels: dict[str, dict[tuple, list[int]]] = {"send": {}, "recv": {}}
    for c in commands(records, "send", "recv", "recv_async"):
        m = c.message
        channel = (m.mesh, m.direction, m.source, m.target)
        channels[c.op[:4]].setdefault(channel, []).append(m.size_bytes)
    assert channels["send"] == channels["recv"]
    assert all(c.message.size_bytes > 0 for c in commands(records, "send"))
    corner = {c.message.hops for c in commands(records, "send") if c.message.turn}
    assert corner == ({4} if knobs.get("query_length", 40) >= 5 else set())
    assert {c.message.hops for c in commands(records, "send") if c.message.mesh == "cube"} == {1}


def test_few_rows_gather_nothing() -> None:
    """Each PE folds its own parts; one reduce of (m, l, O) along the tree, three messages each."""
    C, P, context = 4, 4, 256
    records = recorded(C=C, P=P, context=context, query_length=3, tile=8)
    parts = context // 8
    assert len(sent(records, "cube")) == parts * (C - 1)
    assert len(sent(records, "pe")) == 3 * C * (P - 1)
    assert len(commands(records, "composite")) == 2 * parts * C
    assert len(commands(records, "store")) == C


def test_a_tile_at_a_time_of_each_pe_by_default() -> None:
    shape = {"C": 2, "P": 4, "context": 512, "query_length": 64, "tile": 16}
    assert sent(recorded(**shape), "cube") == sent(recorded(**shape, ring_chunk=64), "cube")


def test_scratch_does_not_depend_on_the_context() -> None:
    """Of 128k tokens on 8 x 8 ranks, D = 128: two parts for each ring, and a fold's temporaries."""
    workload = ahbm_jax.load_workload("llama3_70b")
    peaks = []
    for context in (2**13, 2**14, 2**17):
        knobs = {"context": context, "query_length": 512, "query_tile": 64, "tile": 128}
        settled = point("prefill_ring", MACHINE, workload, knobs)
        interpreter = Record(settled.machine, settled.launch(), (5, 3))
        run_program(interpreter, settled.kernel)
        peaks.append(interpreter.scratch_peak_bytes)
    assert len(set(peaks)) == 1
    assert peaks[0] < 2**20


def test_refuses() -> None:
    for knobs, message in (
        ({"C": 8}, "`C` is 8 and `llama3_8b` has 4 query heads per KV head.*set `C` to 4"),
        ({"C": 4, "ring_chunk": 12}, "`ring_chunk` is 12; a multiple of `P` = 8"),
        ({"C": 4, "ring_feed": "lane"}, "`ring_feed` is 'lane' .did you mean `lanes`"),
    ):
        with pytest.raises(UsageError, match=message):
            ahbm_jax.simulate("prefill_ring", MACHINE, LLAMA_8B, query_length=64, **knobs)
