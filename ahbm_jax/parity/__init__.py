"""Whether a kernel's numbers are right: the metric, the hard inputs, a random set, the check."""

from ahbm_jax.parity.case import Case
from ahbm_jax.parity.check import CaseResult, check_input, check_parity, run_case
from ahbm_jax.parity.hard import CASES, hard_cases
from ahbm_jax.parity.metric import Errors, measure
from ahbm_jax.parity.random_set import random_cases

__all__ = [
    "CASES",
    "Case",
    "CaseResult",
    "Errors",
    "check_input",
    "check_parity",
    "hard_cases",
    "measure",
    "random_cases",
    "run_case",
]
