"""The search: Levenberg-Marquardt from many starts, with a maximum that may begin smooth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optimistix

from ahbm_jax.result import QUICK_TO_COMPILE
from calibration.loss import robust
from calibration.model import Model

Array = jax.Array
SPREAD = 5.0  # starts are up to this factor apart
TEMPERATURES = (0.0,)  # of the smooth maximum, relative to the measured latency
STEPS = 200  # at most, at each temperature
RTOL = 1e-6
SCREEN = 800  # rows of the searches from all starts, where there are more than twice as many


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
        self._least: dict[bool, Callable[..., tuple[Array, Array, Array]]] = {
            smooth: jax.jit(self._minimiser(smooth), compiler_options=QUICK_TO_COMPILE)
            for smooth in (False, True)
        }

    def residuals(
        self, vector: Array, target_ns: Array, weight: Array, temperature: Array | None
    ) -> Array:
        """Robust deviations of the rows, times their weight, and those from the priors."""
        parameters = self.model.parameters
        logs = parameters.logs(vector)
        kelvin = None if temperature is None else temperature * target_ns
        deviation = self.model.log_latency_ns(logs, kelvin) - jnp.log(target_ns)
        return jnp.concatenate([robust(deviation) * weight, parameters.prior(logs)])

    def _minimiser(self, smooth: bool) -> Callable[..., tuple[Array, Array, Array]]:
        solver = optimistix.LevenbergMarquardt(rtol=RTOL, atol=RTOL)

        def least(
            vector: Array, target_ns: Array, weight: Array, temperature: Array
        ) -> tuple[Array, Array, Array]:
            def f(vector: Array, _: None) -> Array:
                return self.residuals(vector, target_ns, weight, temperature if smooth else None)

            found = optimistix.least_squares(
                f, solver, vector, max_steps=STEPS, throw=False, options={"jac": "fwd"}
            )
            loss = jnp.sum(f(found.value, None) ** 2)
            return found.value, loss, found.stats["num_steps"]

        return least

    def search(
        self,
        start: np.ndarray,
        target_ns: np.ndarray,
        weight: np.ndarray,
        temperatures: tuple[float, ...] = TEMPERATURES,
    ) -> Search:
        """One search from logarithms of the parameters, on rows with weight 1."""
        parameters = self.model.parameters
        vector = jnp.asarray(parameters.vector(start))
        rows = jnp.asarray(target_ns), jnp.asarray(weight)
        loss, steps = np.inf, 0
        for temperature in temperatures:
            least = self._least[temperature > 0]
            vector, loss, taken = least(vector, *rows, jnp.asarray(temperature))
            steps += int(taken)
        return Search(start, np.asarray(parameters.logs(vector)), float(loss), steps)


def starts(model: Model, count: int, seed: int) -> list[np.ndarray]:
    """The machine's own values, and others up to `SPREAD` apart from each other."""
    parameters = model.parameters
    random = np.random.default_rng(seed)
    half = np.log(SPREAD) / 2
    moved = random.uniform(-half, half, (count - 1, len(parameters.each)))
    inside = 0.02 * (parameters.high - parameters.low)
    low, high = parameters.low + inside, parameters.high - inside
    return [np.clip(parameters.start + m, low, high) for m in (0.0, *moved)]
