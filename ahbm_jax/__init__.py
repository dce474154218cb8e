"""GQA FlashAttention on a PE-grid accelerator with HBM cubes: right, how fast, bound by what.

The public names are imported when first used, so that `ahbm --help` does not wait for JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ahbm_jax.config.load import load_machine, load_workload
    from ahbm_jax.events import Timeline, simulate
    from ahbm_jax.explanation import Explanation, explain
    from ahbm_jax.outputs import attention
    from ahbm_jax.report.sweep_view import Pictures, pictures, report_page
    from ahbm_jax.result import Result, latency_ns, run
    from ahbm_jax.search import crossover, divide_budget, pareto_front, tune
    from ahbm_jax.sweeps import sweep

_HOMES = {
    "attention": "ahbm_jax.outputs",
    "explain": "ahbm_jax.explanation",
    "Explanation": "ahbm_jax.explanation",
    "load_machine": "ahbm_jax.config.load",
    "load_workload": "ahbm_jax.config.load",
    "Result": "ahbm_jax.result",
    "latency_ns": "ahbm_jax.result",
    "run": "ahbm_jax.result",
    "simulate": "ahbm_jax.events",
    "sweep": "ahbm_jax.sweeps",
    "crossover": "ahbm_jax.search",
    "divide_budget": "ahbm_jax.search",
    "pareto_front": "ahbm_jax.search",
    "tune": "ahbm_jax.search",
    "Timeline": "ahbm_jax.events",
    "Pictures": "ahbm_jax.report.sweep_view",
    "pictures": "ahbm_jax.report.sweep_view",
    "report_page": "ahbm_jax.report.sweep_view",
}

__all__ = [
    "Explanation",
    "Pictures",
    "Result",
    "Timeline",
    "attention",
    "crossover",
    "divide_budget",
    "explain",
    "latency_ns",
    "load_machine",
    "load_workload",
    "pareto_front",
    "pictures",
    "report_page",
    "run",
    "simulate",
    "sweep",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `ahbm_jax` has no attribute `{name}`")
    # A submodule of the same name would otherwise take the place of the function.
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
