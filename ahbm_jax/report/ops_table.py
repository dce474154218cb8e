"""Tables of the operation set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ahbm_jax.tl.ops import OPS


def op_table() -> Table:
    """Engine, issue cost and blocking of each operation."""
    table = Table(title="Operations of `tl`", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("op", "engine", "issue cost", "CPU", "meaning"):
        table.add_column(name, no_wrap=name != "meaning")
    for name, spec in OPS.items():
        held = "held" if spec.holds_cpu else "free"
        table.add_row(name, spec.engine, f"issue.{spec.issue}", held, spec.doc)
    return table


def rule_table(rules: Mapping[str, Mapping[str, Any]]) -> Table:
    """What each interpreter makes of each operation; `rules` by interpreter and operation."""
    table = Table(title="Rules of the interpreters", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("op", no_wrap=True)
    for name in rules:
        table.add_column(name, ratio=1)
    for op in OPS:
        table.add_row(op, *(_rule(op, each[op]) for each in rules.values()))
    return table


def _rule(op: str, function: Any) -> Text:
    name = function.__name__.strip("_")
    doc = (function.__doc__ or OPS[op].doc).strip().partition("\n")[0].rstrip(".")
    shown = Text("" if name in ("<lambda>", "rule") else f"{name}: ")
    return shown.append(doc, style="dim")
