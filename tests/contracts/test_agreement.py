"""The timing interpreter equals the event simulation: every kernel, any machine.

A new kernel joins by adding its variants to `KERNELS`. `make agree` draws more cases.
"""

from __future__ import annotations

import pytest
from contracts.agreement import ROWS, STRUCTURES, Row, compare
from contracts.points import cases
from hypothesis import given, note, settings
from hypothesis import strategies as st

from ahbm_jax.config.case import case_text
from ahbm_jax.knobs import CHOICES

CASES = 13  # of each row


@pytest.mark.parametrize("row", ROWS, ids=str)
@settings(max_examples=CASES)
@given(data=st.data())
def test_timing_equals_simulation(row: Row, data: st.DataObject) -> None:
    case = data.draw(cases(row.kernel, row.variant, STRUCTURES[row.structure]))
    note(f"The case, as a file for `ahbm run`:\n{case_text(case)}")
    compare(case)


@pytest.mark.parametrize("choice", CHOICES)
def test_each_choice_has_a_structure(choice: str) -> None:
    assert {getattr(s, choice) for s in STRUCTURES.values()} == set(CHOICES[choice])
