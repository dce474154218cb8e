"""A bench: which kernels, variants, shapes and contexts to run on which machine and model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StrictBool,
    StrictInt,
    WrapValidator,
)
from pydantic.dataclasses import dataclass

from ahbm_jax.config.schema import Text, rule, whole

_CLOSED = ConfigDict(extra="forbid")
_COUNT = "a whole number 1 to 16777216"

Count = Annotated[int, rule(_COUNT, strict=True, ge=1, le=2**24), BeforeValidator(whole)]
Counts = Annotated[tuple[Count, ...], rule(f"a list of one or more: {_COUNT}", min_length=1)]
Texts = Annotated[tuple[Text, ...], rule("a list of one or more names", min_length=1)]
Tile = Annotated[
    Count | Literal["one-shot"],
    WrapValidator(lambda value, check: value if value == "one-shot" else check(value)),
    rule(f"{_COUNT}, or one-shot"),
]
Knobs = Annotated[
    dict[str, StrictBool | StrictInt | FiniteFloat | str],
    rule("knob names, each with a finite number, a switch or a text"),
]


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Panel:
    """A kernel in a panel of a bench: every variant at every C and context, the rest held.

    Args:
        name: what the panel is called in results; kernels of one name are compared.
        kernel: the kernel to run, by name or as `FILE.py:NAME`.
        users: requests that share one CUBE Group.
        variants: variants of the kernel.
        cubes: CUBEs of a group (C).
        pes: PEs of a CUBE (P).
        tile_tokens: tokens of a KV tile, or "one-shot".
        contexts_tokens: context lengths.
        critical_paths: whether to find them; slow for kernels of very many messages.
        layout: placement of tokens on ranks; None for the kernel's own.
        knobs: further knobs of the kernel.
    """

    name: Text
    kernel: Text
    users: Count
    variants: Texts
    cubes: Counts
    pes: Count
    tile_tokens: Tile
    contexts_tokens: Counts
    critical_paths: Annotated[StrictBool, rule("true or false")] = True
    layout: Annotated[Text | None, rule("a non-empty text")] = None
    knobs: Knobs = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Parity:
    """Where the values of a bench are checked: at `context_tokens`."""

    context_tokens: Count


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Bench:
    """A bench file; `machine` and `workload` are what `load_machine` and `load_workload` take."""

    name: Text
    machine: Text
    workload: Text
    panels: Annotated[tuple[Panel, ...], rule("a list of one or more panels", min_length=1)]
    parity: Parity
