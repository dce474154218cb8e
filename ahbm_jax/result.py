"""One design point: its latency, and a result that says what bounds it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import jax

from ahbm_jax.errors import Infeasible
from ahbm_jax.interpret.evaluate import RESULTS, latency_function, report_function
from ahbm_jax.interpret.record import message_depth, record
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.knobs import Point, point
from ahbm_jax.machine.params import Energy, Machine, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run answers. Times in ns.

    Attributes:
      bounds: rooflines: time of the busiest rank if nothing but one resource took time; `memory`
        (HBM bytes at sustained bandwidth), `dma` (the same with each command's issue), `gemm`,
        `math`, `issue` (CPU) and `link` (ports).
      bound: the largest of them.
      critical_path: time that each cost spends on the critical path; adds up to `latency_ns`.
      counts: over all ranks of the group.
      utilisation: busy share of the busiest rank's engines.
      energy_pj: None unless the machine gives energies.
      result: `ok`; points that cannot run raise `Infeasible` instead.
    """

    kernel: str
    variant: str | None
    context: int
    users: int
    C: int
    P: int
    tile: int
    latency_ns: float
    bounds: dict[str, float]
    bound: str
    critical_path: dict[str, float]
    counts: dict[str, int]
    utilisation: dict[str, float]
    scratch_peak_bytes: int
    energy_pj: float | None
    result: str

    def row(self) -> dict[str, Any]:
        """The result as plain data, for JSON."""
        return asdict(self)


ENGINES = {
    "cpu": "busy_cpu",
    "dma": "busy_dma",
    "gemm": "busy_gemm",
    "math": "busy_math",
    "port": "busy_port",
}
COUNTED = (
    "composites",
    "dma_reads",
    "dma_read_bytes",
    "dma_writes",
    "dma_write_bytes",
    "sends",
    "sent_bytes",
    "recvs",
)


def latency_ns(
    kernel: str | Kernel, machine: Machine, workload: Workload, **knobs: Any
) -> jax.Array:
    """Latency of one request group, ns, as a pure function of every number.

    Works under `jax.jit`, `jax.vmap` and `jax.grad` in the machine's numbers and in the knobs
    `context`, `C`, `P`, `tile`, `cache_tokens`, `start_cube`, `start_pe`. One compilation serves
    all values of those. The derivative is that of the critical path.

    Args:
      kernel: name of a shipped kernel, `FILE.py:NAME`, or a function of `tl`.
      machine: from `load_machine`; leaves may be traced.
      workload: from `load_workload`.
      **knobs: see `Knobs`; a dotted machine key replaces that number of the machine.

    Returns:
      A scalar of the default float type. Infinite where the point is infeasible (scratch
      overflow, C that is no rectangle, context over the cache).

    Raises:
      UsageError: a concrete value is out of its bounds, or a name is unknown.
    """
    settled = point(kernel, machine, workload, knobs)
    return latency_function(settled.kernel, settled.static)(*settled.arrays())[0]


def run(kernel: str | Kernel, machine: Machine, workload: Workload, **knobs: Any) -> Result:
    """Time one design point in float64 and explain it.

    Args:
      kernel: as in `latency_ns`.
      machine: from `load_machine`.
      workload: from `load_workload`.
      **knobs: see `Knobs`; concrete values.

    Raises:
      UsageError: a value is out of its bounds, or a name is unknown.
      Infeasible: the point needs more scratch than there is.
    """
    with jax.enable_x64(True):
        settled = point(kernel, machine, workload, knobs)
        leaves = settled.arrays()
        report = {
            name: float(x[0])
            for name, x in report_function(settled.kernel, settled.static)(*leaves).items()
        }
        code = RESULTS[int(report["result_code"])]
        if code == "scratch_overflow":
            raise Infeasible(
                "scratch (TCM) of one PE",
                report["scratch_peak_bytes"],
                float(settled.machine.scratch.capacity_bytes),
                "bytes",
                "lower `tile`, `gemm.stream_depth_subtiles` or "
                "`scheduler.queue_depth_composites`, raise `scratch.capacity_bytes`, or spread "
                "over more ranks (`C`, `P`)",
            )
        assert code == "ok", code
        path = critical_path(settled, leaves)
    return _result(kernel, settled, report, path)


def critical_path(settled: Point, leaves: list[jax.Array]) -> dict[str, float]:
    """Time of each cost on the critical path, largest first: cost x d latency / d cost."""
    costs = len(settled.static.cost_names)
    latency = latency_function(settled.kernel, settled.static)
    slopes = jax.grad(lambda moved: latency(*moved, *leaves[costs:])[0])(leaves[:costs])
    spent = {
        name: float(cost[0] * slope[0])
        for name, cost, slope in zip(settled.static.cost_names, leaves, slopes, strict=False)
    }
    return {k: x for k, x in sorted(spent.items(), key=lambda item: -item[1]) if x > 0}


def _result(
    kernel: str | Kernel, settled: Point, report: dict[str, float], path: dict[str, float]
) -> Result:
    leaves, knobs = settled.leaves, settled.knobs
    hbm_bytes = report["most_dma_read_bytes"] + report["most_dma_write_bytes"]
    bounds = {
        "memory": hbm_bytes * float(leaves["hbm.byte"]),
        "dma": report["most_busy_dma"],
        "gemm": report["most_busy_gemm"],
        "math": report["most_busy_math"],
        "issue": report["most_busy_cpu"],
        "link": report["most_busy_port"],
    }
    latency = report["latency_ns"]
    rows, cols = int(leaves["cube_rows"]), int(leaves["cube_cols"])
    return Result(
        kernel=kernel if isinstance(kernel, str) else kernel.__name__,
        variant=knobs.variant if isinstance(kernel, str) and ".py:" not in kernel else None,
        context=int(knobs.context),
        users=int(knobs.users),
        C=rows * cols,
        P=int(knobs.P),
        tile=int(knobs.tile),
        latency_ns=latency,
        bounds=bounds,
        bound=max(bounds, key=lambda name: bounds[name]),
        critical_path=path,
        counts=_counts(settled, report),
        utilisation={e: report[f"most_{name}"] / latency for e, name in ENGINES.items()},
        scratch_peak_bytes=int(report["scratch_peak_bytes"]),
        energy_pj=_energy_pj(settled.machine.energy, report),
        result="ok",
    )


def _counts(settled: Point, report: dict[str, float]) -> dict[str, int]:
    counts = {name: round(report[name]) for name in COUNTED}
    counts["composite"] = counts.pop("composites")
    counts["reduce_rounds"] = _reduce_rounds(settled)
    return counts


def _reduce_rounds(settled: Point) -> int:
    """Longest chain of messages of one request; messages do not depend on the context."""
    launch = replace(settled.launch(), context_tokens=1, users=1)
    return message_depth(record(settled.kernel, settled.machine, launch))


def _energy_pj(energy: Energy | None, report: dict[str, float]) -> float | None:
    if energy is None:
        return None
    hbm = report["dma_read_bytes"] + report["dma_write_bytes"]
    return (
        hbm * float(energy.hbm_pj_per_byte)
        + report["macs"] * float(energy.gemm_pj_per_mac)
        + report["math_elements"] * float(energy.math_pj_per_element)
        + report["sent_bytes"] * float(energy.link_pj_per_byte)
    )


