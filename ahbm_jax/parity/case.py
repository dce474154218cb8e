"""One input of the parity check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

STORAGE = {"bfloat16": jnp.bfloat16, "float16": jnp.float16, "float32": jnp.float32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An input, and what is right beyond the float64 reference.

    Attributes:
      name: what sets it apart.
      q: [H, T, D] numpy array in storage type.
      k: [K, S, D], NaN at and past kv_len.
      v: [K, S, D], NaN at and past kv_len.
      settings: keyword arguments of `attention`.
      right: the right answer in words.
      seen: public reports of kernels that got it wrong.
      exact: [H, T, D] output that must come out exactly, where there is one.
    """

    name: str
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    settings: Mapping[str, Any] = field(default_factory=dict)
    right: str = "the float64 reference"
    seen: str = ""
    exact: np.ndarray | None = None


def normal(rng: np.random.Generator, storage: str, *shape: int) -> np.ndarray:
    """Standard normal values in a storage type."""
    return rng.normal(size=shape).astype(STORAGE[storage])


def garbage_past(x: np.ndarray, tokens: int) -> np.ndarray:
    """A copy of x [K, S, D] whose rows at and past `tokens` are NaN and infinities."""
    x = x.copy()
    x[:, tokens:] = np.nan
    x[:, tokens::3] = np.inf
    return x
