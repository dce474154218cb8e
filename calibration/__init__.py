"""Fits of a machine's numbers to measured latencies, and how sure they are.

`fit` is imported when first used, so that importing the package does not wait for JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibration.fitting import FitResult, fit
    from calibration.measurements import Measurements, load

_HOMES = {
    "FitResult": "calibration.fitting",
    "Measurements": "calibration.measurements",
    "fit": "calibration.fitting",
    "load": "calibration.measurements",
}

__all__ = ["FitResult", "Measurements", "fit", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `calibration` has no attribute `{name}`")
    return getattr(importlib.import_module(_HOMES[name]), name)
