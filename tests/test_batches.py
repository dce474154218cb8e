"""Batches of requests through one group: what runs in them, and what their overlap saves."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import ahbm_jax
from ahbm_jax.errors import UsageError
from ahbm_jax.events import simulate
from ahbm_jax.interpret.record import Recorded, record
from ahbm_jax.knobs import point
from ahbm_jax.parity import measure
from kernels.reference import reference

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
WORKLOAD = ahbm_jax.load_workload("llama3_8b")
CHUNK = {"context": 1000, "query_length": 48, "query_tile": 16, "tile": 64, "variant": "opt1"}


def work(**knobs: Any) -> list[Counter[tuple]]:
    """What each rank's engines are asked to do, by command, without control and mask marks."""
    settled = point("prefill", MACHINE, WORKLOAD, {**CHUNK, "C": 2, "P": 2, **knobs})
    records = record(settled.kernel, settled.machine, settled.launch())
    return [Counter(map(size, entry.commands)) for entry in records]


def size(command: Recorded) -> tuple:
    return command.op, command.rows, command.cols, command.inner, command.hbm_bytes


@pytest.mark.parametrize(("users", "decode_users"), [(1, 1), (2, 3)])
def test_a_batch_is_its_requests(users: int, decode_users: int) -> None:
    """Chunks and decodes one by one, command for command; in a batch each has marks of its own."""
    batch = work(users=users, decode_users=decode_users)
    one_chunk, one_decode = work(), work(query_length=1)
    marks = {"loop", "scope_enter", "scope_exit"}
    for mixed, chunk, decode in zip(batch, one_chunk, one_decode, strict=True):
        for each in {*mixed, *chunk, *decode}:
            if each[0] not in marks:
                assert mixed[each] == users * chunk[each] + decode_users * decode[each], each


def test_decodes_come_first() -> None:
    timeline = simulate("prefill", MACHINE, WORKLOAD, C=1, P=1, users=2, decode_users=2, **CHUNK)
    order = sorted(range(len(timeline.commands)), key=timeline.issued_ns.__getitem__)
    rows = [timeline.commands[i].rows for i in order if timeline.commands[i].op == "store"]
    group = WORKLOAD.group
    assert [(n, len(list(each))) for n, each in groupby(rows)] == [(group, 2), (16 * group, 6)]


def test_the_values_of_a_batch_are_those_of_its_requests() -> None:
    """One kernel serves both: a decode is a chunk of one token."""
    rng = np.random.default_rng(5)
    q, k, v = (jnp.asarray(rng.normal(size=(n, 100, 32)), jnp.bfloat16) for n in (4, 2, 2))
    for rows in (slice(99, 100), slice(60, 100)):
        o, lse = ahbm_jax.attention("prefill", q[:, rows], k, v, grid=(2, 2), tile=16)
        assert measure(o, lse, reference(q[:, rows], k, v), "bfloat16").passed


def test_a_request_starts_while_the_one_before_is_reduced() -> None:
    knobs = {"C": 2, "P": 4, "context": 2048, "tile": 128, "variant": "opt3"}
    alone = simulate("decode", MACHINE, WORKLOAD, **knobs)
    four = simulate("decode", MACHINE, WORKLOAD, users=4, **knobs).latency_ns
    # A rank that only sends goes on at once; the root, which takes longest, cannot be outrun.
    assert 4 * min(alone.finish_ns.values()) < four < 4 * alone.latency_ns


def test_decodes_alone_are_users() -> None:
    """Of `decode_users` and `users` that ask one token each it does not matter which is which."""
    knobs = {"C": 2, "P": 2, "context": 3000, "variant": "opt3"}
    both = simulate("decode", MACHINE, WORKLOAD, users=2, decode_users=3, **knobs)
    assert both.latency_ns == simulate("decode", MACHINE, WORKLOAD, users=5, **knobs).latency_ns


@pytest.mark.parametrize("value", [-1, 1.5])
def test_what_decode_users_cannot_be(value: float) -> None:
    with pytest.raises(UsageError, match=f"`decode_users` is {value}"):
        point("prefill", MACHINE, WORKLOAD, {**CHUNK, "decode_users": value})
