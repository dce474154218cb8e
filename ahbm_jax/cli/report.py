"""`ahbm report`: a sweep's store as one page to look at."""

from __future__ import annotations

from pathlib import Path

import click

from ahbm_jax.cli.files import check_output, whole_file


@click.command()
@click.argument("store", type=Path, metavar="STORE")
@click.option("-o", "--out", required=True, type=Path, metavar="FILE", help="Page to write, .html.")
def report(store: Path, out: Path) -> None:
    """Show a STORE of `ahbm sweep`, done or not, as one HTML page that needs no network.

    Latency and its bounds, a heat map of any two knobs, Pareto fronts, what limits each point, and
    elasticities; `ahbm_jax.pictures` draws the same as PNG and SVG.
    """
    check_output(out, "--out", (".html",))

    from ahbm_jax.report.sweep_view import report_page
    from ahbm_jax.sweeps.store import read

    page = report_page(read(store), title=store.resolve().stem)
    with whole_file(out, "--out") as temporary:
        temporary.write_text(page, encoding="utf-8")
    click.echo(f"in {out}")
