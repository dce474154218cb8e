"""The parity check: its reference, its metric, and every case of it under vmap and shard_map."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import cycle
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from ahbm_jax.errors import UsageError
from ahbm_jax.kernel_names import variant_names
from ahbm_jax.machine.placement import LAYOUTS
from ahbm_jax.machine.topology import CUBE_COLLECTIVES, PE_COLLECTIVES
from ahbm_jax.parity import (
    CASES,
    Case,
    CaseResult,
    Errors,
    check_input,
    check_parity,
    hard_cases,
    measure,
    random_cases,
    run_case,
)
from ahbm_jax.parity.case import STORAGE
from ahbm_jax.parity.random_set import KNOBS, MODES
from kernels.reference import Reference, reference

SEED, COUNT = 0, 18
HOST_DEVICES, FEW_RANKS = 16, 4
OTHER_KERNELS = ("prefill", "prefill_ring", "mesh_mlo", "mesh_mlo_2d", "mesh_kv")
HARD, RANDOM = hard_cases(SEED), random_cases(SEED, COUNT)


def ranks(case: Case) -> int:
    return math.prod(case.settings.get("grid", (1, 1)))


TURNS = list(
    zip(
        [case.name for case in HARD if ranks(case) <= FEW_RANKS], cycle(OTHER_KERNELS), strict=False
    )
)


def mesh_of(case: Case) -> Mesh:
    grid = case.settings.get("grid", (1, 1))
    devices = jax.devices()[: math.prod(grid)]
    return jax.make_mesh(grid, ("cube", "pe"), axis_types=(AxisType.Auto,) * 2, devices=devices)


def check(result: CaseResult) -> None:
    assert result.passed, f"{result.errors}, same on rerun: {result.rerun_equal}, {result.exact=}"


# The reference ------------------------------------------------------------------------------------


def definition(q: np.ndarray, k: np.ndarray, v: np.ndarray, kv_len: int) -> np.ndarray:
    """Output by the textbook, one number at a time, in Python's floats."""
    o = np.zeros(q.shape)
    group = len(q) // len(k)
    for (h, t, d), _ in np.ndenumerate(o):
        weights, total = [], []
        for s in range(kv_len):
            if s <= kv_len - q.shape[1] + t:
                dot = math.fsum(a * b for a, b in zip(q[h, t], k[h // group, s], strict=True))
                weights.append(math.exp(dot / math.sqrt(q.shape[2])))
                total.append(weights[-1] * v[h // group, s, d])
        o[h, t, d] = math.fsum(total) / math.fsum(weights) if weights else 0.0
    return o


@pytest.mark.parametrize(("rows", "kv_len"), [(1, 9), (3, 9), (4, 2), (2, 0)])
def test_reference_is_the_definition(rows: int, kv_len: int) -> None:
    rng = np.random.default_rng(1)
    q, k, v = rng.normal(size=(6, rows, 4)), *rng.normal(size=(2, 2, 11, 4))
    right = definition(q, k, v, kv_len)
    k[:, kv_len:] = v[:, kv_len:] = np.nan
    got = reference(q, k, v, kv_len=kv_len)
    np.testing.assert_allclose(got.o, right, rtol=1e-12, atol=1e-14)
    assert (got.envelope >= np.abs(got.o) - 1e-14).all()
    empty = kv_len - rows + np.arange(rows) < 0
    assert (np.isneginf(got.lse) == empty).all()


def test_reference_log_sum_exp_and_largest_score() -> None:
    k = np.array([[[-4.0], [1.0], [0.0]]])
    got = reference(np.array([[[2.0]]]), k, k, softmax_scale=0.5)
    assert got.lse[0, 0] == pytest.approx(math.log(math.exp(-4) + math.e + 1), rel=1e-15)
    assert got.largest_score[0, 0] == 4


def test_reference_refuses_what_is_not_finite() -> None:
    k = np.array([[[1.0], [np.nan]]])
    with pytest.raises(AssertionError, match="not finite"):
        reference(k[:, :1], k, k)
    with pytest.raises(AssertionError, match="not finite"):
        reference(k[:, :1], np.ones_like(k), k)


# The metric ---------------------------------------------------------------------------------------


def exact_reference(storage: str, rows: int = 1) -> Reference:
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(size=(2, n, 32)).astype(STORAGE[storage]) for n in (rows, 40, 40))
    return reference(q, k, v)


@pytest.mark.parametrize("storage", list(STORAGE))
def test_correct_rounding_passes_and_units_are_counted(storage: str) -> None:
    right = exact_reference(storage)
    o = right.o.astype(STORAGE[storage])
    errors = measure(o, right.lse.astype(np.float32), right, storage, exact_p=True)
    assert errors.passed
    assert errors.share_rounded == 1
    assert 0 < errors.rms < errors.E <= 1
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}[storage]
    off = measure(right.o + 3 * unit * right.envelope, right.lse, right, storage)
    assert pytest.approx(3, rel=1e-6) == off.E
    assert off.rms == pytest.approx(3, rel=1e-6)


def test_bars_by_mode() -> None:
    right = exact_reference("bfloat16")
    largest = right.largest_score.max()
    bars = {
        (storage, exact_p): measure(right.o, right.lse, right, storage, exact_p=exact_p)
        for storage, exact_p in MODES
    }
    assert {key: (e.mode, e.E_bar, e.share_bar) for key, e in bars.items()} == {
        ("bfloat16", False): ("hardware-P", 1.25, 0.0),
        ("bfloat16", True): ("exact-P", 1.02, 0.98),
        ("float16", False): ("hardware-P", 1.25, 0.0),
        ("float16", True): ("exact-P", 1.02, 0.98),
        ("float32", False): ("float32", 8 * (1 + largest), 0.0),
    }


def test_too_few_correctly_rounded_fails_exact_p_alone() -> None:
    right = exact_reference("bfloat16")
    o = right.o.astype(STORAGE["bfloat16"])
    bits = o.view(np.uint16).reshape(64)
    first, second = np.argsort(np.abs(right.o).reshape(64))[:2]  # where a bit is a small error
    bits[first] ^= 1
    one_off = measure(o, right.lse, right, "bfloat16", exact_p=True)
    assert one_off.share_rounded == 63 / 64
    assert one_off.passed
    bits[second] ^= 1
    assert measure(o, right.lse, right, "bfloat16", exact_p=True).share_rounded == 62 / 64
    assert not measure(o, right.lse, right, "bfloat16", exact_p=True).passed
    assert measure(o, right.lse, right, "bfloat16").passed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_value_that_is_not_finite_fails(value: float) -> None:
    right = exact_reference("float32")
    o = right.o.copy()
    o[1, 0, 5] = value
    errors = measure(o, right.lse, right, "float32")
    assert math.inf == errors.E
    assert not errors.passed


def test_a_row_that_sees_nothing_must_be_exact() -> None:
    q = np.ones((1, 2, 4))
    right = reference(q, q, q, kv_len=1)
    o, lse = right.o.copy(), right.lse.copy()
    assert measure(o, lse, right, "float32").passed
    o[0, 0, 0] = 1e-40
    assert math.inf == measure(o, lse, right, "float32").E
    for wrong in (-1e30, np.nan, np.inf):
        lse[0, 0] = wrong
        assert measure(right.o, lse, right, "float32").lse_error == math.inf
    lse[:] = -np.inf
    assert measure(right.o, lse, right, "float32").lse_error == math.inf
    assert measure(right.o, None, right, "float32").lse_error is None


def test_two_bars_where_p_is_rounded() -> None:
    """1.25 for rows whose weight lies on 16 keys or more; two roundings for the others."""
    ones = np.ones((1, 2, 1))
    right = Reference(
        o=ones,
        lse=np.zeros((1, 2)),
        envelope=ones,
        largest_score=np.ones((1, 2)),
        effective_keys=np.array([[2.0, 30.0]]),
    )

    def off_by(few: float, many: float) -> Errors:
        o = ones + np.array([few, many])[None, :, None] * 2.0**-8
        return measure(o, None, right, "bfloat16")

    assert off_by(1.9, 1.2).passed
    assert pytest.approx(1.3) == off_by(1.9, 1.3).E
    assert not off_by(1.9, 1.3).passed
    assert not off_by(2.1, 0.0).passed


def test_effective_keys() -> None:
    q, k = np.zeros((1, 1, 4)), np.zeros((1, 20, 4))
    assert reference(q, k, k).effective_keys == pytest.approx(20.0)
    assert reference(q + 100.0, np.eye(4)[None], k[:, :4]).effective_keys == pytest.approx(4.0)
    assert np.isinf(reference(q, k, k, kv_len=0).effective_keys)


@pytest.mark.parametrize(
    ("lse", "largest", "off", "error"),
    [
        (100.0, 100.0, 1e-4, 1e-6),  # relative
        (0.5, 0.25, 1e-6, 1e-6),  # absolute below 1
        (0.5, 9.0, 1e-5, 1e-6),  # cancels: per 1 + largest score
        (-200.0, 200.0, 2e-4, 1e-6),
    ],
)
def test_log_sum_exp_error(lse: float, largest: float, off: float, error: float) -> None:
    ones = np.ones((1, 1, 1))
    right = Reference(
        o=ones,
        lse=np.full((1, 1), lse),
        envelope=ones,
        largest_score=np.full((1, 1), largest),
        effective_keys=np.ones((1, 1)),
    )
    errors = measure(ones, right.lse + off, right, "float32")
    assert errors.lse_error == pytest.approx(error, rel=1e-2)
    assert errors.passed
    assert not measure(ones, right.lse + 2.1 * off, right, "float32").passed


# The cases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_hard_case(name: str) -> None:
    check(run_case(CASES[name](SEED)))


@pytest.mark.parametrize("variant", ["opt2", "one_shot"])
@pytest.mark.parametrize("name", [case.name for case in HARD if ranks(case) <= HOST_DEVICES])
def test_hard_case_of_another_variant(name: str, variant: str) -> None:
    check(run_case(CASES[name](SEED), variant=variant))


@pytest.mark.parametrize(("name", "kernel"), TURNS)
def test_hard_case_of_another_kernel(name: str, kernel: str) -> None:
    """Each case by one of them: `ahbm parity --kernel KERNEL` runs all by any."""
    check(run_case(CASES[name](SEED), kernel=kernel))


@pytest.mark.parametrize("kernel", OTHER_KERNELS)
@pytest.mark.parametrize("index", range(2))
def test_random_case_of_another_kernel(kernel: str, index: int) -> None:
    check(run_case(random_cases(SEED + 1, 2, kernel)[index], kernel=kernel))


@pytest.mark.parametrize("name", [case.name for case in HARD if 1 < ranks(case) <= HOST_DEVICES])
def test_hard_case_under_shard_map(name: str) -> None:
    case = CASES[name](SEED)
    check(run_case(case, mesh=mesh_of(case)))


@pytest.mark.parametrize("case", RANDOM, ids=[case.name for case in RANDOM])
def test_random_case(case: Case) -> None:
    check(run_case(case))


@pytest.mark.parametrize("case", RANDOM[::3], ids=[case.name for case in RANDOM[::3]])
def test_random_case_under_shard_map(case: Case) -> None:
    check(run_case(case, mesh=mesh_of(case)))


def test_random_set_covers_what_can_be_asked_for() -> None:
    seen = {name: {case.settings.get(name) for case in RANDOM} for name in RANDOM[0].settings}
    assert seen["variant"] == set(variant_names("decode"))
    assert seen["layout"] == set(LAYOUTS)
    assert seen["level2"] == set(PE_COLLECTIVES)
    assert seen["level1"] == set(CUBE_COLLECTIVES)
    assert seen["packed"] == {False, True}
    assert seen["tile"] == set(KNOBS["tile"])
    assert {c for c, _ in seen["grid"]} == {p for _, p in seen["grid"]} == {1, 2, 3, 4}
    assert len(seen["group_shape"]) > 5
    assert any(seen["start_cube"])
    assert any(seen["start_pe"])
    modes = {(str(case.q.dtype), case.settings["exact_p"]) for case in RANDOM}
    assert modes == set(MODES)
    assert {len(case.q) // len(case.k) for case in RANDOM} == set(KNOBS["group"])
    assert {case.q.shape[1] for case in RANDOM} == set(KNOBS["rows"])
    assert {case.q.shape[2] for case in RANDOM} == set(KNOBS["head_dim"])


def test_cases_are_seeded() -> None:
    def digest(cases: list[Case]) -> list[tuple[str, bytes, bytes, str]]:
        return [(c.name, c.q.tobytes(), c.k.tobytes(), str(c.settings)) for c in cases]

    assert digest(random_cases(SEED, 5)) == digest(RANDOM[:5])
    assert digest(random_cases(SEED + 1, 5)) != digest(RANDOM[:5])
    assert digest(hard_cases(SEED)) == digest(hard_cases(SEED))
    assert digest(hard_cases(SEED + 1)) != digest(hard_cases(SEED))


@pytest.mark.parametrize("case", [*HARD, *RANDOM], ids=lambda case: case.name)
def test_tokens_past_kv_len_are_garbage(case: Case) -> None:
    kv_len = case.settings.get("kv_len", case.k.shape[1])
    for x in (case.k, case.v):
        assert np.isfinite(x[:, :kv_len].astype(np.float32)).all()
        assert not np.isfinite(x[:, kv_len:].astype(np.float32)).any()


# The check ----------------------------------------------------------------------------------------


def test_result_fails_by_bits_or_exactness() -> None:
    result = run_case(CASES["context 0 in a cache of 64, grid 2 x 2"](SEED))
    assert result.passed
    assert not dataclasses.replace(result, rerun_equal=False).passed
    assert not dataclasses.replace(result, exact=False).passed
    assert dataclasses.replace(result, exact=None).passed


def test_an_exact_answer_is_compared_exactly() -> None:
    case = CASES["context 3 in a cache of 64, three ranks of four empty"](SEED)
    o = reference(case.q, case.k, case.v, kv_len=3).o
    assert run_case(dataclasses.replace(case, exact=o)).exact is False


def test_check_parity_gives_every_case_as_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    few = dict(list(CASES.items())[:3])
    monkeypatch.setattr("ahbm_jax.parity.hard.CASES", few)
    results = check_parity(SEED, 2)
    assert [r.name for r in results] == [*few, "random 0", "random 1"]
    assert all(r.passed for r in results)
    rows = json.loads(json.dumps([r.row() for r in results]))
    assert all(row["passed"] for row in rows)
    assert rows[0]["seen"] == "flashinfer 4051, vllm 28181"
    assert rows[0]["errors"]["E"] == 0


def test_check_input_measures_a_users_arrays() -> None:
    case = CASES["K strided, V contiguous"](SEED)
    result = check_input(case.q, case.k, case.v, **case.settings)
    assert result.passed
    assert result.name == "input"
    sizes = {"H": 4, "K": 2, "T": 1, "S": 256, "D": 64, "Dv": 64}
    assert result.shapes == sizes | {"storage": "bfloat16"}


def test_a_users_wrong_kernel_fails(tmp_path: Path) -> None:
    source = """
from kernels.gqa_decode import VARIANTS

def unmasked(tl, q, k, v, output):
    s = tl.composite("gemm", a=tl.load(q), b=tl.ref(k, tl.whole(k)), epilogue=("scale",))
    p = tl.exp(s - tl.max(s))
    tl.store(output, tl.composite("gemm", a=p, b=tl.ref(v, tl.whole(v))) / (tl.sum(p) * 1.02))
"""
    path = tmp_path / "wrong.py"
    path.write_text(source)
    q, k, v = (np.ones((1, n, 8), np.float32) for n in (1, 16, 16))
    result = check_input(q, k, v, kernel=f"{path}:unmasked", tile=16)
    assert result.errors.lse_error is None
    assert result.errors.E_bar < result.errors.E
    assert not result.passed


def test_check_input_refuses_what_is_not_finite() -> None:
    case = CASES["K strided, V contiguous"](SEED)
    v = case.v.copy()
    v[1, 7, 3] = np.nan
    with pytest.raises(UsageError, match=r"`v` has nan at \(1, 7, 3\).*below `kv_len`"):
        check_input(case.q, case.k, v, **case.settings)
    with pytest.raises(UsageError, match="`q` is float64; allowed: bfloat16"):
        check_input(case.q.astype(np.float64), case.k, case.v)
