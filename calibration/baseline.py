"""What a spreadsheet would say: a roofline, or alpha-beta, fitted to the same rows."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares

from calibration.loss import robust
from calibration.measurements import Measurements


def baseline_ns(rows: Measurements, target_ns: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Latency of every row by a baseline fitted to the `training` rows.

    A constant, and the longer (a roofline) or the sum (alpha-beta) of two amounts of work, each at
    a rate: three numbers, found with the loss of the fit itself.
    """
    work = np.stack([np.asarray(amount, float) for amount in rows.spec.work(rows.columns)])
    constant = 0.5 * float(np.min(target_ns[training]))
    rates = np.median(target_ns[training] / work[:, training], axis=1) / 2
    target, weight = np.log(target_ns), training.astype(float)

    def log_latency(logs: np.ndarray) -> np.ndarray:
        times = np.exp(logs[1:, None]) * work
        together = np.max(times, axis=0) if rows.spec.overlaps else np.sum(times, axis=0)
        return np.log(np.exp(logs[0]) + together)

    def residuals(logs: np.ndarray) -> np.ndarray:
        return robust(log_latency(logs) - target)[0] * weight

    return np.exp(log_latency(least_squares(residuals, np.log([constant, *rates])).x))
