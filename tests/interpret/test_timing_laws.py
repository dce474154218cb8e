"""Laws of the timing interpreter: monotone, homogeneous, batched and derived as promised."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts.points import Structure, cases, point_of
from hypothesis import given, settings
from hypothesis import strategies as st

import ahbm_jax
from ahbm_jax.errors import UsageError
from ahbm_jax.interpret.evaluate import latency_function, leaf_names, report_function
from ahbm_jax.knobs import point
from ahbm_jax.machine.params import replace
from kernels import KERNELS

pytestmark = pytest.mark.usefixtures("forget_each")

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
WORKLOAD = ahbm_jax.load_workload("llama3_70b")
CASES = [(kernel, variant) for kernel, variants in KERNELS.items() for variant in variants]
POINTS = 6


@pytest.mark.parametrize(("kernel", "variant"), CASES)
@settings(max_examples=POINTS)
@given(data=st.data())
def test_no_cost_raised_lowers_latency(kernel: str, variant: str, data: st.DataObject) -> None:
    """A bandwidth cut is a cost per byte raised. Raising all by one factor scales the latency."""
    case = data.draw(cases(kernel, variant, Structure()))
    with jax.enable_x64(True):
        drawn = point_of(case)
        names = leaf_names(drawn.static)
        costs = len(drawn.static.cost_names)
        factors = data.draw(st.lists(st.floats(1.0, 3.0), min_size=costs, max_size=costs))
        latency = latency_function(drawn.kernel, drawn.static)
        leaves = np.concatenate(drawn.arrays())
        raised = np.repeat(leaves[:, None], costs + 2, axis=1)  # [leaves, cases]
        for i, factor in enumerate(factors):
            raised[i, i] = raised[i, i] * factor + data.draw(st.floats(0.0, 20.0))
        raised[:costs, costs] *= 1.7
        out = np.asarray(latency(*map(jnp.asarray, raised)))
    base = out[-1]
    for i, name in enumerate(names[:costs]):
        assert out[i] >= base * (1 - 1e-12), name
    np.testing.assert_allclose(out[costs], 1.7 * base, rtol=1e-9)


def test_without_issue_costs_the_cpu_takes_no_time() -> None:
    """The ADR's dispatch_cycles = 0 world: the CPU takes no time; one tile worked by hand."""
    free = {f"issue.{k}_cycles": 0.0 for k in ("load", "store", "composite", "dot", "math", "loop")}
    one_pe = replace(ahbm_jax.load_machine("one_pe"), free)
    result = ahbm_jax.run("decode", one_pe, WORKLOAD, variant="opt1", context=32, tile=32)
    assert result.bounds["issue"] == 0.0
    assert not any(name.startswith("issue.") for name in result.critical_path)
    # q: 2 KiB at 204.8 bytes a ns behind 25 ns of issue, there 300 ns later.
    q_moved, q_there = 35.0, 335.0
    initial = 1 + 1 + 8  # MATH passes of m, l [8, 1] and O [8, 128]
    # K: 2 sub-tiles of 4 KiB, 45 ns of DMA each, behind q; GEMM 16 ns on each as it is there.
    assert initial + 20 < q_moved
    last_there = q_moved + 2 * 45 + 300
    assert last_there - 45 > q_there
    scores = last_there + 16 + 16 + 4  # GEMM, write-out, scale
    # max, maximum, subtract, exp; subtract, exp; l times, sum, plus; O times.
    softmax = (2 + 1 + 2 + 8) + (1 + 4) + (1 + 2 + 1) + 8
    # V: 4 sub-tiles of 2 KiB, 35 ns each, from 20 ns after P.
    weighted = scores + softmax + 20 + 4 * 35 + 300 + 16 + 16
    stored = weighted + 8 + (1 + 8) + 35 + 300  # O plus, normalise, store
    assert result.latency_ns == pytest.approx(stored, rel=1e-12)
    assert stored == 1335.0


def test_vmap_in_any_order_equals_one_by_one() -> None:
    """Also past one chunk: batches of points are cut into chunks and put together again."""
    contexts = jnp.arange(1.0, 301.0) * 11
    latencies = jnp.array([50.0, 200.0])

    def one(context: jax.Array, latency: jax.Array) -> jax.Array:
        knobs = {"context": context, "C": 4, "hbm.access_latency_ns": latency}
        return ahbm_jax.latency_ns("decode", MACHINE, WORKLOAD, **knobs)

    by_rows = jax.vmap(jax.vmap(one, (None, 0)), (0, None))(contexts, latencies)
    by_columns = jax.vmap(jax.vmap(one, (0, None), 0), (None, 0), 1)(contexts, latencies)
    chex.assert_trees_all_close(by_rows, by_columns, rtol=1e-6)
    singly = [[one(contexts[i], x) for x in latencies] for i in (0, 170, 299)]
    chex.assert_trees_all_close(by_rows[jnp.array([0, 170, 299])], jnp.array(singly), rtol=1e-6)


def test_gradient_is_the_slope() -> None:
    with jax.enable_x64(True):

        def latency(machine: object, context: float) -> jax.Array:
            return ahbm_jax.latency_ns("decode", machine, WORKLOAD, context=context, C=4)

        slopes = jax.jit(jax.grad(latency, allow_int=True))(MACHINE, 40_000.0)
        base = float(latency(MACHINE, 40_000.0))
        for key in ("dma.issue_cycles", "hbm.access_latency_ns", "issue.send_cycles"):
            section, field = key.split(".")
            value = getattr(getattr(MACHINE, section), field)
            step = value * 1e-6
            moved = float(latency(replace(MACHINE, {key: value + step}), 40_000.0))
            slope = float(getattr(getattr(slopes, section), field))
            assert slope == pytest.approx((moved - base) / step, rel=1e-3), key
        assert slopes.clock.frequency_ghz < 0


def test_infeasible_points_are_infinite() -> None:
    cubes = jnp.array([4, 5, 17, 0])
    latency = jax.vmap(lambda c: ahbm_jax.latency_ns("decode", MACHINE, WORKLOAD, C=c))(cubes)
    assert jnp.isfinite(latency).tolist() == [True, False, False, False]
    small = replace(MACHINE, {"scratch.capacity_bytes": 1000.0})
    knobs = {"C": 4, "hbm.access_latency_ns": 50.0}
    assert jnp.isinf(ahbm_jax.latency_ns("decode", small, WORKLOAD, **knobs))


def test_unknown_knob_is_refused() -> None:
    with pytest.raises(UsageError, match=r"`contxt` is no knob \(did you mean `context`\?\)"):
        ahbm_jax.latency_ns("decode", MACHINE, WORKLOAD, contxt=5)


def test_gqa_reuse_reads_once_for_the_group() -> None:
    """K and V are read once whatever the group, or once per 32 rows without operand reuse."""

    def reads(group: int, reuse: bool) -> int:
        machine = replace(MACHINE, {"gemm.operand_reuse": reuse})
        workload = replace(WORKLOAD, {"query_heads": 8 * group})
        settled = point("decode", machine, workload, {"context": 4096, "C": 1, "P": 2})
        report = report_function(settled.kernel, settled.static)(*settled.arrays())
        return int(report["dma_reads"][0]) - 2  # the two loads of q

    assert len({reads(group, reuse=True) for group in (1, 8, 16, 64)}) == 1
    assert reads(64, reuse=False) == 2 * reads(8, reuse=False) == 2 * reads(8, reuse=True)


def test_result_adds_up() -> None:
    result = ahbm_jax.run("decode", MACHINE, WORKLOAD, context=20_000, C=8, P=8)
    assert sum(result.critical_path.values()) == pytest.approx(result.latency_ns, rel=1e-9)
    assert result.counts["reduce_rounds"] == 3 + 3  # log2 8 PEs, centre of 2 x 4 CUBEs
    assert result.counts["sends"] == result.counts["recvs"] == 3 * 63  # not 3 * 64 * 63
    assert result.bound == max(result.bounds, key=result.bounds.__getitem__)
    assert all(bound <= result.latency_ns for bound in result.bounds.values())
