"""`ahbm ops`: the operations that a kernel may use, and what each interpreter makes of them."""

from __future__ import annotations

import click


@click.command()
def ops() -> None:
    """The closed set of `tl` operations, and each interpreter's rule for every one."""
    from ahbm_jax.cli.console import output
    from ahbm_jax.interpret import record, timing_rules, values
    from ahbm_jax.report.ops_table import op_table, rule_table

    rules = {"values": values.RULES, "timing": timing_rules.RULES, "record": record.RULES}
    console = output()
    console.print(op_table())
    console.print(rule_table(rules))
