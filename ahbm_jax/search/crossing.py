"""Where one design overtakes another along a knob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ahbm_jax.errors import UsageError
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.knobs import NUMBERS
from ahbm_jax.machine.params import Machine, Workload
from ahbm_jax.sweeps import sweep
from ahbm_jax.sweeps.design import Span, spaced

SECTIONS = 256  # of a bracket at once: points are cheaper than calls
TOLERANCE = 1e-9  # of a knob that is no whole number, relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A value of the knob from which `winner` ("a" or "b") is the faster one.

    Attributes:
      value: the first such value, of a whole knob; otherwise within 1e-9 of it.
      before: the last value (looked at) where it is not.
      a_ns: latency of `a` at `value`.
      b_ns: latency of `b` at `value`.
    """

    winner: str
    value: float
    before: float
    a_ns: float
    b_ns: float


def crossover(
    kernel: str | Kernel,
    machine: Machine,
    workload: Workload,
    knob: str,
    span: Span,
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    **held: Any,
) -> list[Crossing]:
    """Every crossing of two designs along a knob, by sections on the exact model in float64.

    Two crossings between neighbours of the first 257 values cancel out and are not seen.

    Args:
      kernel: as in `run`.
      machine: from `load_machine`.
      workload: from `load_workload`.
      knob: a numeric knob or dotted machine key.
      span: lowest and highest value of it, and `"log"` where it is spread over powers.
      a: knobs of the one design, for example `{"variant": "opt1"}`.
      b: knobs of the other.
      **held: knobs of both.

    Returns:
      In the order of the knob; empty where one is never slower than the other.

    Raises:
      UsageError: a name is unknown or a value out of its bounds.
    """
    whole, scale = knob in NUMBERS, span[2] if len(span) == 3 else "linear"
    designs = {"a": {**held, **a}, "b": {**held, **b}}
    if any(knob in design for design in designs.values()):
        raise UsageError(f"`{knob}` varies; leave it out of the designs")

    def evaluate(low: float, high: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        values = spaced(knob, (low, high, scale), SECTIONS + 1, whole=whole)
        with jax.enable_x64(True):
            a_ns, b_ns = (
                sweep(
                    kernel,
                    machine,
                    workload,
                    {knob: list(values)},
                    variables=["latency_ns"],
                    **design,
                ).latency_ns.values.astype(float)
                for design in designs.values()
            )
        return values, a_ns, b_ns

    def crossings(low: float, high: float) -> list[Crossing]:
        values, a_ns, b_ns = evaluate(low, high)
        ahead = np.where(a_ns < b_ns, 1, np.where(b_ns < a_ns, -1, 0))
        found: list[Crossing] = []
        leader = 0
        for i, now in enumerate(ahead):
            if now not in (0, leader):
                if leader != 0:
                    found += between(values, a_ns, b_ns, i)
                leader = now
        return found

    def between(values: np.ndarray, a_ns: np.ndarray, b_ns: np.ndarray, i: int) -> list[Crossing]:
        low, high = float(values[i - 1]), float(values[i])
        close = high - low <= (1 if whole else TOLERANCE * abs(high))
        inner = [] if close else crossings(low, high)
        if inner:
            return inner
        winner = "a" if a_ns[i] < b_ns[i] else "b"
        times = {"a_ns": float(a_ns[i]), "b_ns": float(b_ns[i])}
        return [Crossing(winner=winner, value=high, before=low, **times)]

    return crossings(float(span[0]), float(span[1]))
