"""The page of `ahbm run`: one point's latency, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ahbm_jax.report.amount import microseconds, percent, significant, times
from ahbm_jax.report.heading import heading
from ahbm_jax.report.layout import plain_table

COSTS = 10  # of the critical path, before the rest is summed up
BAR = 28  # characters of the longest bar
BOUNDS = {
    "memory": "HBM bytes at sustained bandwidth",
    "dma": "HBM bytes, and the issue of each DMA command",
    "gemm": "GEMM sub-tiles",
    "math": "MATH passes",
    "issue": "CPU, issuing commands",
    "link": "the busiest send port",
}
COUNTS = {
    "composite": "composites",
    "dma_reads": "DMA reads",
    "dma_read_bytes": "DMA bytes read",
    "sends": "sends",
    "recvs": "receives",
    "reduce_rounds": "reduce rounds",
}


def run_page(document: dict[str, Any], capacity_bytes: float) -> Iterator[RenderableType]:
    """What `ahbm run` prints, from the document that `--json` writes."""
    yield _head(document)
    for text in document["extrapolated"]:
        yield Text(f"Extrapolated: {text}", style="bold yellow")
    yield _bounds(document)
    yield _critical_path(document)
    yield Text()
    yield _work(document)
    if document["cube_finish_ns"] is not None:
        yield _finish(document["cube_finish_ns"])
    peak = document["scratch_peak_bytes"]
    yield Text(
        f"\nScratch (TCM) of one PE: {peak:,} of {capacity_bytes:,.0f} bytes, "
        f"{percent(peak / capacity_bytes)}"
    )
    if document["energy_pj"] is not None:
        yield Text(f"Energy: {significant(document['energy_pj'] / 1e6)} uJ a group and layer")


def _head(row: dict[str, Any]) -> Text:
    latency, bound = row["latency_ns"], row["bound"]
    return Text.assemble(
        heading(row),
        (f"{microseconds(latency)} us", "bold green"),
        f" a layer ({microseconds(row['all_layers_ns'])} us for {row['layers']} layers), ",
        f"{times(latency / row['bounds'][bound])} its largest bound ({bound})",
    )


def _finish(cubes: Sequence[float]) -> Text:
    first, last = min(cubes), max(cubes)
    if last == first:
        return Text("\nAll CUBEs finish at once")
    return Text(
        f"\nCUBEs finish between {microseconds(first)} us (CUBE {cubes.index(first)}) and "
        f"{microseconds(last)} us (CUBE {cubes.index(last)}), {percent(1 - first / last)} apart"
    )


def _bounds(row: dict[str, Any]) -> Table:
    title = "\nBounds: if nothing else took time"
    table = plain_table(title, "bound", ">us", ">latency / bound", "what it counts")
    for name, bound in sorted(row["bounds"].items(), key=lambda item: -item[1]):
        ratio = times(row["latency_ns"] / bound) if bound else "-"
        style = "bold" if name == row["bound"] else ""
        table.add_row(name, microseconds(bound), ratio, BOUNDS[name], style=style)
    return table


def _critical_path(row: dict[str, Any]) -> Table:
    title = "\nCritical path: adds up to the latency"
    table = plain_table(title, "cost", ">us", ">share", "")
    costs, latency = list(row["critical_path"].items()), row["latency_ns"]
    shown = costs[:COSTS] if len(costs) > COSTS + 1 else costs
    rest = costs[len(shown) :]
    if rest:
        shown = [*shown, (f"{len(rest)} others", sum(x for _, x in rest))]
    most = max(x for _, x in shown)
    for name, spent in shown:
        bar = Text("█" * max(1, round(BAR * spent / most)), "cyan")
        table.add_row(name, microseconds(spent), percent(spent / latency), bar)
    return table


def _work(row: dict[str, Any]) -> Table:
    table = plain_table(None, "all ranks", ">", "busiest rank", ">busy")
    counts = [(label, f"{row['counts'][name]:,}") for name, label in COUNTS.items()]
    busy = [(name, percent(x)) for name, x in row["utilisation"].items()]
    for i in range(max(len(counts), len(busy))):
        left, right = (each[i] if i < len(each) else ("", "") for each in (counts, busy))
        table.add_row(*left, *right)
    return table
