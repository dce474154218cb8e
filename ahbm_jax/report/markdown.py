"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table."""
    head = list(head)
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
