"""The page of `ahbm explain`: why one point takes as long as it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ahbm_jax.report.amount import largest_shares, microseconds, percent, significant
from ahbm_jax.report.heading import heading
from ahbm_jax.report.layout import plain_table
from ahbm_jax.report.path_table import path_table

Row = dict[str, Any]
BAR = 14  # characters of the longest bar
COSTS = 3  # named for each resource
SAME = 1e-9  # of the latency: how far two sums of the same times may differ
SMALL = 0.01  # of a tile: what takes less is summed up, or left out
ALONE = 0.999  # of a tile: nothing but the resource is waited for
HALVED = {
    "cpu": "issue.*",
    "dma": "dma.issue, hbm.byte",
    "gemm": "gemm.*",
    "math": "math.*",
    "port": "*_link.overhead, *_link.byte",
    "latency": "start-up, HBM, scheduler, hops",
}
SLACK = (
    "Slack: how much later a command could end, all else as it is, without a longer latency; 0 is "
    "on the critical path. An engine that idles can be critical whenever it works."
)
FASTER = (
    "All costs of one resource halved. Predicted: the critical path stays where it is, at best. "
    "Exact: evaluated anew; where it is more than 1% later, the path now goes elsewhere."
)


def explain_page(document: Row, steps: int) -> Iterator[RenderableType]:
    """What `ahbm explain` prints, from the document that `--json` writes; `steps` of the path."""
    yield _head(document)
    yield _resources(document)
    if document["ties"]:
        yield _ties(document)
    for number, loop in enumerate(document["loops"], start=1):
        yield from _loop(number, loop, document)
    yield _faster(document)
    yield Text(FASTER, "dim")
    yield _engines(document)
    yield Text(SLACK, "dim")
    yield path_table(document, steps)


def _head(row: Row) -> Text:
    return Text.assemble(
        heading(row),
        (f"{microseconds(row['latency_ns'])} us", "bold green"),
        " a layer, and why",
    )


def _resources(row: Row) -> Table:
    title = "\nCritical path by resource: adds up to the latency"
    table = plain_table(title, "resource", ">us", ">share", "", "of it, %")
    totals = {name: sum(costs.values()) for name, costs in row["spent_ns"].items()}
    for name, total in totals.items():
        bar = Text("█" * round(BAR * total / max(totals.values())), "cyan")
        costs = largest_shares(row["spent_ns"][name], COSTS)
        table.add_row(
            name, microseconds(total), percent(total / row["latency_ns"]), bar, costs or "-"
        )
    return table


def _ties(row: Row) -> Text:
    if abs(row["timing_ns"] - row["latency_ns"]) > SAME * row["latency_ns"]:
        timed = microseconds(row["timing_ns"])
        return Text(
            f"The timing interpreter says {timed} us. Both follow the timing contract: one of them "
            "is wrong, and so is what follows",
            "bold red",
        )
    most = sorted(row["ties"].items(), key=lambda item: -abs(item[1]))[:COSTS]
    moved = ", ".join(f"{cost} {ns:+,.0f} ns" for cost, ns in most)
    return Text(
        "Several paths are equally long. The derivative of the latency follows another than this: "
        f"this one has {moved} against it. Only what shortens all of them helps.",
        "yellow",
    )


def _loop(number: int, loop: Row, row: Row) -> Iterator[RenderableType]:
    cube, pe = loop["rank"]
    name = "Loop" if len(row["loops"]) == 1 else f"Loop {number}"
    yield Text(f"\n{name}: {_tiles(loop)} on CUBE {cube}, PE {pe}", "bold")
    tile = f"{microseconds(loop['tile_ns'])} us a tile"
    if loop["steady"]:
        equal = loop["equal_tiles"]
        share = percent(equal * loop["tile_ns"] * row["users"] / row["latency_ns"])
        yield Text.assemble(
            (tile, "bold green"),
            f", steady {_steady_after(loop)}; {equal:,} of them are {share} of the latency",
        )
    else:
        yield Text(f"Too short for a steady state, which is there {_steady_after(loop)}", "yellow")
        yield Text(f"In a long loop: {tile}")
    yield Text(_bound(loop))
    if loop["commands"]:
        yield _commands(loop)
        if _another(loop):
            yield Text("Another chain is as long: the shares above are of that one", "yellow")
    elif loop["tiles"] is None:
        yield Text("Its commands are not shown: loops are nested, or not on every rank", "dim")
    elif loop["steady"]:
        yield Text("No path of the simulation holds a whole period of it", "dim")


def _tiles(loop: Row) -> str:
    """How many tiles, and how many of them are equal."""
    tiles, equal = loop["tiles"], loop["equal_tiles"]
    alike = f", the first {equal:,} full and alike," if equal else ""
    if tiles is None:
        return f"the first {equal:,} tiles, full and alike,"
    return f"{tiles:,} tile{'s' if tiles != 1 else ''}{alike}"


def _steady_after(loop: Row) -> str:
    if loop["transient_tiles"] is None:
        return "only after hundreds of tiles"
    repeats = f", repeating every {loop['period']}" if loop["period"] > 1 else ""
    return f"from tile {loop['transient_tiles']} on{repeats}"


def _bound(loop: Row) -> str:
    tile, bound = loop["tile_ns"], loop["bound"]
    shares = {name: ns / tile for name, ns in loop["spent_ns"].items() if ns > 0}
    free = loop["free_ns"][bound]
    if shares[bound] > ALONE:
        why = f"Bound by {bound} alone."
    else:
        shown = {name: share for name, share in shares.items() if share >= SMALL}
        parts = sorted(shown.items(), key=lambda item: -item[1])
        listed = ", ".join(f"{name} {percent(share)}" for name, share in parts)
        why = f"Bound by a chain in which they wait for each other: {listed}."
    left = f"{microseconds(free)} us a tile, most of it {loop['next_bound']}"
    return f"{why}\nIf {bound} took no time: {left}."


def _another(loop: Row) -> bool:
    """Whether the chain of the commands is not that of the shares by resource."""
    left = dict(loop["spent_ns"])
    for command in loop["commands"]:
        left[command["resource"]] -= command["tile_ns"]
    return max(map(abs, left.values())) > SMALL * loop["tile_ns"]


def _commands(loop: Row) -> Table:
    title = "The chain, a tile"
    table = plain_table(title, "command", ">count", "on", ">ns", ">share")
    shown = [c for c in loop["commands"] if c["tile_ns"] >= SMALL * loop["tile_ns"]]
    rest = [c for c in loop["commands"] if c not in shown]
    for c in shown:
        share = percent(c["tile_ns"] / loop["tile_ns"])
        name = f"{c['op']} {c['tensor']}".strip()
        table.add_row(name, f"{c['count']:g}", c["resource"], significant(c["tile_ns"]), share)
    if rest:
        total = sum(c["tile_ns"] for c in rest)
        count = f"{sum(c['count'] for c in rest):g}"
        share = percent(total / loop["tile_ns"])
        table.add_row("others", count, "", significant(total), share, style="dim")
    return table


def _faster(row: Row) -> Table:
    headings = ("resource", ">predicted us", ">exact us", ">gain", "taken over by", "costs halved")
    table = plain_table("\nTwice as fast", *headings)
    gains = sorted(row["faster"], key=lambda each: each["exact_ns"])
    for each in gains:
        table.add_row(
            each["resource"],
            microseconds(each["predicted_ns"]),
            microseconds(each["exact_ns"]),
            percent(1 - each["exact_ns"] / row["latency_ns"]),
            each["taken_over_by"] or "",
            HALVED[each["resource"]],
            style="" if each["taken_over_by"] is None else "yellow",
        )
    return table


def _engines(row: Row) -> Table:
    headings = ("engine", ">busy us", ">busy", ">least slack ns", ">near-critical", ">on ranks")
    table = plain_table("\nEngines: busiest rank, and the slack over all ranks", *headings)
    for each in row["engines"]:
        slack = each["least_slack_ns"]
        near = f"{each['near_commands']:,} of {each['commands']:,} commands"
        table.add_row(
            each["engine"],
            microseconds(each["busy_ns"]),
            percent(each["busy_share"]),
            significant(slack) if each["commands"] else "-",
            near,
            str(each["near_ranks"]),
        )
    return table
