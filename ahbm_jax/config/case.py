"""A case: one design point as a file, and the text of that file."""

from __future__ import annotations

import dataclasses
import io
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StrictInt
from pydantic.dataclasses import dataclass
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from ahbm_jax.config import schema
from ahbm_jax.config.bench import Count
from ahbm_jax.config.schema import Text, rule, whole

_CLOSED = ConfigDict(extra="forbid")
_COUNT = "a whole number 1 to 16777216"
_WHOLE = "a whole number 0 to 16777216"
_UNFOLDED = 2**30  # characters of a line

Whole = Annotated[int, rule(_WHOLE, strict=True, ge=0, le=2**24), BeforeValidator(whole)]
OptionalText = Annotated[Text | None, rule("a non-empty text")]
OptionalCount = Annotated[Count | None, rule(_COUNT)]
OptionalWhole = Annotated[Whole | None, rule(_WHOLE)]
OptionalBool = Annotated[StrictBool | None, rule("true or false")]
Shape = Annotated[
    Annotated[tuple[Count, ...], Field(min_length=2, max_length=2)] | None,
    rule("rows and columns, two whole numbers such as [2, 4]"),
]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Settings = Annotated[
    dict[str, StrictBool | StrictInt | Finite],
    rule("dotted machine keys, each with a finite number or a switch"),
]


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class CaseKnobs:
    """The knobs of `ahbm_jax.knobs.Knobs`, each None where a case leaves it to its default."""

    variant: OptionalText = None
    context: OptionalWhole = None
    C: OptionalCount = None
    P: OptionalCount = None
    tile: OptionalCount = None
    cache_tokens: OptionalCount = None
    start_cube: OptionalWhole = None
    start_pe: OptionalWhole = None
    users: OptionalCount = None
    sequences: OptionalCount = None
    query_length: OptionalCount = None
    query_start: OptionalWhole = None
    query_tile: OptionalCount = None
    window: OptionalCount = None
    layout: OptionalText = None
    level2: OptionalText = None
    level1: OptionalText = None
    packed: OptionalBool = None
    ring_chunk: OptionalCount = None
    ring_feed: OptionalText = None
    sinks: OptionalBool = None
    softcap: OptionalBool = None
    group_shape: Shape = None

    def given(self) -> dict[str, Any]:
        """The knobs that the case sets."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Case:
    """One design point; `machine` and `workload` are what `load_machine` and `load_workload` take.

    Args:
        kernel: the kernel to run, by name or as `FILE.py:NAME`.
        machine: name or path of the machine.
        workload: name or path of the workload.
        knobs: what the run sets of its knobs.
        set: numbers and switches that replace the machine's, by dotted key.
    """

    kernel: Text
    machine: Text
    workload: Text
    knobs: CaseKnobs = Field(default_factory=CaseKnobs)
    set: Settings = Field(default_factory=dict)

    def overrides(self) -> list[str]:
        """`set` as the `KEY=VALUE` texts that `apply_overrides` takes."""
        return [f"{key}={_plain(value)}" for key, value in self.set.items()]


def case_text(case: Case) -> str:
    """A case as YAML that `load_case` reads back as the same case.

    Paths are written as they are; those that are relative count from the folder of the file.
    """
    data: dict[str, Any] = {"schema": schema.CASE}
    data |= {name: _exact(getattr(case, name)) for name in ("kernel", "machine", "workload")}
    if knobs := case.knobs.given():
        data["knobs"] = {name: _exact(value) for name, value in knobs.items()}
    if case.set:
        data["set"] = case.set
    writer = YAML()
    writer.width = _UNFOLDED
    stream = io.StringIO()
    writer.dump(data, stream)
    return stream.getvalue()


def _exact(value: Any) -> Any:
    """A value as ruamel writes it exactly: in quotes if it has line breaks and their like."""
    if isinstance(value, tuple):
        return list(value)
    unprintable = isinstance(value, str) and not value.isprintable()
    return DoubleQuotedScalarString(value) if unprintable else value


def _plain(value: bool | int | float) -> str:
    """A number or switch in YAML's words, with all its digits."""
    return str(value).lower() if isinstance(value, bool) else repr(value)
