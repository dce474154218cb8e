"""The tables of `ahbm bench`: per panel and context, latency of each kernel at each C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ahbm_jax.report.amount import largest_shares, microseconds, percent, significant, tokens
from ahbm_jax.report.findings import Row, cheapest, findings, label, same, unique
from ahbm_jax.report.layout import plain_table

COSTS = 3  # of the critical path
LEGEND = (
    "C=: us a layer, for all requests; * best C of a kernel, > fastest kernel. Then, about that "
    "C: latency over its largest bound, busy share of DMA and GEMM, costs on the critical path."
)


def bench_tables(document: dict[str, Any]) -> Iterator[RenderableType]:
    """What `ahbm bench` prints, from the document that `--json` writes."""
    rows: list[Row] = document["rows"]
    yield Text(f"{document['bench']}: {document['workload']} on {document['machine']}", "bold")
    yield Text(_heads(document))
    yield from _parity(rows)
    for name in unique(row["panel"] for row in rows):
        panel = [row for row in rows if row["panel"] == name]
        yield Text()
        yield _panel_table(panel)
        yield Text.assemble(("Findings: ", "bold"), "; ".join(findings(panel)) + ".")
        yield from _whole_model(panel, document["layers"])
        for reason in unique(row["result"] for row in panel if row["latency_ns"] is None):
            yield Text(f"- infeasible: {reason}", "red")
    yield Text()
    yield Text(LEGEND, "dim")


def _heads(document: dict[str, Any]) -> str:
    held = document["kv_heads_of_device"]
    parts = (f"SIP {sip}: {', '.join(map(str, heads)) or 'none'}" for sip, heads in held.items())
    group = document["query_heads_per_kv_head"]
    return f"KV heads, each with {group} query heads: {'; '.join(parts)}"


def _parity(rows: Sequence[Row]) -> Iterator[Text]:
    """A line for each way in which numbers were checked."""
    checks = {(row["kernel"], row["variant"], str(row["parity"])): row for row in rows}
    ways: dict[tuple[Any, ...], list[Row]] = {}
    for row in checks.values():
        parity = row["parity"]
        ways.setdefault((parity["context"], *parity["grid"], parity["tile"]), []).append(row)
    for (context, cubes, pes, tile), checked in ways.items():
        shown = ", ".join(f"{label(row)} {row['parity']['E']:.3f}" for row in checked)
        bar = max(row["parity"]["E_bar"] for row in checked)
        passed = all(row["parity"]["passed"] for row in checked)
        lse = max((row["parity"]["lse_error"] or 0.0) for row in checked)
        yield Text.assemble(
            f"Numbers at {context:,} tokens, {cubes} x {pes} ranks, tile {tile}, ",
            f"against float64: E {shown} (at most {bar:g}); log-sum-exp {lse:.1e}: ",
            ("all pass", "green") if passed else ("FAIL", "bold red"),
        )


def _whole_model(panel: Sequence[Row], layers: int) -> Iterator[Text]:
    """Attention of all layers by context, at the fastest point of each."""
    found = []
    for context in unique(row["context"] for row in panel):
        best = cheapest([row for row in panel if row["context"] == context])
        if best is not None:
            time = f"{significant(best['all_layers_ns'] / 1e6)} ms"
            rate = f"{significant(best['tokens_per_s_bound'])} tokens/s"
            found.append(f"{tokens(context)} {time}, at most {rate}")
    if found:
        head = f"Whole model, {layers} layers of attention and nothing else: "
        yield Text.assemble((head, "bold"), "; ".join(found) + ".")


def _title(panel: Sequence[Row]) -> str:
    """What all rows of a panel have in common."""
    first = panel[0]
    users, length = first["users"], first["query_length"]
    parts = [f"{users} request{'s' if users > 1 else ''}"]
    if length > 1:
        parts.append(f"{length} query tokens each")
    for key, name in (("P", "P"), ("tile", "tile")):
        values = unique(row[key] for row in panel)
        if len(values) == 1:
            parts.append(f"{name} {values[0]}")
    return f"{first['panel']}: {', '.join(parts)}"


def _panel_table(panel: Sequence[Row]) -> Table:
    title = _title(panel)
    cubes = unique(row["C"] for row in panel)
    at_cubes = (f">C={count} " for count in cubes)
    at_best = ("x bound", ">DMA", ">GEMM", "largest costs, %")
    table = plain_table(title, "  kernel", *at_cubes, *at_best, gap=1)
    table.columns[-1].no_wrap = False
    for context in unique(row["context"] for row in panel):
        table.add_row(Text(f"ctx {tokens(context)}", "bold cyan"))
        here = [row for row in panel if row["context"] == context]
        fastest = cheapest(here)
        for name in unique(map(label, here)):
            table.add_row(*_cells(name, [x for x in here if label(x) == name], cubes, fastest))
    return table


def _cells(
    name: str, rows: Sequence[Row], cubes: Sequence[int], fastest: Row | None
) -> Iterator[Text]:
    best = cheapest(rows)
    won = best is not None and fastest is not None and same(best, fastest)
    style = "bold green" if won else ""
    yield Text(f"{'>' if won else ' '} {name}", style)
    by_cubes = {row["C"]: row for row in rows}
    for count in cubes:
        row = by_cubes.get(count)
        if row is None:  # not asked for
            yield Text("")
            continue
        mark = "*" if row is best else " "
        shown = "-" if row["latency_ns"] is None else microseconds(row["latency_ns"])
        yield Text(f"{shown}{mark}", style or "bold" if row is best else "")
    if best is not None:
        yield Text(f"{best['latency_ns'] / best['bounds'][best['bound']]:.2f} {best['bound']}")
        yield Text(percent(best["utilisation"]["dma"]))
        yield Text(percent(best["utilisation"]["gemm"]))
        yield Text(largest_shares(best["critical_path"], COSTS))
