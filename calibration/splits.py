"""Which rows a split holds out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ahbm_jax.config.fit import Split
from ahbm_jax.errors import UsageError
from calibration.measurements import Measurements


def held_out(split: Split, rows: Measurements, seed: int) -> np.ndarray:
    """Whether each row is held out.

    Raises:
      UsageError: what the split needs is missing, or it holds out no row or all of them.
    """
    if split.kind == "random":
        count = max(1, round(split.share * len(rows)))
        out = np.zeros(len(rows), bool)
        out[np.random.default_rng(seed).permutation(len(rows))[:count]] = True
    elif split.kind == "group":
        out = rows.matching(_given(split, "where"))
    else:
        column = rows.column(_given(split, "column"))
        above = _given(split, "above")
        if column.dtype.kind not in "if":
            raise UsageError(f"`{split.column}` of split `{split.name}` holds texts; give numbers")
        out = column > above
    if out.all() or not out.any():
        which = "all rows" if out.all() else "no row"
        raise UsageError(f"split `{split.name}` holds out {which} of {rows.name}; give another")
    return out


def _given(split: Split, field: str) -> Any:
    value = getattr(split, field)
    if value is None or value == {}:
        raise UsageError(f"split `{split.name}` is `{split.kind}` and has no `{field}`; add it")
    return value
