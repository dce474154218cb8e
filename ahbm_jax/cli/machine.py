"""`ahbm machine`: what a machine is made of."""

from __future__ import annotations

import click


@click.group()
def machine() -> None:
    """Look at machine files."""


@machine.command()
@click.argument("file")
def show(file: str) -> None:
    """Every number of machine FILE (or a shipped name) with its unit, bounds and source."""
    from ahbm_jax.cli.console import output
    from ahbm_jax.config.show import machine_table

    output().print(machine_table(file))
