"""`ahbm run`: one point, explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ahbm_jax.cli.json_file import check_json_path, json_option, write_json
from ahbm_jax.cli.parameters import RECTANGLE, TOKENS

SCHEMA = "ahbm-run/1"
KNOBS = (
    click.option("--variant", metavar="V", help="Variant of a shipped kernel."),
    click.option("--context", type=TOKENS, metavar="N", help="Tokens in the KV cache: 8192, 128k."),
    click.option("--c", "C", type=int, metavar="C", help="CUBEs of the group."),
    click.option("--p", "P", type=int, metavar="P", help="PEs of each CUBE."),
    click.option("--tile", type=TOKENS, metavar="N", help="Tokens of a KV tile."),
    click.option("--users", type=int, metavar="N", help="Requests of the group, in turn."),
    click.option("--cache", "cache_tokens", type=TOKENS, metavar="N", help="Tokens of the cache."),
    click.option("--layout", metavar="NAME", help="Placement of tokens on ranks."),
    click.option("--level1", metavar="NAME", help="Reduce over CUBEs: mesh or ring."),
    click.option("--level2", metavar="NAME", help="Reduce over PEs: tree or ring."),
    click.option("--packed", is_flag=True, default=None, help="Send (m, l, O) as one message."),
    click.option("--query-length", type=int, metavar="T", help="Query rows (speculative decode)."),
    click.option("--group-shape", type=RECTANGLE, metavar="RxC", help="Rectangle of the CUBEs."),
)


def knob_options(command: Any) -> Any:
    """The knobs of a run as options; None where the user gave none."""
    for option in reversed(KNOBS):
        command = option(command)
    return command


@click.command()
@click.argument("kernel", metavar="KERNEL")
@knob_options
@click.option("--machine", default="ahbm_4sip", show_default=True, metavar="FILE")
@click.option("--workload", default="llama3_70b", show_default=True, metavar="FILE")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Replace a machine's number."
)
@json_option
def run(
    kernel: str,
    machine: str,
    workload: str,
    overrides: tuple[str, ...],
    json_path: Path | None,
    **knobs: Any,
) -> None:
    """Time one point of KERNEL (`decode`, or FILE.py:NAME) and say what bounds it."""
    check_json_path(json_path)

    from ahbm_jax.bench.row import row
    from ahbm_jax.bench.workers import in_parallel
    from ahbm_jax.cli.console import output
    from ahbm_jax.config.load import apply_overrides, load_machine, load_workload
    from ahbm_jax.errors import Infeasible
    from ahbm_jax.knobs import point
    from ahbm_jax.report.run_page import run_page
    from ahbm_jax.result import run_many

    chosen, model = apply_overrides(load_machine(machine), overrides), load_workload(workload)
    given = {name: value for name, value in knobs.items() if value is not None}
    settled = point(kernel, chosen, model, given)
    outcome = in_parallel([lambda: run_many(kernel, [settled])])[0][0]
    if isinstance(outcome, Infeasible):
        raise outcome
    found = row(outcome, settled, kernel=kernel, variant=outcome.variant)
    named = {"machine": chosen.name, "workload": model.name, "layers": model.layers}
    document = {"schema": SCHEMA, **named, "overrides": list(overrides), **found}
    write_json(json_path, document)
    console = output()
    for part in run_page(document, chosen.scratch.capacity_bytes):
        console.print(part)
