"""Tables of the operation set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from ahbm_jax.report.layout import plain_table
from ahbm_jax.tl.ops import OPS


def op_table() -> Table:
    """Engine, issue cost and blocking of each operation."""
    table = plain_table("Operations of `tl`", "op", "engine", "issue cost", "CPU", "meaning")
    table.columns[-1].no_wrap = False
    for name, spec in OPS.items():
        held = "held" if spec.holds_cpu else "free"
        table.add_row(name, spec.engine, f"issue.{spec.issue}", held, spec.doc)
    return table


def rule_table(rules: Mapping[str, Mapping[str, Any]]) -> Table:
    """What each interpreter makes of each operation; `rules` by interpreter and operation."""
    table = plain_table('\nRules of the interpreters (": as above)')
    table.add_column("op", no_wrap=True)
    for name in rules:
        table.add_column(name, ratio=1)
    above = [Text()] * len(rules)
    for op in OPS:
        cells = [_rule(op, each[op]) for each in rules.values()]
        shown = (
            Text('"') if cell == last else cell for cell, last in zip(cells, above, strict=True)
        )
        table.add_row(op, *shown)
        above = cells
    return table


def _rule(op: str, function: Any) -> Text:
    name = function.__name__.strip("_")
    doc = (function.__doc__ or OPS[op].doc).strip().partition("\n")[0].rstrip(".")
    shown = Text("" if name in ("<lambda>", "rule") else f"{name}: ")
    return shown.append(doc, style="dim")
