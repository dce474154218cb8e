"""`ahbm bench`: the panels of a bench file."""

from __future__ import annotations

from pathlib import Path

import click

from ahbm_jax.cli.files import check_output, json_option, write_json
from ahbm_jax.errors import UsageError


@click.command()
@click.argument("bench", metavar="NAME|FILE")
@click.option("--machine", metavar="FILE", help="Machine instead of the bench's own.")
@click.option(
    "--device", default="all", show_default=True, metavar="0,1|all", help="SIPs to look at."
)
@json_option
def bench(bench: str, machine: str | None, device: str, json_path: Path | None) -> int:
    """Run every variant, group size and context of a bench, and check the kernels' numbers.

    Exit code 1 if a kernel's numbers are not right.
    """
    check_output(json_path, "--json")
    devices = _devices(device)

    from ahbm_jax.bench import run_bench
    from ahbm_jax.cli.console import output, progress
    from ahbm_jax.report.bench_table import bench_tables

    with progress() as bar:
        task = bar.add_task("bench", total=None)
        document = run_bench(
            bench,
            machine=machine,
            devices=devices,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    write_json(json_path, document)
    console = output()
    for part in bench_tables(document):
        console.print(part)
    return 0 if all(row["parity"]["passed"] for row in document["rows"]) else 1


def _devices(text: str) -> list[int] | None:
    """SIP numbers, or None for all."""
    if text.strip().lower() == "all":
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"`--device` is {text!r}; allowed: SIP numbers such as 0,1, or all")
    return list(dict.fromkeys(int(part) for part in parts))
