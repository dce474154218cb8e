"""How sure a fit is: standard errors, correlations, and directions that the data cannot see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.loss import SCALE
from calibration.parameters import Parameters

MAD = 1.4826  # standard deviations of a normal distribution in a median absolute deviation
LEAST = 0.05  # of 1 - leverage: a row that fixes a parameter alone says nothing of its error
UNSEEN = 0.5  # relative standard error from which on a number is not known
SHARE = 0.3  # of a direction, from which on a parameter is named in words


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the Jacobian of log latency by log parameter says.

    Attributes:
      noise: standard deviation of the log-ratios, robust.
      errors: relative standard error of each parameter, without priors.
      correlation: of the parameters.
      unseen: directions in words, with the relative standard error along each.
    """

    noise: float
    errors: np.ndarray
    correlation: np.ndarray
    unseen: list[str]


def diagnose(jacobian: np.ndarray, deviation: np.ndarray, parameters: Parameters) -> Diagnosis:
    """From the Jacobian [rows, parameters] and the log-ratios [rows] of the training rows.

    Errors are those of the linearised robust fit: with s the weight of a deviation in the loss, the
    sandwich (J' W J)^-1 J' V J (J' W J)^-1, which holds where deviations differ from row to row. V
    has the deviations as they were if each row had been left out (HC3), which few rows need.
    """
    rows, count = jacobian.shape
    r2 = (deviation / SCALE) ** 2
    weight = 1 / np.sqrt(1 + r2)  # of a deviation in the gradient
    curvature = (1 + r2) ** -1.5
    bread = jacobian.T @ (jacobian * curvature[:, None])
    values, vectors = np.linalg.eigh(bread)
    floor = max(float(values[-1]), 1e-30) * 1e-12
    inverse = vectors @ np.diag(1 / np.maximum(values, floor)) @ vectors.T
    leverage = curvature * np.sum((jacobian @ inverse) * jacobian, axis=1)
    left_out = weight * deviation / np.maximum(1 - leverage, LEAST)
    score = jacobian * left_out[:, None]
    covariance = inverse @ (score.T @ score) @ inverse
    noise = MAD * np.median(np.abs(deviation)) * np.sqrt(rows / max(rows - count, 1))
    noise = float(noise)
    along = np.sqrt(np.maximum(noise**2, 1e-12) / np.maximum(values, floor))
    blind = np.abs(vectors) @ np.where(along > UNSEEN, along, 0.0)
    errors = np.maximum(np.sqrt(np.diag(covariance)), blind)
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    correlation = covariance / np.outer(scale, scale)
    names = [parameter.name for parameter in parameters.each]
    unseen = [
        _in_words(vectors[:, i], float(along[i]), names) for i in range(count) if along[i] > UNSEEN
    ]
    return Diagnosis(noise, errors, correlation, unseen)


def _in_words(direction: np.ndarray, error: float, names: list[str]) -> str:
    """A direction in which parameters may move together without the data noticing."""
    order = np.argsort(-np.abs(direction))
    big = [i for i in order if abs(direction[i]) > SHARE * abs(direction[order[0]])]
    if len(big) == 1:
        what = f"the data do not say what {names[big[0]]} is"
    else:
        sign = np.sign(direction[big[0]])
        with_it = [f"{names[i]} {'up' if direction[i] * sign > 0 else 'down'}" for i in big]
        what = "the data do not tell apart: " + ", ".join(with_it)
    size = (
        "no effect at all" if error > 1e3 else f"a factor of {np.exp(min(error, 7)):.2g} along it"
    )
    return f"{what} ({size} is within the error)"
