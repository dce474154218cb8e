"""Sampled designs: points that fill a box of knobs better than a grid of as many would."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ahbm_jax.errors import UsageError

Span = tuple[float, float] | tuple[float, float, str]
SCALES = ("linear", "log")
DESIGNS = ("sobol", "latin")


def sobol(
    spans: Mapping[str, Span], count: int, *, seed: int = 0, whole: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """A scrambled Sobol sequence over a box; `count` is best a power of two.

    Args:
      spans: by knob, its lowest and highest value, and `"log"` where it is spread over powers.
      count: points.
      seed: of the scrambling.
      whole: knobs that are rounded to whole numbers.

    Returns:
      The values of each knob, [count]; `sweep` takes them as its `sample`.

    Raises:
      UsageError: a span is empty, or not positive where it is to be logarithmic.
    """
    return sampled("sobol", spans, count, seed, whole)


def latin(
    spans: Mapping[str, Span], count: int, *, seed: int = 0, whole: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """A Latin hypercube over a box, otherwise as `sobol`."""
    return sampled("latin", spans, count, seed, whole)


def sampled(
    design: str, spans: Mapping[str, Span], count: int, seed: int, whole: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """A design by its name, one of `DESIGNS`; see `sobol`."""
    from scipy.stats import qmc  # takes a second, which no grid needs to wait for

    if design == "sobol":
        sampler = qmc.Sobol(len(spans), rng=np.random.default_rng(seed))
        power = max(0, int(count - 1).bit_length())
        unit = sampler.random_base2(power)[:count]
    else:
        unit = qmc.LatinHypercube(len(spans), rng=np.random.default_rng(seed)).random(count)
    columns = zip(spans.items(), unit.T, strict=True)
    return {name: _placed(name, span, u, name in whole) for (name, span), u in columns}


def spaced(name: str, span: Span, count: int, *, whole: bool) -> np.ndarray:
    """`count` values from the lowest to the highest of a span; whole ones without repetitions."""
    values = _placed(name, span, np.linspace(0.0, 1.0, count), whole)
    return np.unique(values) if whole else values


def _placed(name: str, span: Span, unit: np.ndarray, whole: bool) -> np.ndarray:
    low, high, scale = span if len(span) == 3 else (*span, SCALES[0])
    if scale not in SCALES:
        raise UsageError(f"the scale of `{name}` is {scale!r}; allowed: {', '.join(SCALES)}")
    if not low <= high or (scale == "log" and low <= 0):
        allowed = "a lowest value, above 0 where the scale is log, and a highest that is not below"
        raise UsageError(f"`{name}` goes from {low} to {high} ({scale}); allowed: {allowed}")
    if scale == "log":
        values = np.exp(np.log(low) + unit * (np.log(high) - np.log(low)))
    else:
        values = low + unit * (high - low)
    values = np.clip(values, low, high)
    return np.round(values) if whole else values
