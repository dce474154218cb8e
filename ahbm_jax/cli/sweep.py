"""`ahbm sweep`: a design space into a store."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import click

from ahbm_jax.cli.files import check_output, json_option, write_json

SCHEMA = "ahbm-sweep-run/1"


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option("--out", required=True, type=Path, metavar="STORE", help="Zarr store to write.")
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler whose workers evaluate.")
@json_option
def sweep(spec: str, out: Path, scheduler: str | None, json_path: Path | None) -> None:
    """Evaluate every point of SPEC (a file or a shipped sweep) into a store.

    The same command goes on where an earlier one was stopped; finished chunks stay as they are.
    """
    check_output(json_path, "--json")
    use_all_cores()

    from ahbm_jax.cli.console import output, rates
    from ahbm_jax.report.sweep_page import sweep_page
    from ahbm_jax.sweeps import sweep_to_store
    from ahbm_jax.sweeps.spec import load_request

    request = load_request(spec)
    with rates() as bar:
        task = bar.add_task("sweep", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        try:
            summary = sweep_to_store(request, out, scheduler=scheduler, progress=progress)
        except KeyboardInterrupt:
            click.echo(f"what is finished is in {out}; the same command goes on there", err=True)
            raise
    document = {"schema": SCHEMA, "spec": spec, "store": str(out), **dataclasses.asdict(summary)}
    write_json(json_path, document)
    console = output()
    for part in sweep_page(document):
        console.print(part)


def use_all_cores() -> None:
    """Have JAX see a device for each core, unless the environment says what it sees.

    One device runs a chunk of points on one core. It must come before the first array.
    """
    import jax

    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
