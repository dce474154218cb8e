"""What pictures of a sweep are made from: its points as plain data."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LEAST_ELASTICITY = 0.005
UNEVALUATED = -1

Numbers = list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A knob that varies.

    Attributes:
      name: name of the knob.
      unit: of its values, or nothing.
      dim: the dimension that it varies along: itself, or `sample`.
      values: numbers, or texts.
      labels: how they are shown.
      ticks: indices of those that an axis shows.
      numeric: they are numbers.
      logarithmic: they are spread over powers.
      load: it belongs to what is asked for, not to a design.
    """

    name: str
    unit: str
    dim: str
    values: list[Any]
    labels: list[str]
    ticks: list[int]
    numeric: bool
    logarithmic: bool
    load: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number of each point, None where there is none: its meaning, unit and values."""

    title: str
    unit: str
    values: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Dim:
    """A dimension of the points: how many values are here, and of how many in the sweep."""

    name: str
    size: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Points of a sweep, all of them or evenly chosen ones, the last dimension first.

    Attributes:
      dims: dimensions of the points.
      knobs: what varies along them.
      quantities: by name; `bound_ns.memory` is the entry `memory` of the variable `bound_ns`.
      codes: index into `code_names` of each point, `UNEVALUATED` where a sweep is not done yet.
      gaps: what each point asks for beyond what there is.
      code_names: meanings of the codes.
      limits: index into `limit_names` of what limits each point; empty if the sweep does not say.
      limit_names: resources, and last that none of them is near.
      counts: points of the whole sweep by code.
      extrapolated: points of the whole sweep outside a fit's measurements, None where unknown.
      source: attributes of the sweep.
    """

    dims: list[Dim]
    knobs: list[Knob]
    quantities: dict[str, Quantity]
    codes: list[int]
    gaps: Numbers
    code_names: list[str]
    limits: list[int]
    limit_names: list[str]
    counts: dict[int, int]
    extrapolated: int | None
    source: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """What a page holds of it."""
        return dataclasses.asdict(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Values along each dimension."""
        return tuple(dim.size for dim in self.dims)

    @property
    def total(self) -> int:
        """Points of the whole sweep."""
        return math.prod(dim.of for dim in self.dims)

    def knob(self, name: str) -> Knob:
        """A knob by its name."""
        return next(knob for knob in self.knobs if knob.name == name)

    def array(self, values: list[Any]) -> np.ndarray:
        """Values of the points in their shape; nan where there is none."""
        return np.array([math.nan if x is None else x for x in values]).reshape(self.shape)


def held(source: dict[str, Any]) -> dict[str, Any]:
    """Knobs and machine numbers that a sweep held."""
    return json.loads(source.get("held", "{}"))
