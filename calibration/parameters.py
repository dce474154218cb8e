"""Free parameters: between bounds, searched in the logarithm, each a number of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ahbm_jax.config.fit import Free
from ahbm_jax.config.show import unit
from ahbm_jax.errors import UsageError
from ahbm_jax.machine.params import Machine
from calibration.measurements import Measurements

Array = jax.Array
AT_BOUND = 0.003  # of the logarithmic range between the bounds
MARGIN = 0.02  # of it, from which a search begins: at a bound a descent sees little


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number to find: `free`, at one `level` of its column (None if it has no column)."""

    free: Free
    level: float | str | None
    start: float

    @property
    def name(self) -> str:
        """Key, with the level where there is one."""
        if self.level is None:
            return self.free.key
        return f"{self.free.key}[{self.free.by}={level_text(self.level)}]"

    @property
    def unit(self) -> str:
        """Unit of the key."""
        return unit(self.free.key)


def level_text(level: float | str) -> str:
    """A value of a column, `none` for none, as names of parameters and files have it."""
    if isinstance(level, str):
        return level
    return "none" if np.isnan(level) else f"{level:g}"


@dataclass(frozen=True, slots=True)
class Parameters:
    """All free parameters of a fit."""

    each: tuple[Parameter, ...]
    of_row: dict[str, np.ndarray]  # by key: number of the parameter that each row takes

    @property
    def low(self) -> np.ndarray:
        """Logarithms of the least values."""
        return np.log([p.free.low for p in self.each])

    @property
    def high(self) -> np.ndarray:
        """Logarithms of the greatest values."""
        return np.log([p.free.high for p in self.each])

    @property
    def start(self) -> np.ndarray:
        """Logarithms of the machine's own values."""
        return np.log([p.start for p in self.each])

    def inside(self, logs: np.ndarray) -> np.ndarray:
        """The nearest values between the bounds that are not near one."""
        margin = MARGIN * (self.high - self.low)
        return np.clip(logs, self.low + margin, self.high - margin)

    def settings(self, logs: Array) -> dict[str, Array]:
        """Values by key: one of all rows, or an array of theirs."""
        values = jnp.exp(logs)
        return {key: values[jnp.asarray(rows)] for key, rows in self.of_row.items()}

    @property
    def certainty(self) -> np.ndarray:
        """One over the standard deviation of what is believed; 0 where nothing is."""
        believed = [p.free.prior for p in self.each]
        return np.array([0.0 if sd is None else 1.0 / sd for sd in believed])

    def prior(self, logs: np.ndarray) -> np.ndarray:
        """Deviations from what is believed, in standard deviations."""
        return (logs - self.start) * self.certainty

    def at_bound(self, logs: np.ndarray) -> np.ndarray:
        """Whether each value sits on one of its bounds."""
        share = (logs - self.low) / (self.high - self.low)
        return (share < AT_BOUND) | (share > 1 - AT_BOUND)


def settle(free: tuple[Free, ...], machine: Machine, rows: Measurements) -> Parameters:
    """The parameters that rows call for: one a key, or one for each value of its column.

    Raises:
      UsageError: the machine has no such number, or its value is not between the bounds.
    """
    each: list[Parameter] = []
    of_row: dict[str, np.ndarray] = {}
    for one in free:
        own = _value(machine, one.key)
        start = own if one.start is None else one.start
        if not one.low < start < one.high:
            raise UsageError(
                f"the search for `{one.key}` begins at {start:g}; it must be between `low` "
                f"{one.low:g} and `high` {one.high:g}: give a `start`"
            )
        levels: list[Any] = [None]
        of_row[one.key] = np.full(1, len(each))
        if one.by is not None:
            column = rows.column(one.by)
            found, places = np.unique(column, return_inverse=True, equal_nan=True)
            levels = found.tolist()
            of_row[one.key] = len(each) + places
        each += [Parameter(one, level, start) for level in levels]
    return Parameters(tuple(each), of_row)


def _value(machine: Machine, key: str) -> float:
    section, _, field = key.partition(".")
    inner = getattr(machine, section, None)
    if inner is None or not hasattr(inner, field):
        raise UsageError(f"`{key}` names no number of `{machine.name}`; give a key that it has")
    return float(getattr(inner, field))
