"""`ahbm tune`: the best point for each context, or for a mix of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from ahbm_jax.cli.files import check_output, json_option, write_json
from ahbm_jax.cli.parameters import TOKENS
from ahbm_jax.cli.point import MACHINE, WORKLOAD
from ahbm_jax.cli.sweep import use_all_cores
from ahbm_jax.errors import UsageError

SCHEMA = "ahbm-tune/1"


@click.command()
@click.argument("kernel", metavar="KERNEL")
@click.option(
    "--context",
    "contexts",
    multiple=True,
    required=True,
    metavar="N[=WEIGHT]",
    help="Context to tune for, again for each; weights make one point for their mix.",
)
@click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="KNOB=V,V,...",
    help="Values of a knob or machine key, again for each. [default: all choices, C, P and tiles]",
)
@click.option("--hold", multiple=True, metavar="KNOB=V", help="A knob that does not vary.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=X",
    help="Most that energy_pj or scratch_peak_bytes may be.",
)
@click.option("--machine", default=MACHINE, show_default=True, metavar="FILE")
@click.option("--workload", default=WORKLOAD, show_default=True, metavar="FILE")
@json_option
def tune(
    kernel: str,
    contexts: tuple[str, ...],
    axes: tuple[str, ...],
    hold: tuple[str, ...],
    limits: tuple[str, ...],
    machine: str,
    workload: str,
    json_path: Path | None,
) -> None:
    """Find the variant and knobs of KERNEL with the least latency at each context."""
    check_output(json_path, "--json")
    use_all_cores()

    from ahbm_jax import search
    from ahbm_jax.cli.console import output
    from ahbm_jax.config.load import load_machine, load_workload
    from ahbm_jax.report.tune_table import tune_table

    loaded, model = load_machine(machine), load_workload(workload)
    given = {n: [_value(v) for v in x.split(",")] for n, x in _pairs("--axis", axes).items()}
    held = {n: _value(x) for n, x in _pairs("--hold", hold).items()}
    most = {n: _number(n, x) for n, x in _pairs("--limit", limits).items()}
    found = search.tune(
        kernel, loaded, model, _contexts(contexts), given or None, limits=most, **held
    )
    rows = [dataclasses.asdict(best) for best in found]
    document = {"schema": SCHEMA, "kernel": kernel, "machine": loaded.name, "workload": model.name}
    write_json(json_path, {**document, "held": held, "limits": most, "best": rows})
    console = output()
    for part in tune_table(rows):
        console.print(part)


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise UsageError(f"`{option}` is {text!r}; allowed: NAME=VALUE")
    return {name.strip(): value for name, _, value in (text.partition("=") for text in texts)}


def _value(text: str) -> Any:
    from ahbm_jax.config.document import scalar

    return scalar(text)


def _number(name: str, text: str) -> float:
    value = _value(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"`{name}` is {text!r}; a number is allowed")
    return float(value)


def _contexts(texts: tuple[str, ...]) -> list[int] | dict[int, float]:
    """Contexts, with weights if any has one."""
    parts = [text.partition("=") for text in texts]
    tokens = [TOKENS.convert(part[0], None, None) for part in parts]
    if not any(equals for _, equals, _ in parts):
        return tokens
    weights = [_number("--context", weight or "1") for *_, weight in parts]
    return dict(zip(tokens, weights, strict=True))
