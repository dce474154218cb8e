"""A bench from its file to the document that `--json` writes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ahbm_jax.bench.heads import share
from ahbm_jax.bench.numbers import Check, check_of
from ahbm_jax.bench.plan import Job, plan
from ahbm_jax.bench.row import row
from ahbm_jax.bench.workers import in_parallel
from ahbm_jax.config.load import load_bench, load_machine, load_workload
from ahbm_jax.errors import Infeasible
from ahbm_jax.machine.params import Workload
from ahbm_jax.result import BATCH, Result, run_many

SCHEMA = "ahbm-bench/1"
Progress = Callable[[int, int], None]  # tasks done, of how many


def run_bench(
    bench: str | os.PathLike[str],
    *,
    machine: str | os.PathLike[str] | None = None,
    devices: Sequence[int] | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Run every point of a bench, and check the numbers of every kernel in it once.

    Args:
      bench: path of a bench file, or the name of a shipped one.
      machine: machine to run on instead of the bench's.
      devices: SIPs to look at; the rows are about the one of them that holds most KV heads.
      progress: called as tasks finish.

    Returns:
      `schema`, names, the KV heads of each SIP, and a row a point in the bench's order.

    Raises:
      ConfigError: with everything wrong with the files.
      UsageError: a device that the machine has not.
    """
    spec = load_bench(bench)
    chosen = load_machine(spec.machine if machine is None else machine)
    workload = load_workload(spec.workload)
    heads = share(chosen, workload, devices)
    jobs = plan(spec, chosen, workload, heads)
    context = min(spec.parity.context_tokens, workload.max_context_tokens)
    rows = _rows(jobs, workload, context, progress)
    return {
        "schema": SCHEMA,
        "bench": spec.name,
        "machine": chosen.name,
        "workload": workload.name,
        "layers": workload.layers,
        "query_heads_per_kv_head": workload.group,
        "kv_heads_of_device": heads.heads,
        "rows": rows,
    }


def _rows(
    jobs: Sequence[Job], workload: Workload, context: int, progress: Progress
) -> list[dict[str, Any]]:
    """Rows of `jobs`, in order; numbers are checked at `context` tokens."""
    checks = list(dict.fromkeys(check_of(job, context) for job in jobs))
    batches = _batches(jobs)
    tasks: list[Callable[[], Any]] = [
        *(partial(_outcomes, batch) for batch in batches),
        *(partial(Check.run, check, workload) for check in checks),
    ]
    done = itertools.count(1)
    progress(0, len(tasks))
    results = in_parallel(tasks, lambda: progress(next(done), len(tasks)))
    parity = dict(zip(checks, results[len(batches) :], strict=True))
    outcomes = {
        id(job): outcome
        for batch, found in zip(batches, results, strict=False)
        for job, outcome in zip(batch, found, strict=True)
    }
    return [
        row(
            outcomes[id(job)],
            job.point,
            kernel=job.panel.kernel,
            panel=job.panel.name,
            variant=job.variant,
            users=job.panel.users,
            parity=parity[check_of(job, context)],
        )
        for job in jobs
    ]


def _batches(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that one compiled function serves, at most as many as it takes at once."""
    found: dict[Any, list[Job]] = {}
    for job in jobs:
        panel, point = job.panel, job.point
        key = (panel.kernel, panel.critical_paths, point.kernel, point.static)
        found.setdefault(key, []).append(job)
    return [each[i : i + BATCH] for each in found.values() for i in range(0, len(each), BATCH)]


def _outcomes(batch: Sequence[Job]) -> list[Result | Infeasible]:
    panel, points = batch[0].panel, [job.point for job in batch]
    return run_many(panel.kernel, points, critical_paths=panel.critical_paths)
