"""The page of `ahbm simulate`: a simulation's latency, and what its last rank waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ahbm_jax.report.amount import microseconds, percent, significant
from ahbm_jax.report.heading import heading
from ahbm_jax.report.layout import plain_table

BAR = 28  # characters of the longest bar
LINKS = {
    "static": "static shares, as in the timing contract",
    "first_come": "one message at a time, first come, first served",
}
CPU = {
    "issue": "issues commands",
    "message": "held by a message",
    "math": "held by MATH",
    "after": "is done; engines are not",
}
ROOM = {"composite queue": "a full composite queue", "scratch scope": "scratch in use"}
FILES = {
    "log": "one row a command",
    "trace": "open it at ui.perfetto.dev",
    "plot": "picture of the first tiles",
    "json": "this page",
}


def simulate_page(document: dict[str, Any]) -> Iterator[RenderableType]:
    """What `ahbm simulate` prints, from the document that `--json` writes."""
    yield _head(document)
    yield _against_timing(document)
    if document["ranks"] > 1:
        yield _finish(document)
    last = _rank(document["last_rank"])
    yield Text(f"\nCPU of the last rank, {last}: adds up to its finish", "bold")
    yield _cpu(document)
    yield Text("\nBusiest of each kind of worker", "bold")
    yield _busiest(document)
    yield Text(
        f"\n{document['commands']:,} commands of {_count(document['ranks'], 'rank')}, simulated in "
        f"{document['simulation_s']:.1f} s"
    )
    for name, path in document["files"].items():
        yield Text(f"Written: {path} ({FILES[name]})", no_wrap=True, overflow="ignore")


def _head(document: dict[str, Any]) -> Text:
    return Text.assemble(
        heading(document),
        (f"{microseconds(document['latency_ns'])} us", "bold green"),
        f" a layer ({microseconds(document['all_layers_ns'])} us for {document['layers']} layers)",
        ", simulated command by command\n",
        f"Links between neighbours: {LINKS[document['arbitration']]}",
    )


def _against_timing(document: dict[str, Any]) -> Text:
    """How far the timing interpreter is off, and what that means."""
    timed, difference = document["timing_latency_ns"], document["relative_difference"]
    said = f"Timing interpreter: {microseconds(timed)} us, "
    contended = document["arbitration"] == "first_come"
    if document["same"]:
        return Text(
            f"{said}the same"
            + (": contention for links does not show in the latency" if contended else "")
        )
    way = "longer" if difference > 0 else "shorter"
    said += f"the simulation takes {significant(100 * abs(difference), 3)}% {way}"
    if contended:
        return Text(f"{said}: the model's error for contention")
    return Text(f"{said}. Both follow the timing contract: one of them is wrong", "bold red")


def _finish(document: dict[str, Any]) -> Text:
    finish, last = document["finish_ns"], document["last_rank"]
    return Text(
        f"Ranks are done after {microseconds(finish['first'])} to {microseconds(finish['last'])} "
        f"us (median {microseconds(finish['median'])}); the last is {_rank(last)}"
    )


def _cpu(document: dict[str, Any]) -> Table:
    table = plain_table(None, "the CPU", ">us", ">share", "")
    spent, whole = document["last_cpu_ns"], document["finish_ns"]["last"]
    most = max(spent.values())
    for name, ns in spent.items():
        if ns > 0:
            bar = Text("█" * max(1, round(BAR * ns / most)), "cyan")
            table.add_row(_doing(name), microseconds(ns), percent(ns / whole), bar)
    return table


def _doing(name: str) -> str:
    """What a CPU does in one of the times of `last_cpu_ns`."""
    room, _, holder = name.partition(": ")
    return CPU.get(name, f"held by {ROOM[room]} ({holder})" if holder else f"held by {name}")


def _busiest(document: dict[str, Any]) -> Table:
    table = plain_table(None, "worker", "of", ">us", ">busy")
    for each in sorted(document["busiest"], key=lambda each: -each["busy_ns"]):
        kind, _, port = each["worker"].partition(".")
        name = f"{kind} {port.replace('.', ' ').upper()}" if port else kind.upper()
        table.add_row(
            name, _rank(each), microseconds(each["busy_ns"]), percent(each["utilisation"])
        )
    return table


def _rank(place: dict[str, Any]) -> str:
    return f"CUBE {place['cube']} PE {place['pe']}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
