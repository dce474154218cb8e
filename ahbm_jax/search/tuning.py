"""The best kernel variant and knobs for a context, or for a mix of contexts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ahbm_jax.errors import UsageError
from ahbm_jax.kernel_names import Kernel, variant_names
from ahbm_jax.knobs import CHOICES
from ahbm_jax.machine.params import Machine, Workload
from ahbm_jax.machine.topology import rectangle
from ahbm_jax.result import Result, run
from ahbm_jax.sweeps import sweep
from ahbm_jax.sweeps.request import CHOSEN, is_static

Combination = tuple[Any, ...]
MOST_PROGRAMS = 16  # that are compiled to try every combination
TILES = (64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best point of a search.

    Attributes:
      contexts: what it is best for, with their weights.
      knobs: what to run.
      latency_ns: weighted over the contexts.
      results: at each context, evaluated anew in float64.
      method: "exhaustive", or "one choice at a time".
      evaluated: points looked at, over all contexts.
      space: points that there are.
    """

    contexts: dict[int, float]
    knobs: dict[str, Any]
    latency_ns: float
    results: tuple[Result, ...]
    method: str
    evaluated: int
    space: int


def tune(
    kernel: str | Kernel,
    machine: Machine,
    workload: Workload,
    contexts: Sequence[int] | Mapping[int, float],
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    limits: Mapping[str, float] | None = None,
    **held: Any,
) -> list[Best]:
    """The point of least latency for each context, or the one for a mix of them.

    Every combination is tried where that takes at most 16 compiled programs. Otherwise one choice
    (of what is compiled: variant, layout, collective, packing) changes at a time, with every
    combination of the numbers, until none helps; that may miss a pair that helps only together.

    Args:
      kernel: as in `run`.
      machine: from `load_machine`.
      workload: from `load_workload`.
      contexts: tokens; a mapping gives a weight to each, and one point is best for all of them.
      axes: values of each knob or machine key; by default those of `default_axes`.
      limits: the most that a variable (`energy_pj`, `scratch_peak_bytes`) may be at every context.
        Scratch is always limited by the machine's.
      **held: knobs and machine keys that do not vary.

    Returns:
      One for each context, or one for the mix.

    Raises:
      UsageError: a name is unknown, or nothing meets the limits.
    """
    limits = dict(limits or {})
    given = {n: x for n, x in (axes or default_axes(kernel, machine)).items() if n not in held}
    search = _Search(kernel, machine, workload, contexts, given, limits, held)
    search.look()
    return search.best()


def default_axes(kernel: str | Kernel, machine: Machine) -> dict[str, Sequence[Any]]:
    """Every variant, group size, layout, collective and packing; tiles of 64 to 2048 tokens."""
    grid = machine.grid
    cubes = [c for c in range(1, grid.cubes + 1) if rectangle(c, grid.cube_rows, grid.cube_cols)]
    variants = variant_names(kernel)
    choices = {n: CHOICES[n] for n in ("layout", "level1", "level2", "packed")}
    numbers = {"C": cubes, "P": range(1, grid.pes + 1), "tile": TILES}
    return ({"variant": variants} if variants else {}) | choices | numbers


class _Search:
    """The points that were looked at, each combination of compiled choices once."""

    def __init__(
        self,
        kernel: str | Kernel,
        machine: Machine,
        workload: Workload,
        contexts: Sequence[int] | Mapping[int, float],
        axes: dict[str, Sequence[Any]],
        limits: dict[str, float],
        held: dict[str, Any],
    ) -> None:
        self.target, self.held, self.limits = (kernel, machine, workload), held, limits
        self.contexts = [int(c) for c in contexts]
        mixed = isinstance(contexts, Mapping)
        weights = contexts if mixed else dict.fromkeys(self.contexts, 1.0)
        if not self.contexts or not all(0 < weights[c] < math.inf for c in weights):
            raise UsageError(f"contexts are {contexts}; give one or more, with weights above 0")
        self.weights = {int(c): float(w) for c, w in weights.items()}
        # Each case is a group of contexts that share a point.
        self.cases = [tuple(self.contexts)] if mixed else [(c,) for c in self.contexts]
        if "context" in axes or "context" in held:
            raise UsageError("`context` is what is tuned for; leave it out of the axes")
        chosen = {n for n in axes if n in CHOSEN or is_static(machine, n)}
        self.choices = {n: list(axes[n]) for n in axes if n in chosen}
        self.numbers = {n: list(axes[n]) for n in axes if n not in chosen}
        self.programs = math.prod(map(len, self.choices.values()))
        self.found: dict[Combination, list[tuple[float, dict[str, Any]]]] = {}
        self.each = len(self.contexts) * math.prod(map(len, self.numbers.values()))

    def look(self) -> None:
        """Look at every combination, or change one choice at a time until none helps."""
        if self.programs <= MOST_PROGRAMS:
            self.evaluate({}, self.choices)
            return
        start = {name: values[0] for name, values in self.choices.items()}
        self.evaluate(start, {})
        before: set[Combination] = set()
        while before != (now := self.leaders()):
            before = now
            for name, values in self.choices.items():
                for leader in self.leaders():
                    beside = dict(zip(self.choices, leader, strict=True))
                    new = [x for x in values if self._key(beside | {name: x}) not in self.found]
                    if new:
                        del beside[name]
                        self.evaluate(beside, {name: new})

    def evaluate(self, chosen: dict[str, Any], varied: dict[str, list[Any]]) -> None:
        """Note the best numbers of each case, for every combination of some choices."""
        axes = {**varied, **self.numbers, "context": self.contexts}
        asked = ["latency_ns", *self.limits]
        swept = sweep(*self.target, axes, variables=asked, **self.held, **chosen)
        latency = swept.latency_ns
        for name, most in self.limits.items():
            latency = latency.where(swept[name] <= most, math.inf)
        for places in itertools.product(*(range(len(x)) for x in varied.values())):
            values = {n: x[i] for (n, x), i in zip(varied.items(), places, strict=True)}
            here = latency.isel(dict(zip(varied, places, strict=True)))
            each = [self._least(here.sel(context=list(case))) for case in self.cases]
            self.found[self._key(chosen | values)] = each

    def leaders(self) -> set[Combination]:
        """The best combination of choices so far, of each case."""
        return {self._leader(i) for i in range(len(self.cases))}

    def _key(self, chosen: dict[str, Any]) -> Combination:
        return tuple(chosen[name] for name in self.choices)

    def _least(self, latency: xr.DataArray) -> tuple[float, dict[str, Any]]:
        weights = np.array([self.weights[int(c)] for c in latency.context.values])
        total = (latency.astype(float) * xr.DataArray(weights, dims="context")).sum("context")
        total = total / weights.sum()
        place = np.unravel_index(int(np.argmin(total.values)), total.shape)
        at = dict(zip(total.dims, place, strict=True))
        numbers = {n: self.numbers[n][at[n]] for n in self.numbers}
        return float(total.values[place]), numbers

    def _leader(self, case: int) -> Combination:
        return min(self.found, key=lambda x: self.found[x][case][0])

    def best(self) -> list[Best]:
        """The best point of each case, evaluated anew."""
        return [self._best(i, case) for i, case in enumerate(self.cases)]

    def _best(self, i: int, case: tuple[int, ...]) -> Best:
        leader = self._leader(i)
        least, numbers = self.found[leader][i]
        if not math.isfinite(least):
            asked = ", ".join(f"{n} at most {x:g}" for n, x in self.limits.items())
            raise UsageError(
                f"no point runs at context {', '.join(map(str, case))}"
                + (f" with {asked}" if asked else "")
                + "; raise the limits or give more values to the axes"
            )
        knobs = dict(zip(self.choices, leader, strict=True)) | numbers
        results = tuple(run(*self.target, **self.held, **knobs, context=c) for c in case)
        weights = {c: self.weights[c] for c in case}
        total = sum(w * r.latency_ns for w, r in zip(weights.values(), results, strict=True))
        return Best(
            contexts=weights,
            knobs=knobs,
            latency_ns=total / sum(weights.values()),
            results=results,
            method="exhaustive" if self.programs <= MOST_PROGRAMS else "one choice at a time",
            evaluated=len(self.found) * self.each,
            space=self.programs * self.each,
        )
