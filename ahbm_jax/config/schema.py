"""Pydantic models of the machine and workload files, derived from `ahbm_jax.machine.params`.

The dataclasses there hold the keys, bounds and descriptions; nothing is listed a second time here.
In a file a number or a switch is `{value: ..., source: ...}`; a name is plain.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    create_model,
)

MACHINE = "ahbm-machine/1"
WORKLOAD = "ahbm-workload/1"
BENCH = "ahbm-bench-spec/1"
CASE = "ahbm-case/1"
SWEEP = "ahbm-sweep/1"
FIT = "ahbm-fit/1"

T = TypeVar("T")


def whole(value: Any) -> Any:
    """A float without a fraction as an integer, so that `1e6` can be a count; else `value`."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[
    str,
    StringConstraints(strict=True, strip_whitespace=True, min_length=1),
    Field(json_schema_extra={"allowed": "a non-empty text"}),
]


def rule(allowed: str, **constraints: Any) -> Any:
    """A pydantic field with the text that an error about it gives as what is allowed."""
    return Field(json_schema_extra={"allowed": allowed}, **constraints)


class Closed(BaseModel):
    """A mapping that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Sourced(Closed, Generic[T]):
    """A number or switch with the place it comes from."""

    value: T
    source: Text = rule("a non-empty text that says where the number comes from")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One key of a machine or workload: its type and check, and what to say about it."""

    key: str
    type: Any
    adapter: TypeAdapter[Any]
    doc: str
    allowed: str
    named: bool  # a name, plain in the file
    optional: bool  # may be left out


def sections(record: type) -> dict[str, type]:
    """The fields of a params dataclass that hold a dataclass themselves, with that dataclass."""
    hints = typing.get_type_hints(record)
    found: dict[str, type] = {}
    for field in dataclasses.fields(record):
        hint = hints[field.name]
        members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if dataclasses.is_dataclass(members[0]):
            found[field.name] = typing.cast(type, members[0])
    return found


def optional(record: type, section: str) -> bool:
    """Whether a params dataclass may leave a section out."""
    return isinstance(typing.get_type_hints(record)[section], types.UnionType)


@functools.cache
def leaves(record: type) -> dict[str, Leaf]:
    """Every number, switch and name of a params dataclass by its dotted key, in file order."""
    hints, inner = typing.get_type_hints(record), sections(record)
    found: dict[str, Leaf] = {}
    for field in dataclasses.fields(record):
        if field.name in inner:
            for key, leaf in leaves(inner[field.name]).items():
                found[f"{field.name}.{key}"] = dataclasses.replace(leaf, key=f"{field.name}.{key}")
        else:
            found[field.name] = _leaf(field, hints[field.name])
    return found


@functools.cache
def model(record: type) -> type[Closed]:
    """The pydantic model of a params dataclass: the same keys, each number with its source."""
    inner, own = sections(record), leaves(record)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        if field.name in inner:
            section = model(inner[field.name])
            none = optional(record, field.name)
            fields[field.name] = (section | None, None) if none else (section, ...)
        else:
            leaf = own[field.name]
            kind = leaf.type if leaf.named else Sourced[leaf.type]
            about = rule(leaf.allowed, description=leaf.doc)
            fields[field.name] = (
                (Annotated[kind | None, about], None) if leaf.optional else (kind, about)
            )
    return create_model(record.__name__, __base__=Closed, **fields)


def typed(record: type[T], checked: BaseModel) -> T:
    """A validated model as the params dataclass it was derived from, without the sources."""
    inner, values = sections(record), {}
    for name, value in checked:
        if isinstance(value, Sourced):
            values[name] = value.value
        elif isinstance(value, BaseModel):
            values[name] = typed(inner[name], value)
        else:
            values[name] = value
    return record(**values)


def _leaf(field: dataclasses.Field[Any], hint: Any) -> Leaf:
    meta = field.metadata
    low, high = meta.get("low"), meta.get("high")
    optional = isinstance(hint, types.UnionType)
    if optional:
        hint = typing.get_args(hint)[0]
    kind: Any
    named = False
    if "choices" in meta:
        kind, allowed, named = (
            Literal[meta["choices"]],
            "one of " + ", ".join(meta["choices"]),
            True,
        )
    elif hint is str:
        kind, allowed, named = Text, "a name (non-empty text)", True
    elif hint is bool:
        kind, allowed = Annotated[bool, Field(strict=True)], "true or false"
    elif hint is int:
        bounds = Field(strict=True, ge=low, le=high)
        kind, allowed = (
            Annotated[int, bounds, BeforeValidator(whole)],
            f"a whole number {low} to {high}",
        )
    elif meta["above_low"]:
        bounds = Field(strict=True, gt=low, le=high, allow_inf_nan=False)
        kind, allowed = Annotated[float, bounds], f"a number above {low:g} and at most {high:g}"
    else:
        bounds = Field(strict=True, ge=low, le=high, allow_inf_nan=False)
        kind, allowed = Annotated[float, bounds], f"a number {low:g} to {high:g}"
    return Leaf(field.name, kind, TypeAdapter(kind), meta["doc"], allowed, named, optional)
