"""The timing interpreter equals the event simulation: every kernel, any machine.

A new kernel joins by adding its variants to `KERNELS`. `make agree` draws more cases, or others.
"""

from __future__ import annotations

import pytest
from contracts.agree import search
from contracts.agreement import ROWS, STRUCTURES, Row

from ahbm_jax.knobs import CHOICES

pytestmark = pytest.mark.usefixtures("forget_each")

CASES = 8  # of each row
SEED = 1


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_timing_equals_simulation(row: Row) -> None:
    outcome = search(row, CASES, SEED)
    assert not outcome.failure, outcome.explanation()
    assert outcome.cases == CASES


@pytest.mark.parametrize("choice", CHOICES)
def test_each_choice_has_a_structure(choice: str) -> None:
    assert {getattr(s, choice) for s in STRUCTURES.values()} == set(CHOICES[choice])
