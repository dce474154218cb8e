"""What a panel of a bench says, read off its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ahbm_jax.report.amount import times, tokens

Row = dict[str, Any]
PAIRS = (("opt3", "opt1"), ("opt3v", "opt3"), ("opt2", "opt3"))  # variants whose gain is asked for


def unique(values: Iterable[Any]) -> list[Any]:
    """Values in their order, each once."""
    return list(dict.fromkeys(values))


def cheapest(rows: Sequence[Row]) -> Row | None:
    """The row of least latency, the first of equals; None if none is feasible."""
    feasible = [row for row in rows if row["latency_ns"] is not None]
    return min(feasible, key=lambda row: row["latency_ns"], default=None)


def same(a: Row, b: Row) -> bool:
    """Whether two rows take equally long, but for rounding."""
    return abs(a["latency_ns"] - b["latency_ns"]) <= 1e-9 * b["latency_ns"]


def label(row: Row) -> str:
    """A kernel as tables name it."""
    return f"{row['kernel']} {row['variant']}" if row["variant"] else row["kernel"]


def findings(panel: Sequence[Row]) -> list[str]:
    """Fastest kernel and best C by context, and what one gains over another."""
    contexts = unique(row["context"] for row in panel)
    best = {
        context: row
        for context in contexts
        if (row := cheapest([x for x in panel if x["context"] == context])) is not None
    }
    if not best:
        return ["no point is feasible"]
    found = [
        "fastest " + _by_context(best, label),
        "best C " + _by_context(best, lambda row: str(row["C"])),
    ]
    first = panel[0]["kernel"]
    pairs = [(f"{first} {new}", f"{first} {old}") for new, old in PAIRS]
    pairs += [(first, other) for other in unique(row["kernel"] for row in panel) if other != first]
    return found + [text for pair in pairs for text in _gain(panel, contexts, *pair)]


def _by_context(best: dict[int, Row], what: Callable[[Row], str]) -> str:
    """`opt2` if it is the same everywhere, else `opt3 at 1k, opt2 at 8k to 128k`."""
    runs: list[tuple[str, list[int]]] = []
    for context, row in best.items():
        if runs and runs[-1][0] == what(row):
            runs[-1][1].append(context)
        else:
            runs.append((what(row), [context]))
    if len(runs) == 1:
        return runs[0][0]
    return ", ".join(f"{name} at {_span(contexts)}" for name, contexts in runs)


def _span(contexts: Sequence[int]) -> str:
    first, last = tokens(contexts[0]), tokens(contexts[-1])
    return first if len(contexts) == 1 else f"{first} to {last}"


def _gain(panel: Sequence[Row], contexts: Sequence[int], new: str, old: str) -> Iterator[str]:
    """How much faster `new` is than `old`, kernels or variants of them, each at its best."""
    ratios = []
    for context in contexts:
        here = [row for row in panel if row["context"] == context]
        rows = [
            cheapest([x for x in here if name in (label(x), x["kernel"])]) for name in (new, old)
        ]
        if rows[0] is not None and rows[1] is not None:
            ratios.append(rows[1]["latency_ns"] / rows[0]["latency_ns"])
    if ratios:
        low, high = times(min(ratios)), times(max(ratios))
        yield f"{new} is {low if low == high else f'{low} to {high}'} as fast as {old}"
