"""The check of a bench's kernels against the float64 reference, at a context that runs quickly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ahbm_jax.bench.plan import Job
from ahbm_jax.machine.number import cdiv
from ahbm_jax.machine.params import Workload
from ahbm_jax.parity import check_input
from ahbm_jax.parity.case import normal

SEED = 60
TILES = 2  # at least, on each rank, so that its loop and the merge of its tiles are checked
BLOCKS = 2  # of query tokens, at most: all are alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One run of the values interpreter: a variant on the ranks of the bench's largest group."""

    kernel: str
    variant: str
    grid: tuple[int, int]
    tile: int
    query_tile: int
    layout: str
    level2: str
    level1: str
    packed: bool
    rows: int
    context: int

    def run(self, workload: Workload) -> dict[str, Any]:
        """Errors on one KV head and its query heads, seeded, as a row holds them."""
        rng = np.random.default_rng([SEED, self.context])
        sizes = (self.context, workload.head_dim)
        q = normal(rng, workload.storage, workload.group, self.rows, workload.head_dim)
        k, v = (normal(rng, workload.storage, 1, *sizes) for _ in range(2))
        names = ("variant", "grid", "tile", "query_tile", "layout", "level2", "level1", "packed")
        settings = {name: getattr(self, name) for name in names}
        result = check_input(q, k, v, kernel=self.kernel, **settings)
        errors = result.errors
        return {
            "E": errors.E,
            "E_bar": errors.E_bar,
            "lse_error": errors.lse_error,
            "lse_bar": errors.lse_bar,
            "context": self.context,
            "grid": list(self.grid),
            "tile": self.tile,
            "passed": result.passed,
        }


def check_of(job: Job, context: int) -> Check:
    """What checks the numbers of a job: the same for all C and contexts of a panel's variant."""
    knobs, panel = job.point.knobs, job.panel
    cubes = max(panel.cubes)
    slice_tokens = cdiv(context, cubes * panel.pes)
    tile = max(1, min(int(knobs.tile), cdiv(slice_tokens, TILES)))
    query_tile, rows = int(knobs.query_tile), int(knobs.query_length)
    return Check(
        kernel=panel.kernel,
        variant=job.variant,
        grid=(cubes, panel.pes),
        tile=tile,
        query_tile=query_tile,
        layout=knobs.layout,
        level2=knobs.level2,
        level1=knobs.level1,
        packed=knobs.packed,
        rows=min(rows, BLOCKS * query_tile),
        context=context,
    )
