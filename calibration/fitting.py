"""A fit, whole: groups of rows, splits, searches, how good it is and how sure."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ahbm_jax.config.fit import Fit, Split
from ahbm_jax.config.load import load_fit, load_machine
from ahbm_jax.machine.params import Machine
from calibration.baseline import baseline_ns
from calibration.diagnosis import Diagnosis, diagnose
from calibration.measurements import Measurements, find, load
from calibration.model import Model, model
from calibration.parameters import Parameters, settle
from calibration.search import RESTARTS, TEMPERATURES, Search, Searcher, starts
from calibration.splits import held_out

SCREEN = 800  # rows of the searches from all starts, where there are more than twice as many
EXACT = 1e-6  # loss of a row, in squares of the loss's scale, that is as good as none
AGREE = 0.01  # relative loss within which searches from other starts have found the same
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFit:
    """A fit without the rows that a split holds out.

    Attributes:
      split: the split.
      out: rows held out.
      logs: logarithms of the parameters found.
      predicted_ns: latency of every row.
      baseline_ns: of every row, by a baseline fitted to the same rows.
    """

    split: Split
    out: np.ndarray
    logs: np.ndarray
    predicted_ns: np.ndarray
    baseline_ns: np.ndarray

    def errors(self, target_ns: np.ndarray) -> dict[str, float]:
        """Held-out errors in percent."""
        wrong = 100 * np.abs(self.predicted_ns / target_ns - 1)[self.out]
        roofline = 100 * np.abs(self.baseline_ns / target_ns - 1)[self.out]
        return {
            "mape": float(wrong.mean()),
            "median": float(np.median(wrong)),
            "p90": float(np.percentile(wrong, 90)),
            "roofline_mape": float(roofline.mean()),
            "rows": int(self.out.sum()),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFit:
    """The fit to one group of rows; a spec without `each` has one group.

    Attributes:
      label: what tells the group from others, or nothing.
      rows: its measurements.
      target_ns: their latencies.
      model: what was fitted.
      splits: a fit for each split; the first is the one whose parameters are reported.
      searches: from all starts, on rows that no split holds out; each split begins at the best.
      diagnosis: of the first split.
      jacobian: of log latency by log parameter, [rows, parameters], at what was found.
    """

    label: str
    rows: Measurements
    target_ns: np.ndarray
    model: Model
    splits: list[SplitFit]
    searches: list[Search]
    diagnosis: Diagnosis
    jacobian: np.ndarray

    @property
    def parameters(self) -> Parameters:
        """What was free."""
        return self.model.parameters

    @property
    def agreeing(self) -> int:
        """Searches that found the least loss, or as good as that."""
        least = min(search.loss for search in self.searches)
        as_good = least * (1 + AGREE) + EXACT * len(self.rows)
        return sum(search.loss <= as_good for search in self.searches)

    def table(self) -> list[dict[str, Any]]:
        """The parameters found."""
        logs, parameters = self.splits[0].logs, self.parameters
        bound = parameters.at_bound(logs)
        prefix = f"{self.label}: " if self.label else ""
        return [
            {
                "name": prefix + parameter.name,
                "value": float(np.exp(logs[i])),
                "unit": parameter.unit,
                "standard_error": float(np.exp(logs[i]) * self.diagnosis.errors[i]),
                "at_bound": bool(bound[i]),
                "identifiable": bool(self.diagnosis.errors[i] < 0.5 and not bound[i]),
            }
            for i, parameter in enumerate(parameters.each)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """What a fit found."""

    spec: Fit
    data: Measurements
    machine: Machine
    seconds: float
    groups: list[GroupFit] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The result as plain data, for JSON."""
        return {
            "schema": "ahbm-fit-result/1",
            "name": self.spec.name,
            "data": self.data.name,
            "data_hash": self.data.hash,
            "rows": len(self.data),
            "starts": self.spec.starts,
            "starts_agreeing": min(group.agreeing for group in self.groups),
            "seconds": self.seconds,
            "splits": {
                _joined(one.split.name, group.label): one.errors(group.target_ns)
                for group in self.groups
                for one in group.splits
            },
            "parameters": [row for group in self.groups for row in group.table()],
            "unseen": [
                _joined(text, group.label)
                for group in self.groups
                for text in group.diagnosis.unseen
            ],
        }


def fit(
    spec: Fit | str | os.PathLike[str],
    data: Any = None,
    *,
    progress: Progress | None = None,
    temperatures: tuple[float, ...] = TEMPERATURES,
) -> FitResult:
    """Fit a machine's numbers to measurements, in float64.

    Args:
      spec: a fit, or the name or path of a fit file.
      data: measurements: a table in Python, `Measurements`, a file, or a folder that has the
        file that the fit names; None for the folder that AHBM_DATA names.
      progress: called with the searches done and those to do.
      temperatures: of the smooth maximum in turn, relative to the measured latency; 0 is hard.

    Raises:
      ConfigError: with every problem of the fit file, or of the measurements.
      UsageError: a name or number that the machine, the model or the data refuse.
    """
    begin = time.monotonic()
    spec = load_fit(spec) if not isinstance(spec, Fit) else spec
    machine = load_machine(spec.machine)
    every = _measurements(spec, data)
    rows = every.take(np.flatnonzero(every.matching(spec.where)))
    groups = _groups(rows, spec.each)
    steps = _Steps(progress, len(groups) * (spec.starts + len(spec.splits)))
    with jax.enable_x64(True):
        found = [
            _fit_group(spec, machine, label, part, steps, temperatures) for label, part in groups
        ]
    seconds = time.monotonic() - begin
    return FitResult(spec=spec, data=rows, machine=machine, seconds=seconds, groups=found)


class _Steps:
    """Counts searches."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def one(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)


def _measurements(spec: Fit, data: Any) -> Measurements:
    if isinstance(data, Measurements):
        return data
    if data is None or isinstance(data, (str, os.PathLike)):
        return load(find(spec.data, None if data is None else Path(data)), spec.format)
    assert isinstance(data, Mapping) or hasattr(data, "to_pydict")
    return load(data, spec.format)


def _groups(rows: Measurements, each: tuple[str, ...]) -> list[tuple[str, Measurements]]:
    if not each:
        return [("", rows)]
    keys = list(zip(*(rows.column(name).tolist() for name in each), strict=True))
    wanted = sorted(set(keys))
    return [
        (", ".join(map(str, key)), rows.take(np.array([i for i, k in enumerate(keys) if k == key])))
        for key in wanted
    ]


def _fit_group(
    spec: Fit,
    machine: Machine,
    label: str,
    rows: Measurements,
    steps: _Steps,
    temperatures: tuple[float, ...],
) -> GroupFit:
    parameters = settle(spec.parameters, machine, rows)
    whole = model(spec.kernel, spec.variant, machine, rows, parameters)
    unit = rows.spec.target_ns(float(machine.clock.frequency_ghz))
    target = rows.columns[rows.spec.target] * unit
    outs = [held_out(split, rows, spec.seed) for split in spec.splits]
    screened = _screened(outs, spec.seed)
    searcher = Searcher(whole)
    screen = searcher
    if len(screened) < len(rows):
        part = rows.take(screened)
        few = settle(spec.parameters, machine, part)
        screen = Searcher(model(spec.kernel, spec.variant, machine, part, few))
    kept = ~np.any(outs, axis=0)
    seen = (kept if kept.any() else ~outs[0])[screened]
    tried = []
    for start in starts(whole, spec.starts, spec.seed):
        seen_ns, weight = target[screened], seen.astype(float)
        tried.append(screen.search(start, seen_ns, weight, temperatures, RESTARTS))
        steps.one()
    begin = min(tried, key=lambda search: search.loss).logs
    splits: list[SplitFit] = []
    for split, out in zip(spec.splits, outs, strict=True):
        logs = searcher.search(begin, target, (~out).astype(float)).logs
        splits.append(
            SplitFit(
                split=split,
                out=out,
                logs=logs,
                predicted_ns=np.exp(searcher.log_latency_ns(logs)),
                baseline_ns=baseline_ns(rows, target, ~out),
            )
        )
        steps.one()
    first = splits[0]
    jacobian = searcher.slopes(first.logs)
    deviation = np.log(first.predicted_ns / target)
    return GroupFit(
        label=label,
        rows=rows,
        target_ns=target,
        model=whole,
        splits=splits,
        searches=tried,
        diagnosis=diagnose(jacobian[~first.out], deviation[~first.out], parameters),
        jacobian=jacobian,
    )


def _screened(outs: list[np.ndarray], seed: int) -> np.ndarray:
    """Numbers of the rows that the searches from all starts are compiled for.

    All if they are few, some then without weight; else `SCREEN` of those that no split holds out.
    """
    free = np.flatnonzero(~np.any(outs, axis=0))
    if len(outs[0]) <= 2 * SCREEN or len(free) <= SCREEN:
        return np.arange(len(outs[0]))
    return np.sort(np.random.default_rng(seed).permutation(free)[:SCREEN])


def _joined(name: str, label: str) -> str:
    return f"{name}: {label}" if label else name
