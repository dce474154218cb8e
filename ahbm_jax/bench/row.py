"""One result as a row of plain data: what the JSON of `ahbm bench` and `ahbm run` holds."""

from __future__ import annotations

from typing import Any

from ahbm_jax.errors import Infeasible
from ahbm_jax.knobs import Point
from ahbm_jax.result import Result

RESULTS = (
    "latency_ns",
    "bounds",
    "bound",
    "critical_path",
    "counts",
    "utilisation",
    "cube_finish_ns",
    "scratch_peak_bytes",
    "energy_pj",
)


def row(
    outcome: Result | Infeasible,
    point: Point,
    *,
    kernel: str,
    panel: str | None = None,
    variant: str | None = None,
    users: int | None = None,
    parity: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A row; one that is infeasible has the same keys, with null for what was not found.

    Args:
      outcome: of `run_many`.
      point: what was run.
      kernel: its name.
      panel: panel of the bench.
      variant: variant of the kernel.
      users: requests of the machine; those of one group by default.
      parity: what the check of the kernel's numbers found.
    """
    request = point.request()
    found = outcome.row() if isinstance(outcome, Result) else dict.fromkeys(RESULTS)
    latency = found["latency_ns"]
    return {
        "panel": panel,
        "kernel": kernel,
        "variant": variant,
        **request,
        "users": request["users"] if users is None else users,
        "users_per_group": request["users"],
        "latency_ns": latency,
        "all_layers_ns": None if latency is None else latency * point.workload.layers,
        **{name: found[name] for name in RESULTS if name != "latency_ns"},
        "parity": parity,
        "result": str(outcome) if isinstance(outcome, Infeasible) else outcome.result,
    }
