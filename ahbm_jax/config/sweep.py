"""A sweep file: what varies, over which values, and what is held."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from ahbm_jax.config.bench import Count, Texts
from ahbm_jax.config.case import CaseKnobs, Finite, Settings, Whole
from ahbm_jax.config.check import setting_problem
from ahbm_jax.config.problem import Loc, Problem, from_pydantic, shown
from ahbm_jax.config.schema import Text, rule
from ahbm_jax.errors import nearest

_CLOSED = ConfigDict(extra="forbid")
_SCALE = "linear or log"
_RANGE = "a list of values, or {low: ..., high: ..., count: ..., scale: linear or log}"

Low = Annotated[Finite, rule("a finite number")]
Scale = Annotated[Literal["linear", "log"], rule(_SCALE)]
NAMES = ("machine", "workload")  # axes whose values are names or paths of files


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Span:
    """From `low` to `high`, evenly or by powers; `whole` numbers alone if so asked."""

    low: Low
    high: Low
    scale: Scale = "linear"
    whole: Annotated[StrictBool, rule("true or false")] = False


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Range(Span):
    """`count` values of a span."""

    count: Count


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Sample:
    """A design over a box of knobs; its `count` points become one dimension.

    Args:
        design: `sobol` or `latin` (hypercube).
        count: points; of a Sobol sequence, best a power of two.
        seed: of its randomisation.
        knobs: a span of each knob or dotted machine key.
    """

    design: Annotated[Literal["sobol", "latin"], rule("sobol or latin")]
    count: Count
    seed: Annotated[Whole, rule("a whole number 0 to 16777216")] = 0
    knobs: Annotated[dict[str, Span], rule("knobs, each with {low: ..., high: ...}", min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Sweep:
    """A sweep file; `machine` and `workload` are what `load_machine` and `load_workload` take.

    Args:
        name: what the sweep is called.
        kernel: the kernel to run, by name or as `FILE.py:NAME`.
        machine: name or path of the machine.
        workload: name or path of the workload.
        knobs: what is held of the knobs of a run.
        set: numbers and switches that replace the machine's, by dotted key.
        axes: for each knob, dotted machine key, `machine` or `workload`, a list of values or a
            `Range`.
        sample: a sampled design beside the axes.
        variables: what to compute; all but elasticities where left out.
    """

    name: Text
    kernel: Text
    machine: Text
    workload: Text
    knobs: CaseKnobs = Field(default_factory=CaseKnobs)
    set: Settings = Field(default_factory=dict)
    axes: Annotated[dict[str, Any], rule(f"knobs, each with {_RANGE}")] = Field(
        default_factory=dict
    )
    sample: Sample | None = None
    variables: Annotated[Texts | None, rule("a list of one or more names")] = None


def axis_problems(axes: dict[Any, Any], lines: dict[Loc, int]) -> Iterator[Problem]:
    """What is wrong with each axis of a file; ranges become `Range` in place."""
    for name, values in list(axes.items()):
        loc: Loc = ("axes", name)
        unknown = name_problem(name, loc)
        if unknown is not None:
            yield unknown
        elif isinstance(values, dict):
            try:
                axes[name] = TypeAdapter(Range).validate_python(values)
            except ValidationError as error:
                below = {at[2:] for at in lines if at[:2] == loc}
                for found in from_pydantic(Range, error.errors(include_url=False), below):
                    yield dataclasses.replace(found, loc=(*loc, *found.loc))
                axes[name] = []
        elif not isinstance(values, list) or not values:
            yield Problem(loc, shown(values), _RANGE, "give one of these")
        else:
            for i, value in enumerate(values):
                found = _value_problem(name, value)
                if found is not None:
                    yield dataclasses.replace(found, loc=(*loc, i))


def sample_problems(sample: Any) -> Iterator[Problem]:
    """Knobs of a sampled design that do not exist."""
    knobs = sample.get("knobs") if isinstance(sample, dict) else None
    for name in knobs if isinstance(knobs, dict) else ():
        found = name_problem(name, ("sample", "knobs", name))
        if found is not None:
            yield found


def name_problem(name: str, loc: Loc) -> Problem | None:
    """Why a name cannot vary, if so."""
    if "." in name:
        found = setting_problem(name, None)
        unknown = found is not None and found.got == "an unknown key"
        return dataclasses.replace(found, loc=loc) if found and unknown else None
    known = [*_knobs(), *NAMES]
    if name in known:
        return None
    allowed = f"{', '.join(known)}, or a dotted machine key{nearest(name, known)}"
    return Problem(loc, "an unknown knob", allowed, "correct the name")


def _value_problem(name: str, value: Any) -> Problem | None:
    if "." in name:
        return setting_problem(name, value)
    kind: Any = Text if name in NAMES else _knobs()[name]
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        allowed = "a name or path" if name in NAMES else _allowed(name)
        return Problem((), shown(value), allowed, f"give {allowed}")
    if value is None:
        return Problem((), "nothing", _allowed(name), "give a value, or leave it out")
    return None


def _knobs() -> dict[str, Any]:
    """The type of each knob."""
    return typing.get_type_hints(CaseKnobs, include_extras=True)


def _allowed(name: str) -> str:
    extra = _fields()[name].json_schema_extra
    return str(extra["allowed"])


def _fields() -> dict[str, Any]:
    return CaseKnobs.__pydantic_fields__  # pyright: ignore[reportAttributeAccessIssue]
