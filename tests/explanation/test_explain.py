"""The path adds up, the derivative agrees with it, and a faster engine gains what is said."""

from __future__ import annotations

from itertools import pairwise

import pytest

import ahbm_jax
from ahbm_jax.errors import Infeasible
from ahbm_jax.explanation import Explanation
from ahbm_jax.explanation.resources import RESOURCES, resource_of

MACHINE, WORKLOAD = "ahbm_4sip", "llama3_70b"
POINT = {"variant": "opt1", "context": 20000, "C": 2, "P": 3, "tile": 128}
# Fetching a sub-tile takes as long as its GEMM, so that every path through both is critical.
TIE = {"dma.issue_cycles": 0.0, "gemm.macs_per_cycle": 3276.8}


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    machine, workload = ahbm_jax.load_machine(MACHINE), ahbm_jax.load_workload(WORKLOAD)
    return ahbm_jax.explain("decode", machine, workload, **POINT)


def check_path(found: Explanation) -> None:
    assert found.steps[0].start_ns == 0.0
    assert found.steps[-1].end_ns == pytest.approx(found.latency_ns)
    for before, after in pairwise(found.steps):
        assert before.end_ns == pytest.approx(after.start_ns)
        assert (before.command, before.resource) != (after.command, after.resource)
    for step in found.steps:
        assert sum(step.spent_ns.values()) == pytest.approx(step.end_ns - step.start_ns)
        assert {resource_of(cost) for cost in step.spent_ns} == {step.resource}
    by_cost = {cost: ns for costs in found.spent_ns.values() for cost, ns in costs.items()}
    assert sum(by_cost.values()) == pytest.approx(found.latency_ns)
    assert found.timing_ns == pytest.approx(found.latency_ns)
    for cost in by_cost.keys() | found.derivative_ns.keys():
        apart = by_cost.get(cost, 0.0) - found.derivative_ns.get(cost, 0.0)
        assert found.ties.get(cost, 0.0) == pytest.approx(apart, abs=1e-4)


def test_path_adds_up(explanation: Explanation) -> None:
    check_path(explanation)
    assert explanation.ties == {}


def test_derivative_is_that_of_run(explanation: Explanation) -> None:
    machine, workload = ahbm_jax.load_machine(MACHINE), ahbm_jax.load_workload(WORKLOAD)
    result = ahbm_jax.run("decode", machine, workload, **POINT)
    assert explanation.derivative_ns == pytest.approx(result.critical_path)
    assert explanation.latency_ns == pytest.approx(result.latency_ns)
    busy = {use.engine: use.busy_share for use in explanation.engines}
    assert busy == pytest.approx(result.utilisation)


def test_faster(explanation: Explanation) -> None:
    machine, workload = ahbm_jax.load_machine(MACHINE), ahbm_jax.load_workload(WORKLOAD)
    assert [each.resource for each in explanation.faster] == list(RESOURCES)
    for each in explanation.faster:
        assert (
            each.predicted_ns <= each.exact_ns * (1 + 1e-9) <= explanation.latency_ns * (1 + 1e-8)
        )
        missed = each.exact_ns - each.predicted_ns > 0.01 * explanation.latency_ns
        assert (each.taken_over_by is not None) == missed
    exact = {each.resource: each.exact_ns for each in explanation.faster}
    halved = {
        "dma": {
            "dma.issue_cycles": machine.dma.issue_cycles / 2,
            "hbm.pseudo_channel_gb_per_s": machine.hbm.pseudo_channel_gb_per_s * 2,
        },
        "gemm": {
            "gemm.macs_per_cycle": machine.gemm.macs_per_cycle * 2,
            "gemm.writeout_cycles": machine.gemm.writeout_cycles / 2,
            "gemm.epilogue_cycles": machine.gemm.epilogue_cycles / 2,
        },
    }
    for resource, numbers in halved.items():
        again = ahbm_jax.simulate("decode", machine, workload, **POINT, **numbers)
        assert exact[resource] == pytest.approx(again.latency_ns)


def test_engines(explanation: Explanation) -> None:
    on_path = {step.resource for step in explanation.steps}
    for use in explanation.engines:
        assert 0.0 <= use.busy_share <= 1.0
        assert use.near_commands <= use.commands
        assert use.near_ranks <= 6
        assert (use.least_slack_ns == 0.0) >= (use.engine in on_path)


def test_paths_that_tie() -> None:
    machine, workload = ahbm_jax.load_machine(MACHINE), ahbm_jax.load_workload(WORKLOAD)
    knobs = {"variant": "opt2", "context": 16384, "C": 1, "P": 4}
    found = ahbm_jax.explain("decode", machine, workload, **knobs, **TIE)
    check_path(found)
    assert set(found.ties) == {"gemm.subtile", "hbm.byte"}
    assert sum(found.ties.values()) == pytest.approx(0.0, abs=1e-4)


def test_row_is_plain(explanation: Explanation) -> None:
    row = explanation.row()
    assert row["steps"][0]["op"] == "load"
    assert {type(x) for loop in row["loops"] for x in loop["free_ns"].values()} == {float}


def test_infeasible() -> None:
    machine, workload = ahbm_jax.load_machine(MACHINE), ahbm_jax.load_workload(WORKLOAD)
    with pytest.raises(Infeasible, match="scratch"):
        ahbm_jax.explain("decode", machine, workload, variant="one_shot", context=2**20, C=1, P=1)
