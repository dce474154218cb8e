"""`ahbm run`: one point, explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ahbm_jax.cli.files import check_output, json_option, write_json
from ahbm_jax.cli.point import point_options, settle

SCHEMA = "ahbm-run/1"


@click.command()
@point_options
@json_option
def run(
    kernel: str,
    machine: str | None,
    workload: str | None,
    overrides: tuple[str, ...],
    json_path: Path | None,
    **knobs: Any,
) -> None:
    """Time one point of KERNEL (`decode`, FILE.py:NAME or a case, CASE.yaml); say what bounds it.

    Options replace what a case file says.
    """
    check_output(json_path, "--json")

    from ahbm_jax.bench.row import row
    from ahbm_jax.bench.workers import in_parallel
    from ahbm_jax.cli.console import output
    from ahbm_jax.errors import Infeasible
    from ahbm_jax.report.run_page import run_page
    from ahbm_jax.result import run_many
    from ahbm_jax.validity import outside

    chosen = settle(kernel, machine, workload, overrides, knobs)
    outcome = in_parallel([lambda: run_many(chosen.kernel, [chosen.point])])[0][0]
    if isinstance(outcome, Infeasible):
        raise outcome
    found = row(outcome, chosen.point, kernel=chosen.kernel, variant=outcome.variant)
    model = chosen.workload
    named = {"machine": chosen.machine.name, "workload": model.name, "layers": model.layers}
    document = {"schema": SCHEMA, **named, "overrides": chosen.overrides, **found}
    document["extrapolated"] = outside(chosen.point)
    write_json(json_path, document)
    console = output()
    for part in run_page(document, chosen.machine.scratch.capacity_bytes):
        console.print(part)
