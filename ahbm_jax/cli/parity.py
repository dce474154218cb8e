"""`ahbm parity`: whether a kernel's numbers are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ahbm_jax.cli.files import check_output, json_option, write_json
from ahbm_jax.cli.parameters import GRID, RECTANGLE, TOKENS
from ahbm_jax.errors import UsageError

SCHEMA = "ahbm-parity/1"
DEFAULTS = {"seed": 0, "count": 20}
CASES = {
    "seed": {"type": click.IntRange(min=0), "metavar": "N", "help": "Seed of the inputs."},
    "count": {"type": click.IntRange(min=0), "metavar": "N", "help": "Random cases."},
}
FLAG = {"is_flag": True, "default": None}
SPREAD = {
    "grid": {"type": GRID, "metavar": "C,P", "help": "CUBEs and PEs of each."},
    "tile": {"type": TOKENS, "metavar": "N", "help": "Tokens of a KV tile."},
    "layout": {"metavar": "NAME", "help": "Placement of tokens on ranks."},
    "level1": {"metavar": "NAME", "help": "Reduce over CUBEs: mesh or ring."},
    "level2": {"metavar": "NAME", "help": "Reduce over PEs: tree or ring."},
    "packed": {**FLAG, "help": "Send (m, l, O) as one message."},
    "exact_p": {**FLAG, "help": "Keep P in float32 for P V."},
    "group_shape": {"type": RECTANGLE, "metavar": "RxC", "help": "Rectangle of the CUBEs."},
}
INPUT = {
    "kv_len": {"type": TOKENS, "metavar": "N", "help": "Rows of k and v in use."},
    "storage": {"metavar": "TYPE", "help": "Cast q, k and v, for example to bfloat16."},
}
MODEL = {
    "text": {"type": Path, "metavar": "FILE", "help": "Text to read (UTF-8)."},
    "steps": {"type": click.IntRange(min=0), "metavar": "N", "help": "Tokens to write after it."},
    "machine": {"metavar": "FILE", "help": "Machine of the times beside the tokens."},
}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _options(command: Any) -> Any:
    for name, settings in reversed((CASES | SPREAD | INPUT | MODEL).items()):
        command = click.option(_flag(name), name, **settings)(command)
    return command


@click.command()
@click.option("--kernel", default="decode", show_default=True, help="Name, or FILE.py:NAME.")
@click.option("--variant", metavar="V", help="Variant of a shipped kernel.")
@click.option("--input", "input_path", type=Path, metavar="FILE.npz", help="Your q, k and v.")
@click.option("--model", metavar="NAME", help="A real model on real text: smollm2.")
@_options
@json_option
def parity(
    kernel: str,
    variant: str | None,
    input_path: Path | None,
    model: str | None,
    json_path: Path | None,
    **options: Any,
) -> int:
    """Check a kernel's numbers against attention in float64.

    By default on inputs that have broken other kernels and on random ones (--seed, --count); with
    --input on your own q, k and v, with --model in a language model. Exit code 1 if any fails.
    """
    check_output(json_path, "--json")
    given = {name: value for name, value in options.items() if value is not None}
    if input_path is not None and model is not None:
        raise UsageError("`--input` and `--model` are both given; leave one out")
    named = {"kernel": kernel, "variant": variant}
    if model is not None:
        _only(given, "--model", SPREAD, MODEL)
        from ahbm_jax.cli.model import check_model

        document = check_model(model, given, **named)
    elif input_path is not None:
        _only(given, "--input", SPREAD, INPUT)
        from ahbm_jax.cli.cases import check_file

        document = check_file(input_path, given, **named)
    else:
        _only(given, "the cases", CASES)
        from ahbm_jax.cli.cases import check_cases

        document = check_cases(**DEFAULTS | given, **named)
    write_json(json_path, {"schema": SCHEMA, **document})
    return 0 if document["passed"] else 1


def _only(given: dict[str, Any], what: str, *allowed: dict[str, Any]) -> None:
    """Refuse options that would have no effect."""
    names = [name for group in allowed for name in group]
    if unknown := [name for name in given if name not in names]:
        raise UsageError(
            f"`{'`, `'.join(map(_flag, unknown))}` has no effect on {what}; allowed there: "
            f"{', '.join(map(_flag, names))}"
        )
