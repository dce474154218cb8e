"""The errors of this package: every one is an `AhbmError` whose message says what to change."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class AhbmError(Exception):
    """The root of every error that this package raises on purpose."""


class UsageError(AhbmError, ValueError):
    """A wrong knob, name or argument; the message says what is allowed and what to change."""


class ConfigError(AhbmError, ValueError):
    """Everything wrong with a config file or with values given in its place, all at once.

    Args:
        problems: one line each, `file:line: ...` first where there is a file.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


class Infeasible(AhbmError):
    """A design point that the machine cannot run: more is demanded than there is.

    Args:
        what: what is short, for example "TCM scratch of one PE".
        demand: how much the point asks for, in `unit`.
        bound: how much there is, in `unit`.
        unit: unit of `demand`, `bound` and `gap`, for example "bytes".
        remedy: the knobs that would fix it.
    """

    def __init__(self, what: str, demand: float, bound: float, unit: str, remedy: str) -> None:
        super().__init__(what, demand, bound, unit, remedy)  # as given, so that it pickles
        self.what = what
        self.demand = demand
        self.bound = bound
        self.unit = unit
        self.remedy = remedy

    @property
    def gap(self) -> float:
        """How much is missing, in `unit`."""
        return self.demand - self.bound

    def __str__(self) -> str:
        return (
            f"{self.what}: {_amount(self.demand)} {self.unit} are needed and "
            f"{_amount(self.bound)} are there, {_amount(self.gap)} too few; {self.remedy}"
        )


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` most likely means, or None if none is close."""
    lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return lower[close[0]] if close else None


def nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion to end a message with.

    Args:
        name: what was given.
        known: what is allowed.

    Returns:
        " (did you mean `x`?)" for the known name closest to `name`, or "" if none is close.
    """
    close = closest(name, known)
    return f" (did you mean `{close}`?)" if close else ""


def _amount(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"
