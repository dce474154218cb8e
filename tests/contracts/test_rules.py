"""Every interpreter has a rule for each operation of the op set, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from ahbm_jax.config.load import load_machine, load_workload
from ahbm_jax.interpret import record, timing_rules, values
from ahbm_jax.interpret.record import Record
from ahbm_jax.knobs import point
from ahbm_jax.tl import Context, KernelError
from ahbm_jax.tl.ops import OPS

TABLES = {"values": values.RULES, "timing": timing_rules.RULES, "record": record.RULES}


@pytest.mark.parametrize("interpreter", TABLES)
def test_one_rule_for_each_operation(interpreter: str) -> None:
    assert set(TABLES[interpreter]) == set(OPS)


@pytest.mark.parametrize("op", OPS)
def test_rules_are_documented(op: str) -> None:
    for table in TABLES.values():
        assert table[op].__doc__, op


def recorder() -> tuple[Record, Context, tuple[Any, ...]]:
    settled = point("decode", load_machine("one_pe"), load_workload("llama3_8b"), {"context": 100})
    interpreter = Record(settled.machine, settled.launch(), (0, 0))
    return interpreter, Context(interpreter), interpreter.tensors()


def test_a_missing_rule_raises() -> None:
    interpreter, tl, (q, *_) = recorder()
    interpreter.rules = {op: rule for op, rule in interpreter.rules.items() if op != "load"}
    with pytest.raises(NotImplementedError, match=r"Record has no rule for `tl\.load`"):
        tl.load(q)


def test_errors_name_the_operation_and_the_line() -> None:
    _, tl, (q, k, _, _) = recorder()
    loaded = tl.load(q)
    with pytest.raises(KernelError, match=r"`tl\.dot` at .*test_rules\.py:\d+: columns of `a`"):
        tl.dot(loaded, tl.load(q))
    with pytest.raises(KernelError, match=r"`kind` is 'conv'; allowed: gemm"):
        tl.composite("conv", a=loaded, b=tl.ref(k))
    with pytest.raises(KernelError, match="`buffers` is 3; 1 or 2 are allowed"):
        tl.scratch_scope(3)
