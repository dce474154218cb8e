"""Sweeps from start to end, in memory or in a store."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ahbm_jax.kernel_names import Kernel
from ahbm_jax.machine.params import Machine, Workload
from ahbm_jax.sweeps import store as stores
from ahbm_jax.sweeps.cluster import run_on_cluster
from ahbm_jax.sweeps.dataset import attributes, coordinates, dimensions_of, shape_of
from ahbm_jax.sweeps.plan import Arrays, Plan
from ahbm_jax.sweeps.request import Request, request
from ahbm_jax.sweeps.variables import VARIABLES

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run of a sweep did.

    Attributes:
      points: of the whole space.
      chunks: of the whole space.
      chunks_resumed: that were in the store already.
      seconds_compile: tracing and compiling.
      seconds_run: all else.
      points_per_second: points evaluated now, by `seconds_run`; nan if there were none.
      infeasible: points that cannot run, of the whole space.
    """

    points: int
    chunks: int
    chunks_resumed: int
    seconds_compile: float
    seconds_run: float
    points_per_second: float
    infeasible: int


def sweep(
    kernel: str | Kernel,
    machine: Machine,
    workload: Workload,
    axes: Mapping[str, Sequence[Any]],
    *,
    sample: Mapping[str, Sequence[float]] | None = None,
    variables: Sequence[str] | None = None,
    **held: Any,
) -> xr.Dataset:
    """Evaluate every combination of knobs and costs; a labelled dataset with a dimension for each.

    Args:
      kernel: as in `run`.
      machine: from `load_machine`.
      workload: from `load_workload`.
      axes: values of each knob of `run` (`variant` and `layout` too), dotted machine key, or of
        `machine` and `workload` (names, paths or loaded ones). Each becomes a dimension.
      sample: columns of a sampled design, all of one length, that become the dimension `sample`
        (see `ahbm_jax.sweeps.sobol`).
      variables: names from `ahbm_jax.sweeps.variables.VARIABLES`; all but `elasticity` by default.
        Latency, result code and gap are always there, and alone are several times as fast.
      **held: knobs and dotted machine keys that do not vary, as in `run`.

    Returns:
      The variables in float32. A point that cannot run has a `result_code` above 0, the `gap`, and
      infinite latency.

    Raises:
      UsageError, ConfigError: a name is unknown or a value out of its bounds.
    """
    asked = request(kernel, machine, workload, axes, sample, variables, held)
    arrays = {
        name: np.empty(shape_of(asked, name), VARIABLES[name].dtype) for name in asked.variables
    }

    def keep(number: int, block: Arrays) -> None:
        region = asked.space.block(number).region
        for name, values in block.items():
            arrays[name][region] = values

    run_here(Plan(asked), range(asked.space.blocks), keep)
    found = {
        name: (dimensions_of(asked, name), values, attributes(asked, name))
        for name, values in arrays.items()
    }
    return coordinates(asked).assign(found)


def sweep_to_store(
    asked: Request, store: Path, *, scheduler: str | None = None, progress: Progress | None = None
) -> Summary:
    """Evaluate a sweep into a Zarr store, going on where an earlier run of it was stopped.

    Args:
      asked: from `ahbm_jax.sweeps.request.request`, or a spec's.
      store: path of the store. Memory does not grow with the points.
      scheduler: address of a Dask scheduler whose workers evaluate the blocks.
      progress: called with the points done and all points, after each block.

    Raises:
      UsageError: the store holds another sweep, or another process writes to it.
    """
    begin, plan, space = time.perf_counter(), Plan(asked), asked.space
    with stores.opened(store, asked) as journal:
        resumed = dict(journal.finished)
        before = sum(space.block(number).points for number in resumed)
        points = before

        def note(number: int, infeasible: int) -> None:
            nonlocal points
            journal.add(number, infeasible)
            points += space.block(number).points
            if progress is not None:
                progress(points, space.points)

        def keep(number: int, block: Arrays) -> None:
            stores.write(store, space, number, block)
            note(number, int((block["result_code"] > 0).sum()))

        if progress is not None:
            progress(points, space.points)
        missing = [number for number in range(space.blocks) if number not in resumed]
        if scheduler is None:
            run_here(plan, missing, keep)
        elif missing:
            run_on_cluster(scheduler, asked, store, missing, note)
        infeasible = sum(journal.finished.values())
    seconds = time.perf_counter() - begin - plan.seconds_compile
    return Summary(
        points=space.points,
        chunks=space.blocks,
        chunks_resumed=len(resumed),
        seconds_compile=plan.seconds_compile,
        seconds_run=seconds,
        points_per_second=(points - before) / seconds if missing else math.nan,
        infeasible=infeasible,
    )


def run_here(plan: Plan, numbers: Iterable[int], keep: Callable[[int, Arrays], None]) -> None:
    """Evaluate blocks on the devices of this process; one is computed while another is kept."""
    numbers = list(numbers)
    compilers = plan.prepare(numbers)
    try:
        running = None
        for number in numbers:
            started = number, plan.start(number)
            if running is not None:
                keep(running[0], plan.finish(*running))
            running = started
        if running is not None:
            keep(running[0], plan.finish(*running))
    finally:
        compilers.shutdown(wait=False, cancel_futures=True)
