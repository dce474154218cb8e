"""`ahbm fit`: a machine's numbers from measurements."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from ahbm_jax.cli.files import check_output, json_option, write_json
from ahbm_jax.errors import UsageError


@click.command()
@click.argument("spec", metavar="NAME|FILE")
@click.option("--data", metavar="FILE|FOLDER", help="Measurements; else the folder AHBM_DATA.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Write machines and report."
)
@click.option("--plan", is_flag=True, help="Propose the measurements that would tell most.")
@json_option
def fit(spec: str, data: str | None, out: Path | None, plan: bool, json_path: Path | None) -> None:
    """Find the numbers of a machine that explain measurements, and say how sure they are.

    The fit file names the machine, what was measured and what is free; docs/calibration.md says
    how. `--out` gets the fitted machines, which other commands take, and a report.
    """
    check_output(json_path, "--json")

    from ahbm_jax.cli.console import output, progress
    from ahbm_jax.report.fit_page import fit_page

    calibration = _ours()
    with progress() as bar:
        task = bar.add_task("searches", total=None)
        result = calibration.fit(
            spec,
            data,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    document = result.document()
    if plan:
        document["plan"] = importlib.import_module("calibration.proposal").propose(result)
    if out is not None:
        document["files"] = [
            str(path) for path in importlib.import_module("calibration.report").write(result, out)
        ]
    write_json(json_path, document)
    console = output()
    for part in fit_page(document):
        console.print(part)


def _ours() -> Any:
    """Our package `calibration`, rather than another distribution's."""
    module = importlib.import_module("calibration")
    if not hasattr(module, "fit"):
        raise UsageError(
            f"`calibration` at {getattr(module, '__file__', None)} is another distribution's "
            "package; uninstall that, or install ahbm_jax into an environment without it"
        )
    return module
