"""One design point: its latency, and a result that says what bounds it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ahbm_jax.derived import COUNTS, bounds_ns, energy_pj, utilisation
from ahbm_jax.errors import Infeasible
from ahbm_jax.interpret.evaluate import (
    RESULTS,
    Static,
    evaluate,
    latency_function,
    leaf_names,
    report_function,
)
from ahbm_jax.interpret.record import message_depth, record
from ahbm_jax.kernel_names import Kernel, variant_names
from ahbm_jax.knobs import Point, point, scratch_overflow
from ahbm_jax.machine.params import Machine, Workload
from ahbm_jax.tl.launch import Launch

BATCH = 64  # points evaluated at once
# A few points run in milliseconds however they are compiled, and this compiles them 5 x as fast.
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
# A maximum is one instruction if NaN, which only refused points have, need not go through it; with
# the widest vectors there are, twice as fast. Both are options of XLA on the CPU.
FAST_TO_RUN = {"xla_cpu_enable_fast_min_max": True, "xla_cpu_prefer_vector_width": 512}


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
      utilisation: busy share of the busiest rank's engines, of its ports the busiest.
      cube_finish_ns: of kernels that leave a result on each CUBE, when each is done; else None.
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
    cube_finish_ns: tuple[float, ...] | None
    scratch_peak_bytes: int
    energy_pj: float | None
    result: str

    def row(self) -> dict[str, Any]:
        """The result as plain data, for JSON."""
        return asdict(self)


def latency_ns(
    kernel: str | Kernel, machine: Machine, workload: Workload, **knobs: Any
) -> jax.Array:
    """Latency of one request group, ns, as a pure function of every number.

    Works under `jax.jit`, `jax.vmap` and `jax.grad` in the machine's numbers and in the knobs
    `context`, `C`, `P`, `tile`, `cache_tokens`, `start_cube`, `start_pe`, `users` and
    `decode_users`. One compilation serves all values of those (more where `users` or `decode_users`
    varies). The derivative is that of the critical path.

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
    result = run_many(kernel, [point(kernel, machine, workload, knobs)])[0]
    if isinstance(result, Infeasible):
        raise result
    return result


def run_many(
    kernel: str | Kernel, points: Sequence[Point], *, critical_paths: bool = True
) -> list[Result | Infeasible]:
    """Results of points that share a compiled function (kernel, variant, static knobs), as `run`.

    Args:
      kernel: that of the points, as in `latency_ns`.
      points: from `ahbm_jax.knobs.point`, with one `kernel` and one `static`.
      critical_paths: whether to find them: dear for kernels of very many messages. Without, they
        are empty.

    Returns:
      In order, a result each, or what the point needs more of than there is.
    """
    results: list[Result | Infeasible] = []
    for start in range(0, len(points), BATCH):
        batch = points[start : start + BATCH]
        found = explained(batch) if critical_paths else (reported(batch), [{}] * len(batch))
        results += map(partial(_result, kernel), batch, *found)
    return results


def explained(points: Sequence[Point]) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Everything counted, and the critical path, of each of a batch of points, in float64."""
    with jax.enable_x64(True):
        spent, report = explain_function(*_shared(points))(*_leaves(points))
    names = points[0].static.cost_names
    paths = [critical_path(names, x) for x in np.asarray(spent).T]
    return _by_point(report, len(points)), paths


def reported(points: Sequence[Point]) -> list[dict[str, float]]:
    """Everything counted of each of a batch of points, in float64, without the critical path."""
    with jax.enable_x64(True):
        report = _quick_report_function(*_shared(points))(*_leaves(points))
    return _by_point(report, len(points))


@functools.lru_cache(maxsize=64)
def _quick_report_function(kernel: Kernel, static: Static) -> Callable[..., dict[str, jax.Array]]:
    return jax.jit(report_function(kernel, static), compiler_options=QUICK_TO_COMPILE)


def _shared(points: Sequence[Point]) -> tuple[Kernel, Static]:
    """What points of one compiled function have in common."""
    first = points[0]
    assert all((x.kernel, x.static) == (first.kernel, first.static) for x in points)
    return first.kernel, first.static


def _leaves(points: Sequence[Point]) -> list[np.ndarray]:
    rows = [[float(x[0]) for x in each.arrays()] for each in points]
    return list(np.asarray(rows).T)


def _by_point(report: dict[str, jax.Array], count: int) -> list[dict[str, float]]:
    columns = {name: np.broadcast_to(x, count) for name, x in jax.device_get(report).items()}
    return [{name: float(x[i]) for name, x in columns.items()} for i in range(count)]


def critical_path(names: Sequence[str], spent: Sequence[float]) -> dict[str, float]:
    """Time of each cost on the critical path, largest first, without those that are not on it."""
    on_path = [(name, float(x)) for name, x in zip(names, spent, strict=True) if x > 0]
    return dict(sorted(on_path, key=lambda item: -item[1]))


@functools.lru_cache(maxsize=64)
def explain_function(
    kernel: Kernel, static: Static
) -> Callable[..., tuple[jax.Array, dict[str, jax.Array]]]:
    """Of leaves [n] each: cost x d latency / d cost as [costs, n], and what a result holds.

    One program rather than that of the latency and that of its derivative: compiling is what takes
    the time.
    """
    names, costs = leaf_names(static), len(static.cost_names)

    def explain(*leaves: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        place = [leaf.reshape(1, 1, -1) for leaf in leaves]

        def of_costs(*moved: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
            settled = dict(zip(names, (*moved, *place[costs:]), strict=True))
            evaluation = evaluate(kernel, static, settled, counting=True)
            report = evaluation.report()
            return report["latency_ns"], report

        def along(direction: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
            tangents = tuple(
                jnp.broadcast_to(d, leaf.shape) for d, leaf in zip(direction, place, strict=False)
            )
            _, slope, report = jax.jvp(of_costs, tuple(place[:costs]), tangents, has_aux=True)
            return slope, report

        basis = jnp.eye(costs, dtype=leaves[0].dtype)
        slopes, report = jax.vmap(along, out_axes=(0, None))(basis)
        return slopes.reshape(costs, -1) * jnp.stack(leaves[:costs]), report

    return jax.jit(explain, compiler_options=QUICK_TO_COMPILE)


def _infeasible(settled: Point, report: dict[str, float]) -> Infeasible:
    code = RESULTS[int(report["result_code"])]
    assert code == "scratch_overflow", code  # `point` refuses all else
    return scratch_overflow(settled.machine, report["scratch_peak_bytes"])


def _result(
    kernel: str | Kernel, settled: Point, report: dict[str, float], path: dict[str, float]
) -> Result | Infeasible:
    if report["result_code"]:
        return _infeasible(settled, report)
    leaves, knobs = settled.leaves, settled.knobs
    bounds = bounds_ns(report, float(leaves["hbm.byte"]))
    latency = report["latency_ns"]
    rows, cols = int(leaves["cube_rows"]), int(leaves["cube_cols"])
    finish = tuple(x for name, x in report.items() if name.startswith("cube_finish_ns"))
    energy = settled.machine.energy
    return Result(
        kernel=kernel if isinstance(kernel, str) else kernel.__name__,
        variant=knobs.variant if variant_names(kernel) else None,
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
        utilisation=utilisation(report),
        cube_finish_ns=finish or None,
        scratch_peak_bytes=int(report["scratch_peak_bytes"]),
        energy_pj=None if energy is None else float(energy_pj(energy, report)),
        result="ok",
    )


def _counts(settled: Point, report: dict[str, float]) -> dict[str, int]:
    counts = {name: round(report[counter]) for counter, name in COUNTS.items()}
    counts["reduce_rounds"] = _reduce_rounds(settled)
    return counts


def _reduce_rounds(settled: Point) -> int:
    """Longest chain of messages of one request, or of one block of it: the same for each.

    Messages do not depend on the context.
    """
    launch = settled.launch()
    launch = replace(
        launch,
        context_tokens=1,
        query_tokens=min(launch.query_tokens, launch.query_block_tokens),
        users=1,
        decode_users=0,
        placement=replace(launch.placement, cache_tokens=1),
    )
    return _message_depth(settled.kernel, settled.machine, launch)


@functools.lru_cache(maxsize=1024)
def _message_depth(kernel: Kernel, machine: Machine, launch: Launch) -> int:
    return message_depth(record(kernel, machine, launch))
