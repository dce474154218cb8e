"""What a search found, as a terminal shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table


def tune_table(rows: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """The parts of the page, in order; `rows` are bests as plain data."""
    table = Table("context", *rows[0]["knobs"], "latency ns", "bound by")
    for row in rows:
        weights = row["contexts"]
        mix = [f"{c:,}" if len(weights) == 1 else f"{w:g} x {c:,}" for c, w in weights.items()]
        bounds = dict.fromkeys(result["bound"] for result in row["results"])
        values = (str(value) for value in row["knobs"].values())
        table.add_row("\n".join(mix), *values, f"{row['latency_ns']:,.0f}", "\n".join(bounds))
    yield table
    how = rows[0]
    yield f"{how['method']}: {how['evaluated']:,} points of {how['space']:,} looked at"
