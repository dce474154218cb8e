"""The design point that a command is about: its options, and a case file with them over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ahbm_jax.cli.parameters import RECTANGLE, TOKENS

if TYPE_CHECKING:
    from ahbm_jax.knobs import Point
    from ahbm_jax.machine.params import Machine, Workload

MACHINE, WORKLOAD = "ahbm_4sip", "llama3_70b"  # where neither an option nor a case names one
CASE_SUFFIXES = (".yaml", ".yml")
GROUP = {"C", "group_shape"}  # two ways to say one thing

OPTIONS = (
    click.argument("kernel", metavar="KERNEL"),
    click.option("--variant", metavar="V", help="Variant of a shipped kernel."),
    click.option("--context", type=TOKENS, metavar="N", help="Tokens in the KV cache: 8192, 128k."),
    click.option("--c", "C", type=int, metavar="C", help="CUBEs of the group."),
    click.option("--p", "P", type=int, metavar="P", help="PEs of each CUBE."),
    click.option("--tile", type=TOKENS, metavar="N", help="Tokens of a KV tile."),
    click.option("--users", type=int, metavar="N", help="Requests of the group, in turn."),
    click.option("--sequences", type=int, metavar="N", help="Requests of a device's units."),
    click.option("--cache", "cache_tokens", type=TOKENS, metavar="N", help="Tokens of the cache."),
    click.option("--layout", metavar="NAME", help="Placement of tokens on ranks."),
    click.option("--level1", metavar="NAME", help="Reduce over CUBEs: mesh or ring."),
    click.option("--level2", metavar="NAME", help="Reduce over PEs: tree or ring."),
    click.option("--packed/--no-packed", default=None, help="Send (m, l, O) as one message."),
    click.option("--query-length", type=TOKENS, metavar="T", help="Query tokens: of a chunk, say."),
    click.option("--query-start", type=TOKENS, metavar="N", help="Position of the first of them."),
    click.option("--query-tile", type=TOKENS, metavar="N", help="Query tokens of a prefill block."),
    click.option("--ring-chunk", type=TOKENS, metavar="N", help="KV tokens of a CUBE in a chunk."),
    click.option("--ring-feed", metavar="NAME", help="How a chunk gets to PEs: gather or lanes."),
    click.option("--window", type=TOKENS, metavar="N", help="Sliding window: tokens a row sees."),
    click.option("--sinks/--no-sinks", default=None, help="A sink (a logit) for each head."),
    click.option("--softcap/--no-softcap", default=None, help="Scores go through a soft-cap."),
    click.option("--group-shape", type=RECTANGLE, metavar="RxC", help="Rectangle of the CUBEs."),
    click.option("--machine", metavar="FILE", help=f"[default: {MACHINE}, or the case's]"),
    click.option("--workload", metavar="FILE", help=f"[default: {WORKLOAD}, or the case's]"),
    click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Replace a machine's number."
    ),
)


class Settled(NamedTuple):
    """What a command runs; `overrides` are the `KEY=VALUE` texts that changed the machine."""

    kernel: str
    point: Point
    machine: Machine
    workload: Workload
    overrides: list[str]


def point_options(command: Any) -> Any:
    """The arguments of a command that takes one design point, for `settle`."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def settle(
    kernel: str,
    machine: str | None,
    workload: str | None,
    overrides: Sequence[str],
    knobs: dict[str, Any],
) -> Settled:
    """The point that the arguments of a command mean, after those of a case file.

    Args:
      kernel: name of a kernel, `FILE.py:NAME`, or the path of a case file (.yaml or .yml).
      machine: name or path; None for that of the case or the default one.
      workload: likewise.
      overrides: `KEY=VALUE` texts, which come after those of the case.
      knobs: each None where it was not given.

    Raises:
      ConfigError: with every problem of a file or of the overrides.
      UsageError: a knob or name that the kernel, machine or model refuses.
    """
    from ahbm_jax.config.load import apply_overrides, load_case, load_machine, load_workload
    from ahbm_jax.knobs import point

    given = {name: value for name, value in knobs.items() if value is not None}
    if kernel.endswith(CASE_SUFFIXES):
        case = load_case(kernel)
        kernel = case.kernel
        machine = case.machine if machine is None else machine
        workload = case.workload if workload is None else workload
        overrides = [*case.overrides(), *overrides]
        given = _over(case.knobs.given(), given)
    model = load_workload(WORKLOAD if workload is None else workload)
    chosen = apply_overrides(load_machine(MACHINE if machine is None else machine), overrides)
    settled = point(kernel, chosen, model, given)
    return Settled(kernel, settled, chosen, model, list(overrides))


def _over(under: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The knobs of a case with those of the command line over them."""
    replaced = GROUP if GROUP & set(given) else set()
    return {name: value for name, value in under.items() if name not in replaced} | given
