"""How all tables look: a title, dim headings, no lines."""

from __future__ import annotations

from rich.table import Table


def plain_table(title: str | None, *columns: str, gap: int = 2) -> Table:
    """An empty table.

    Args:
      title: above the table; starts a new paragraph if it begins with a line break.
      *columns: headings; one that starts with `>` is of a column of numbers, to the right.
      gap: spaces between columns.
    """
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="dim",
        padding=(0, gap, 0, 0),
        pad_edge=False,
    )
    for column in columns:
        name, right = column.removeprefix(">"), column.startswith(">")
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    return table
