"""The table of `ahbm parity`: every case with its errors beside their bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ahbm_jax.report.amount import percent, significant
from ahbm_jax.report.layout import plain_table

Row = dict[str, Any]


def parity_table(rows: Sequence[Row]) -> Iterator[RenderableType]:
    """What `ahbm parity` prints of cases, from the rows that `--json` writes."""
    headings = ("case", "arithmetic", ">E", ">at most", ">lse error", ">rounded", ">")
    table = plain_table("Against the float64 reference", *headings, gap=1)
    table.columns[0].no_wrap = False
    for row in rows:
        _add(table, row)
    yield table
    yield Text(
        "E: largest error in units of the storage type's rounding at sum p |v|; rounded: share of "
        "outputs that are the exact ones correctly rounded. At most 1.25 where P is rounded and "
        "the weight lies on 16 keys or more; on fewer its rounding alone can add 1.",
        "dim",
    )
    failed = [row for row in rows if not row["passed"]]
    for row in failed:
        yield Text(f"FAIL {row['name']}: {_why(row)}. Right: {row['right']}", "red")
    passed = len(rows) - len(failed)
    yield Text(f"{passed} of {len(rows)} cases pass", "bold red" if failed else "bold green")


def _add(table: Table, row: Row) -> None:
    errors = row["errors"]
    storage = row["shapes"]["storage"].replace("bfloat", "bf").replace("float", "f")
    lse = errors["lse_error"]
    table.add_row(
        Text(row["name"]),
        f"{storage}{', exact P' if row['settings'].get('exact_p') else ''}",
        significant(errors["E"]),
        significant(errors["E_bar"], 3),
        "-" if lse is None else f"{lse:.1e}",
        percent(errors["share_rounded"]),
        Text("pass", "green") if row["passed"] else Text("FAIL", "bold red"),
    )


def _why(row: Row) -> str:
    errors = row["errors"]
    lse = errors["lse_error"]
    reasons = {
        f"E is {errors['E']:.4g}, over {errors['E_bar']:.4g}": not errors["E"] <= errors["E_bar"],
        f"log-sum-exp is off by {lse}, over {errors['lse_bar']}": lse is not None
        and not lse <= errors["lse_bar"],
        f"only {errors['share_rounded']:.4f} of outputs are correctly rounded, below "
        f"{errors['share_bar']}": errors["share_rounded"] < errors["share_bar"],
        "a second run gave other bits": not row["rerun_equal"],
        "the output is not the exact one": row["exact"] is False,
    }
    return "; ".join(text for text, holds in reasons.items() if holds)
