"""From a sweep file to the request that it makes."""

from __future__ import annotations

from typing import Any

from ahbm_jax.config.load import apply_overrides, load_machine, load_sweep, load_workload
from ahbm_jax.config.sweep import Range, Sample, Span, Sweep
from ahbm_jax.knobs import NUMBERS
from ahbm_jax.sweeps import design
from ahbm_jax.sweeps.request import Request, request


def load_request(path_or_name: str) -> Request:
    """The request of a sweep file or a shipped sweep.

    Raises:
      ConfigError: with every problem of the file, each with its line.
      UsageError: a value that only the kernel, machine or model can refuse.
    """
    return request_of(load_sweep(path_or_name))


def request_of(spec: Sweep) -> Request:
    """The request that a sweep file makes."""
    machine = apply_overrides(
        load_machine(spec.machine), [f"{k}={_plain(x)}" for k, x in spec.set.items()]
    )
    return request(
        spec.kernel,
        machine,
        load_workload(spec.workload),
        {name: _values(name, values) for name, values in spec.axes.items()},
        None if spec.sample is None else _sampled(spec.sample),
        spec.variables,
        spec.knobs.given(),
    )


def _values(name: str, values: Any) -> Any:
    if not isinstance(values, Range):
        return values
    whole = values.whole or name in NUMBERS
    return design.spaced(name, _span(values), values.count, whole=whole)


def _sampled(sample: Sample) -> Any:
    spans = {name: _span(x) for name, x in sample.knobs.items()}
    whole = tuple(name for name, x in sample.knobs.items() if x.whole or name in NUMBERS)
    return design.sampled(sample.design, spans, sample.count, sample.seed, whole)


def _span(x: Span) -> design.Span:
    return x.low, x.high, x.scale


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
