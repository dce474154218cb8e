"""The critical path as a table: its first and last steps, and what lies between by kind."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from ahbm_jax.report.amount import microseconds, significant
from ahbm_jax.report.layout import plain_table

Row = dict[str, Any]
COSTS = 2  # named for each step
KINDS = 6  # of steps that are not shown, before the rest is summed up


def path_table(row: Row, most: int) -> Table:
    """The critical path; if it is longer, about `most` steps are shown one by one."""
    steps = row["steps"]
    title = f"\nCritical path, step by step: {len(steps):,} steps"
    table = plain_table(title, ">at ns", ">ns", "CUBE PE", "command", ">tile", "on", "costs, ns")
    first, last = -(-most // 2), most // 2
    middle = steps[first : len(steps) - last] if len(steps) > most + KINDS else []
    for step in steps[:first] if middle else steps:
        _add(table, step)
    for part in _parts(middle):
        _summarise(table, part)
    for step in steps[len(steps) - last :] if middle else []:
        _add(table, step)
    return table


def _add(table: Table, step: Row) -> None:
    ranked = sorted(step["spent_ns"].items(), key=lambda item: -item[1])
    costs = [f"{name} {significant(ns)}" for name, ns in ranked[:COSTS] if ns]
    table.add_row(
        f"{step['start_ns']:,.0f}",
        significant(step["end_ns"] - step["start_ns"]),
        _ranks([step]),
        _name(step),
        str(step["tile"]) if step["tile"] >= 0 else "",
        step["resource"],
        ", ".join(costs),
    )


def _parts(steps: list[Row]) -> list[list[Row]]:
    """The steps inside of loops and those outside, as far as there are any, the earlier first."""
    inside = [step for step in steps if step["tile"] >= 0]
    outside = [step for step in steps if step["tile"] < 0]
    return sorted(filter(None, (inside, outside)), key=lambda part: part[0]["start_ns"])


def _summarise(table: Table, steps: list[Row]) -> None:
    """Steps that are not shown, all those of one kind in a row."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for step in steps:
        kinds.setdefault((_name(step), step["resource"]), []).append(step)
    ranked = sorted(kinds.values(), key=lambda group: -_total(group))
    tiles = [step["tile"] for step in steps if step["tile"] >= 0]
    where = f"tiles {min(tiles):,} to {max(tiles):,}" if tiles else "outside of loops"
    heading = f"{len(steps):,} steps", "", "", f"{where}: {microseconds(_total(steps))} us"
    start = f"{steps[0]['start_ns']:,.0f}"
    table.add_row(start, "...", _ranks(steps), *heading, style="bold")
    for group in ranked[:KINDS]:
        _add_kind(table, group, f"{len(group):,} x {_name(group[0])}", group[0]["resource"])
    rest = [step for group in ranked[KINDS:] for step in group]
    if rest:
        _add_kind(table, rest, f"{len(rest):,} others", "")


def _add_kind(table: Table, group: list[Row], name: str, resource: str) -> None:
    mean = significant(_total(group) / len(group))
    total = f"{microseconds(_total(group))} us in all"
    table.add_row("", mean, "", name, "", resource, total, style="dim")


def _name(step: Row) -> str:
    return f"{step['op']} {step['tensor']}".strip()


def _total(steps: list[Row]) -> float:
    return sum(step["end_ns"] - step["start_ns"] for step in steps)


def _ranks(steps: list[Row]) -> str:
    ranks = {tuple(step["rank"]) for step in steps}
    return "{} {}".format(*next(iter(ranks))) if len(ranks) == 1 else f"{len(ranks)} ranks"
