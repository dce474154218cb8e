"""What a spreadsheet would say: a roofline, or alpha-beta, fitted to the same rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optimistix

from calibration.loss import robust
from calibration.measurements import Measurements

Array = jax.Array
STEPS = 400


def baseline_ns(rows: Measurements, target_ns: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Latency of every row by a baseline fitted to the `training` rows.

    A constant, and the longer (a roofline) or the sum (alpha-beta) of two amounts of work, each at
    a rate: three numbers, found with the loss of the fit itself.
    """
    work = np.stack([np.asarray(amount, float) for amount in rows.spec.work(rows.columns)])
    constant = 0.5 * float(np.min(target_ns[training]))
    rates = np.median(target_ns[training] / work[:, training], axis=1) / 2
    least, weight = np.log([constant, *rates]), training.astype(float)

    def log_latency(logs: Array) -> Array:
        times = jnp.exp(logs[1:, None]) * work
        together = jnp.max(times, axis=0) if rows.spec.overlaps else jnp.sum(times, axis=0)
        return jnp.log(jnp.exp(logs[0]) + together)

    def residuals(logs: Array, _: None) -> Array:
        return robust(log_latency(logs) - jnp.log(target_ns)) * weight

    solver = optimistix.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
    begin = jnp.asarray(least)
    found = optimistix.least_squares(residuals, solver, begin, max_steps=STEPS, throw=False)
    return np.exp(np.asarray(log_latency(found.value)))
