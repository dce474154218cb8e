"""The search: least squares between bounds from many starts, by a maximum that may begin smooth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

from ahbm_jax.result import QUICK_TO_COMPILE
from calibration.loss import robust
from calibration.model import Model

Array = jax.Array
SPREAD = 5.0  # starts are up to this factor apart
RESTARTS = 6  # of a start's search, each from the best so far with every parameter moved
MOVE = 0.3  # standard deviation of those moves, of the logarithm
TEMPERATURES = (0.0,)  # of the smooth maximum, relative to the measured latency
STEPS = 200  # at most, of one descent
TOLERANCE = 1e-7  # relative, of the loss and of the logarithms


@dataclass(frozen=True, slots=True)
class Search:
    """One search: where it began and ended, as logarithms of the parameters, and its loss."""

    start: np.ndarray
    logs: np.ndarray
    loss: float
    steps: int


class Searcher:
    """Searches for the parameters of a model, compiled once for all latencies and row weights.

    Args:
      model: what predicts latencies.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._log_latency = _compiled(model.log_latency_ns)
        self._slopes = _compiled(jax.jacfwd(model.log_latency_ns))

    def log_latency_ns(self, logs: np.ndarray, temperature_ns: Array | None = None) -> np.ndarray:
        """Logarithm of each row's latency, [rows]."""
        return np.asarray(self._log_latency(jnp.asarray(logs), temperature_ns))

    def slopes(self, logs: np.ndarray, temperature_ns: Array | None = None) -> np.ndarray:
        """Derivative of log latency by log parameter, [rows, parameters]."""
        return np.asarray(self._slopes(jnp.asarray(logs), temperature_ns))

    def search(
        self,
        start: np.ndarray,
        target_ns: np.ndarray,
        weight: np.ndarray,
        temperatures: tuple[float, ...] = TEMPERATURES,
        restarts: int = 0,
    ) -> Search:
        """One search from logarithms of the parameters, on rows with weight 1.

        A hard maximum has a local minimum here and there; `restarts` leave those that are narrow.
        """
        random, parameters = np.random.default_rng(0), self.model.parameters
        best = Search(start, start, np.inf, 0)
        for temperature in temperatures:  # losses at different temperatures do not compare
            smooth = None if temperature == 0 else jnp.asarray(temperature * target_ns)
            best = self._descend(best.logs, target_ns, weight, smooth)
        steps = best.steps
        for _ in range(restarts):
            moved = best.logs + MOVE * random.standard_normal(len(best.logs))
            found = self._descend(parameters.inside(moved), target_ns, weight, None)
            steps += found.steps
            best = min(best, found, key=lambda search: search.loss)
        return Search(start, best.logs, best.loss, steps)

    def _descend(
        self, start: np.ndarray, target_ns: np.ndarray, weight: np.ndarray, smooth: Array | None
    ) -> Search:
        """To the nearest minimum, by trust regions that heed the bounds."""
        parameters = self.model.parameters

        def residuals(logs: np.ndarray) -> np.ndarray:
            deviation = self.log_latency_ns(logs, smooth) - np.log(target_ns)
            value, _ = robust(deviation)
            return np.concatenate([value * weight, parameters.prior(logs)])

        def jacobian(logs: np.ndarray) -> np.ndarray:
            deviation = self.log_latency_ns(logs, smooth) - np.log(target_ns)
            _, slope = robust(deviation)
            rows = (slope * weight)[:, None] * self.slopes(logs, smooth)
            return np.concatenate([rows, np.diag(parameters.certainty)])

        found = least_squares(
            residuals,
            parameters.inside(start),
            jac=jacobian,  # pyright: ignore[reportArgumentType]  # its stub names strings alone
            bounds=(parameters.low, parameters.high),
            x_scale="jac",
            ftol=TOLERANCE,
            xtol=TOLERANCE,
            gtol=TOLERANCE**2,
            max_nfev=STEPS,
        )
        return Search(start, found.x, 2 * float(found.cost), int(found.nfev))


def _compiled(f: Callable[..., Array]) -> Callable[..., Array]:
    return jax.jit(f, compiler_options=QUICK_TO_COMPILE)


def starts(model: Model, count: int, seed: int) -> list[np.ndarray]:
    """The machine's own values, and others up to `SPREAD` apart from each other."""
    parameters = model.parameters
    random = np.random.default_rng(seed)
    half = np.log(SPREAD) / 2
    moved = random.uniform(-half, half, (count - 1, len(parameters.each)))
    return [parameters.inside(parameters.start + m) for m in (np.zeros(1), *moved)]
