"""What the tables of `findings.py` are made from: latencies of the timing model, and Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ahbm_jax
from ahbm_jax.interpret.evaluate import report_function
from ahbm_jax.knobs import point
from ahbm_jax.machine.params import Machine, Workload, replace
from ahbm_jax.report.markdown import markdown_table

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
ONE_PE = ahbm_jax.load_machine("one_pe")
WORKLOAD = ahbm_jax.load_workload("llama3_70b")
VARIANTS = ("dot", "opt1", "opt3", "opt3v", "opt2")
CONTEXTS = (1024, 8192, 131072, 1048576)
RANKS = {"context": 8192, "C": 8, "P": 8, "tile": 256}
SIZE = 64  # points of every call, so that each variant is compiled once


def of_group(heads: int) -> Workload:
    """The workload with so many query heads on a KV head."""
    return replace(WORKLOAD, {"query_heads": WORKLOAD.kv_heads * heads})


def latencies(
    variant: str,
    points: list[dict[str, float]],
    *,
    kernel: str = "decode",
    machine: Machine = MACHINE,
    workload: Workload = WORKLOAD,
    **choices: Any,
) -> np.ndarray:
    """Latency in us of points that give the same knobs; infinite where infeasible.

    `choices` are knobs that are no numbers, the same for all points.
    """
    base = RANKS | {"dma.issue_cycles": 25, "issue.math_cycles": 4, "issue.composite_cycles": 40}
    base |= {"issue.ex_composite_cycles": 40, "issue.loop_cycles": 4}
    base |= {"gemm.stream_depth_subtiles": 16}
    base |= {name: x for point in points for name, x in point.items() if name not in base}
    rows = [base | point for point in points]
    rows += [rows[-1]] * (SIZE - len(rows))
    columns = {name: jnp.array([float(row[name]) for row in rows]) for name in base}

    def one(values: dict[str, Any]) -> jax.Array:
        knobs = {"variant": variant, **values, **choices}
        return ahbm_jax.latency_ns(kernel, machine, workload, **knobs)

    return np.asarray(jax.jit(jax.vmap(one))(columns))[: len(points)] / 1e3


def counts(
    kernel: str, variant: str, machine: Machine, workload: Workload, **knobs: Any
) -> dict[str, float]:
    """What a run counts, and its latency in ns, in float64."""
    with jax.enable_x64(True):
        settled = point(kernel, machine, workload, {"variant": variant, **knobs})
        found = report_function(settled.kernel, settled.static)(*settled.arrays())
    return {name: float(values[0]) for name, values in found.items()}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a Markdown table."""
    print(*markdown_table(head, rows), "", sep="\n", flush=True)


def shown(us: float) -> str:
    """A latency in us; infinite is infeasible."""
    return f"{us:.2f}" if np.isfinite(us) else "-"
