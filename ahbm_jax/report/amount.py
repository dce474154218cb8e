"""Numbers as tables show them."""

from __future__ import annotations

from collections.abc import Mapping


def significant(x: float, digits: int = 4) -> str:
    """`x` with so many significant digits, never in scientific notation."""
    whole = len(str(int(abs(x)))) if abs(x) >= 1 else 0
    return f"{x:,.{max(0, min(digits - whole, digits - 1))}f}"


def microseconds(ns: float) -> str:
    """Nanoseconds in microseconds."""
    return significant(ns / 1e3)


def percent(share: float) -> str:
    """A share of one."""
    return f"{100 * share:.0f}%"


def times(ratio: float) -> str:
    """A ratio."""
    return f"{ratio:.2f}x"


def tokens(count: int) -> str:
    """A number of tokens, in binary units where that is exact: `128k`."""
    for size, unit in ((2**20, "M"), (2**10, "k")):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count:,}"


def largest_shares(parts: Mapping[str, float], count: int) -> str:
    """The largest parts of a whole, each with its share in percent: `name 41`."""
    total = sum(parts.values()) or 1.0
    top = sorted(parts.items(), key=lambda item: -item[1])[:count]
    return " ".join(f"{name} {100 * x / total:.0f}" for name, x in top)
