"""A fit's document as tables: errors by split, parameters, what the data cannot see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from ahbm_jax.report.amount import significant


def fit_page(document: dict[str, Any]) -> Iterator[Any]:
    """What `ahbm fit` prints."""
    yield Text(
        f"Fit {document['name']}: {document['rows']} rows of {document['data']} "
        f"({document['data_hash']}), {document['seconds']:.0f} s; {document['starts_agreeing']} of "
        f"{document['starts']} starts found the same"
    )
    yield _splits(document)
    yield _parameters(document)
    for text in document["unseen"]:
        yield Text(f"Unseen: {text}")
    if "plan" in document:
        yield _plan(document["plan"])
    for path in document.get("files", []):
        yield Text(f"Wrote {path}")


def _splits(document: dict[str, Any]) -> Table:
    table = Table(title="Held-out errors of latency, %", title_justify="left")
    for name in ("split", "rows", "mean", "median", "90 % below", "baseline's mean"):
        table.add_column(name, justify="left" if name == "split" else "right")
    for name, errors in document["splits"].items():
        values = (errors[key] for key in ("mape", "median", "p90", "roofline_mape"))
        table.add_row(name, str(errors["rows"]), *(f"{value:.2f}" for value in values))
    return table


def _parameters(document: dict[str, Any]) -> Table:
    table = Table(title="Parameters", title_justify="left")
    for name in ("parameter", "value", "standard error", "unit", ""):
        table.add_column(name, justify="right" if name in ("value", "standard error") else "left")
    for row in document["parameters"]:
        notes = [] if row["identifiable"] else ["not identifiable"]
        notes += ["at its bound"] if row["at_bound"] else []
        table.add_row(
            row["name"],
            significant(row["value"]),
            significant(row["standard_error"]),
            row["unit"],
            ", ".join(notes),
        )
    return table


def _plan(plan: list[dict[str, Any]]) -> Table:
    table = Table(title="Measurements that would tell most", title_justify="left")
    table.add_column("measure")
    table.add_column("narrows most")
    table.add_column("its standard error, %", justify="right")
    for row in plan:
        where = ", ".join(f"{name} {value:g}" for name, value in row["sizes"].items())
        before, after = 100 * row["before"], 100 * row["after"]
        table.add_row(where, row["parameter"], f"{before:.2g} to {after:.2g}")
    return table
