"""`ahbm explain`: why one point takes as long as it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ahbm_jax.cli.files import check_output, json_option, write_json
from ahbm_jax.cli.point import point_options, settle

SCHEMA = "ahbm-explain/1"
STEPS = 24


@click.command()
@point_options
@click.option(
    "--steps",
    type=click.IntRange(min=0),
    default=STEPS,
    show_default=True,
    metavar="N",
    help="Steps of the critical path to print: the first and the last N / 2.",
)
@json_option
def explain(
    kernel: str,
    machine: str | None,
    workload: str | None,
    overrides: tuple[str, ...],
    steps: int,
    json_path: Path | None,
    **knobs: Any,
) -> None:
    """Say why one point of KERNEL (as in `run`) takes as long as it takes.

    Its critical path, command by command; the time a tile of each loop in its steady state; what a
    faster engine would gain; the slack of each engine.
    """
    check_output(json_path, "--json")

    from ahbm_jax.bench.workers import in_parallel
    from ahbm_jax.cli.console import output, progress
    from ahbm_jax.explanation import explain_point
    from ahbm_jax.report.explain_page import explain_page

    chosen = settle(kernel, machine, workload, overrides, knobs)
    with progress() as bar:
        bar.add_task("explain", total=None)
        explanation = in_parallel([lambda: explain_point(chosen.kernel, chosen.point)])[0]
    named = {"machine": chosen.machine.name, "workload": chosen.workload.name}
    named |= {"overrides": chosen.overrides, **chosen.point.request()}
    document = {"schema": SCHEMA, **named, **explanation.row()}
    write_json(json_path, document)
    console = output()
    for part in explain_page(document, steps):
        console.print(part)
