"""Where tables and progress go: results to stdout, progress to stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

WIDTH = 100  # where no terminal says how wide it is


def output() -> Console:
    """Console of stdout. No markup: names and texts may hold brackets."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def progress() -> Progress:
    """A progress bar on stderr, if that is a terminal; it leaves nothing behind."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = {"console": console, "transient": True, "disable": not console.is_terminal}
    return Progress(*columns, TimeElapsedColumn(), **shown)


def rates() -> Progress:
    """A progress bar of many points, with their rate and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(TextColumn):
        def render(self, task: Any) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f} points/s")

    console = Console(stderr=True)
    shown = {"console": console, "transient": True, "disable": not console.is_terminal}
    points = TextColumn("{task.completed:,.0f} of {task.total:,.0f}")
    left = TimeRemainingColumn()
    return Progress(TextColumn("{task.description}"), BarColumn(), points, Rate(""), left, **shown)
