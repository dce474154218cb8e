"""A fit: which numbers of a machine to find from which measurements, and how to hold rows out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt
from pydantic.dataclasses import dataclass

from ahbm_jax.config.bench import Count
from ahbm_jax.config.schema import Text, rule

_CLOSED = ConfigDict(extra="forbid")
FORMATS = ("attention", "transactions", "dispatch", "commands")
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Cell = StrictBool | StrictInt | Finite | Text
Cells = Annotated[
    dict[str, Cell | tuple[Cell, ...]],
    rule("column names, each with a value or a list of values"),
]
Column = Annotated[Text | None, rule("the name of a column")]
Columns = Annotated[tuple[Text, ...], rule("a list of column names")]
Positive = Annotated[float, rule("a number above 0", strict=True, gt=0, allow_inf_nan=False)]
Share = Annotated[float, rule("a number between 0 and 1", strict=True, gt=0, lt=1)]


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Free:
    """One number of the machine to find, in the unit of its key.

    Args:
        key: dotted key of the machine.
        low: least value.
        high: greatest value.
        start: where the search begins; None for the machine's own value.
        by: a column for each of whose values the number is another.
        prior: a relative standard deviation with which the start is believed; None if only the
            data is.
    """

    key: Text
    low: Positive
    high: Positive
    start: Annotated[Positive | None, rule("a number above 0")] = None
    by: Column = None
    prior: Annotated[Positive | None, rule("a relative standard deviation above 0")] = None


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Split:
    """Rows held out to be predicted by a fit to the others.

    Args:
        name: what results call it.
        kind: `random` holds out a `share` of the rows, `group` those that are as `where` says,
            `beyond` those whose `column` is greater than `above`.
        share: for `random`.
        where: for `group`.
        column: for `beyond`.
        above: for `beyond`.
    """

    name: Text
    kind: Annotated[Literal["random", "group", "beyond"], rule("random, group or beyond")]
    share: Share = 0.2
    where: Cells = Field(default_factory=dict)
    column: Column = None
    above: Annotated[Finite | None, rule("a number")] = None


@dataclass(frozen=True, kw_only=True, slots=True, config=_CLOSED)
class Fit:
    """A fit file; `machine` is what `load_machine` takes.

    Args:
        name: what results and the fitted machine are called.
        data: file of measurements, CSV or Parquet, in the folder that `--data` or AHBM_DATA names.
        format: what its columns are (docs/calibration.md).
        where: which of its rows.
        each: columns for each of whose combinations there is a fit of its own.
        machine: machine to begin from.
        kernel: kernel or program whose latency was measured.
        variant: variant of it.
        parameters: the numbers to find.
        splits: ways to hold rows out; the fitted machine is that of the first.
        starts: searches, from points up to 5 x apart.
        seed: of the starts and the random split.
    """

    name: Text
    data: Text
    format: Annotated[Literal[FORMATS], rule("one of " + ", ".join(FORMATS))]  # type: ignore[valid-type]
    where: Cells = Field(default_factory=dict)
    each: Columns = ()
    machine: Text
    kernel: Text
    variant: Text
    parameters: Annotated[tuple[Free, ...], rule("a list of one or more numbers", min_length=1)]
    splits: Annotated[tuple[Split, ...], rule("a list of one or more splits", min_length=1)]
    starts: Count = 4
    seed: Annotated[int, rule("a whole number 0 to 4294967295", strict=True, ge=0, lt=2**32)] = 0
