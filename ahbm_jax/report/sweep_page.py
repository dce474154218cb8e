"""What a run of a sweep did, as a terminal shows it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.table import Table


def sweep_page(document: dict[str, Any]) -> Iterator[Any]:
    """The parts of the page, in order."""
    rate = document["points_per_second"]
    rows = {
        "points": f"{document['points']:,}",
        "cannot run": f"{document['infeasible']:,}",
        "chunks": f"{document['chunks']:,}, {document['chunks_resumed']:,} of them there before",
        "compiling": f"{document['seconds_compile']:.1f} s",
        "running": f"{document['seconds_run']:.1f} s",
        "rate": "nothing to do" if math.isnan(rate) else f"{rate:,.0f} points/s",
    }
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in rows.items():
        table.add_row(name, text)
    yield table
    yield f"in {document['store']}; `ahbm report {document['store']} -o report.html` shows it"
