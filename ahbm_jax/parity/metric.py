"""How far an output is from the float64 reference, and the bar for its arithmetic.

The error is measured in units of the storage type's rounding at the envelope sum_j p_j |v_j|:
E = max |o - o*| / (u envelope). It stays meaningful under cancellation, outliers and long contexts,
where units in the last place do not; rounding the exact result to the storage type gives up to 1.

Rounding P to the storage type as well adds up to 1 where the weight lies on a few keys, however
good the kernel; over many keys those roundings average out. So that mode has two bars.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ahbm_jax.parity.case import STORAGE

ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}  # u
EXACT_P, HARDWARE_P, FLOAT32 = "exact-P", "hardware-P", "float32"
E_BAR = {EXACT_P: 1.02, HARDWARE_P: 1.25}
MANY_KEYS = 16  # effective keys of a row from which on the hardware-P bar holds
FEW_KEYS_BAR = 2.02  # P's rounding, the output's, and what exact-P leaves for float32
FLOAT32_BAR = 8.0  # times 1 + the largest score, whose own rounding the exponential amplifies
SHARE_BAR = 0.98
LSE_BAR = 2e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of one output, each beside its bar.

    Attributes:
      mode: `exact-P` or `hardware-P` (P in float32, or rounded to the storage type), or `float32`.
      E: max |o - o*| / (u envelope), of the rows nearest to their bar where those have two.
      E_bar: largest E allowed of those rows.
      rms: root mean square of |o - o*| / (u envelope).
      share_rounded: share of outputs equal to o* rounded to the storage type.
      share_bar: smallest share allowed; 0 where the mode asks for none.
      lse_error: largest error of the log-sum-exp, relative (absolute below 1); per 1 + the row's
        largest score where the logarithm cancels it; infinite unless -inf is exactly where a row
        sees nothing. None if the kernel returns none.
      lse_bar: largest lse_error allowed.
    """

    mode: str
    E: float
    E_bar: float
    rms: float
    share_rounded: float
    share_bar: float
    lse_error: float | None
    lse_bar: float = LSE_BAR

    @property
    def passed(self) -> bool:
        """Whether every bar is met."""
        lse_passed = self.lse_error is None or self.lse_error <= self.lse_bar
        return self.E_bar >= self.E and self.share_rounded >= self.share_bar and lse_passed


def measure(o: Any, lse: Any, reference: Any, storage: str, *, exact_p: bool = False) -> Errors:
    """Errors of an attention output against the float64 reference.

    Args:
      o: [H, T, D] output.
      lse: [H, T] log-sum-exp, or None.
      reference: a `kernels.reference.Reference` of the same input.
      storage: type of q, k, v and o: `bfloat16`, `float16` or `float32`.
      exact_p: the kernel kept P in float32.
    """
    mode = FLOAT32 if storage == "float32" else EXACT_P if exact_p else HARDWARE_P
    largest_score = float(reference.largest_score.max(initial=0.0))
    units = _units(np.asarray(o).astype(np.float64), reference, storage)
    worst, bar = _worst(units, mode, largest_score, reference.effective_keys)
    with np.errstate(over="ignore"):
        rounded = reference.o.astype(STORAGE[storage])
    return Errors(
        mode=mode,
        E=worst,
        E_bar=bar,
        rms=math.sqrt(np.mean(units**2)),
        share_rounded=float(np.mean(np.asarray(o) == rounded)),
        share_bar=SHARE_BAR if mode == EXACT_P else 0.0,
        lse_error=None if lse is None else _lse_error(np.asarray(lse, np.float64), reference),
    )


def _worst(
    units: np.ndarray, mode: str, largest_score: float, effective_keys: np.ndarray
) -> tuple[float, float]:
    """The largest error and its bar."""
    if mode != HARDWARE_P:
        return float(units.max()), E_BAR.get(mode, FLOAT32_BAR * (1 + largest_score))
    many = effective_keys >= MANY_KEYS
    kinds = [(units[many], E_BAR[mode]), (units[~many], FEW_KEYS_BAR)]
    found = [(float(rows.max()), bar) for rows, bar in kinds if rows.size]
    return max(found, key=lambda pair: pair[0] / pair[1])


def _units(o: np.ndarray, reference: Any, storage: str) -> np.ndarray:
    """|o - o*| / (u envelope); u times the smallest normal number is the least unit."""
    if not np.isfinite(o).all():
        return np.full(o.shape, np.inf)
    error = np.abs(o - reference.o)
    scale = np.maximum(reference.envelope, float(jnp.finfo(STORAGE[storage]).tiny))
    empty = np.isneginf(reference.lse)[..., None] & (error > 0)
    return np.where(empty, np.inf, error / (ROUNDING[storage] * scale))


def _lse_error(lse: np.ndarray, reference: Any) -> float:
    empty = np.isneginf(reference.lse)
    if (np.isneginf(lse) != empty).any() or not np.isfinite(lse[~empty]).all():
        return math.inf
    if empty.all():
        return 0.0
    right, largest = reference.lse[~empty], reference.largest_score[~empty]
    cancels = np.abs(right) < largest
    scale = np.maximum(1.0, np.abs(right)) * np.where(cancels, 1 + largest, 1.0)
    return float((np.abs(lse[~empty] - right) / scale).max())
