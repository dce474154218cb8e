"""What a sweep is asked to do, checked: the kernel, what is held and what varies."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ahbm_jax.config.load import load_machine, load_workload
from ahbm_jax.errors import UsageError, nearest
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.knobs import CHOICES, NUMBERS, Knobs, point
from ahbm_jax.machine.params import Machine, Workload
from ahbm_jax.sweeps.space import SAMPLE, Dimension, Space
from ahbm_jax.sweeps.variables import names_of

WHOLE = {"machine": (Machine, load_machine), "workload": (Workload, load_workload)}
CHOSEN = ("variant", "group_shape", *CHOICES)  # knobs whose values are no numbers
# What lets each of these be checked on its own: a sweep has rows for combinations that fail.
ALONE: defaultdict[str, dict[str, int | None]] = defaultdict(
    dict, cache_tokens={"context": 0}, query_start={"context": None}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A checked sweep. `held` are knobs and dotted machine keys that do not vary."""

    kernel: str | Kernel
    machine: Machine
    workload: Workload
    held: dict[str, Any]
    space: Space
    variables: tuple[str, ...]

    def settings(self, chosen: Mapping[str, Any]) -> tuple[Machine, Workload, dict[str, Any]]:
        """Machine, workload and knobs for what a block holds of the choices."""
        rest = {name: x for name, x in chosen.items() if name not in WHOLE}
        machine, workload = chosen.get("machine"), chosen.get("workload")
        return machine or self.machine, workload or self.workload, {**self.held, **rest}

    def first(self, axis: str) -> Any:
        """First value of an axis, None if there is no such axis."""
        found = (d.knobs[axis] for d in self.space.dimensions if axis in d.knobs)
        return next((values[0] for values in found), None)


def request(
    kernel: str | Kernel,
    machine: Machine,
    workload: Workload,
    axes: Mapping[str, Sequence[Any]],
    sample: Mapping[str, Sequence[float]] | None,
    variables: Sequence[str] | None,
    held: Mapping[str, Any],
) -> Request:
    """A sweep with everything checked that does not need a combination of values.

    Raises:
      UsageError, ConfigError: an unknown name, a value out of its bounds, a name given twice.
    """
    sample = dict(sample or {})
    names = [*axes, *sample]
    _check_names(names, held)
    held = dict(held)
    dimensions = [_axis(machine, name, values) for name, values in axes.items()]
    if sample:
        dimensions.append(_sample(machine, sample))
    made = Request(
        kernel=kernel,
        machine=machine,
        workload=workload,
        held=held,
        space=Space(tuple(dimensions)),
        variables=names_of(variables, machine),
    )
    _check_values(made)
    return made


def _check_names(names: Sequence[str], held: Mapping[str, Any]) -> None:
    knobs = [f.name for f in dataclasses.fields(Knobs)]
    for name in names:
        if "." not in name and name not in (*knobs, *WHOLE):
            hint = nearest(name, [*knobs, *WHOLE])
            allowed = ", ".join([*knobs, *WHOLE])
            raise UsageError(f"axis `{name}` is no knob{hint}; allowed: {allowed}, a machine key")
    twice = [name for name in names if names.count(name) > 1 or name in held]
    if twice:
        raise UsageError(f"`{twice[0]}` is given twice; make it one axis, or hold it")
    if "group_shape" in (*names, *held) and "C" in names:
        raise UsageError("`group_shape` and axis `C` say one thing; leave one out")


def _axis(machine: Machine, name: str, values: Sequence[Any]) -> Dimension:
    values = list(values) if not isinstance(values, np.ndarray) else values
    if len(values) == 0:
        raise UsageError(f"axis `{name}` has no values; give one or more")
    if name in WHOLE:
        kind, load = WHOLE[name]
        loaded = [x if isinstance(x, kind) else load(x) for x in values]
        labels = _text([x.name for x in loaded])
        return _dimension(name, {name: loaded}, False, labels)
    if name == "group_shape":
        shapes = [tuple(map(int, x)) for x in values]
        return _dimension(name, {name: shapes}, False, _text([f"{r}x{c}" for r, c in shapes]))
    if name in CHOSEN or is_static(machine, name):
        plain = [x.item() if isinstance(x, np.generic) else x for x in values]
        labels = _text(plain) if isinstance(plain[0], str) else np.asarray(plain)
        return _dimension(name, {name: plain}, False, labels)
    return _dimension(name, {name: _floats(name, values)}, True, None)


def _dimension(name: str, knobs: dict[str, Any], numeric: bool, labels: Any) -> Dimension:
    shown = knobs[name] if labels is None else labels
    if len({str(x) for x in shown}) < len(shown):
        raise UsageError(f"axis `{name}` has a value twice; give each value once")
    return Dimension(name=name, knobs=knobs, numeric=numeric, labels={name: shown})


def _sample(machine: Machine, sample: Mapping[str, Sequence[float]]) -> Dimension:
    wrong = [n for n in sample if n in (*WHOLE, *CHOSEN) or is_static(machine, n)]
    if wrong:
        raise UsageError(f"`{wrong[0]}` is no number and cannot be sampled; make it an axis")
    columns = {name: _floats(name, values) for name, values in sample.items()}
    sizes = {len(x) for x in columns.values()}
    if len(sizes) != 1 or sizes == {0}:
        raise UsageError(f"the columns of `sample` have {sorted(sizes)} rows; give all as many")
    return Dimension(name=SAMPLE, knobs=columns, numeric=True, labels=columns)


def is_static(machine: Machine, name: str) -> bool:
    """Whether a dotted key is a static field, for example a queue depth, rather than a number."""
    section, _, key = name.partition(".")
    tree = getattr(machine, section, None)
    fields = {f.name: f for f in dataclasses.fields(tree)} if dataclasses.is_dataclass(tree) else {}
    return key in fields and bool(fields[key].metadata.get("static"))


def _text(values: Sequence[str]) -> np.ndarray:
    return np.asarray(values, dtype=np.dtypes.StringDType())


def _floats(name: str, values: Sequence[Any]) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise UsageError(f"`{name}` is {values!r}; a list of numbers is allowed")
    if not np.all(np.isfinite(array)):
        raise UsageError(f"`{name}` has a value that is not finite; finite numbers are allowed")
    if name in NUMBERS and np.any(array != np.floor(array)):
        raise UsageError(f"`{name}` has a value that is not whole; it counts something")
    return array.astype(np.float64)


def _check_values(made: Request) -> None:
    """Refuse what no combination could mend: a value out of its own bounds."""
    for name, value in made.held.items():
        _check_value(made, name, value)
    for dimension in made.space.dimensions:
        for name, values in dimension.knobs.items():
            extremes = [float(np.min(values)), float(np.max(values))] if dimension.numeric else []
            if name == "C":
                extremes = [np.array(extremes, np.int32)]  # of which some may be no rectangle
            for value in extremes if dimension.numeric else values:
                _check_value(made, name, value)


def _check_value(made: Request, name: str, value: Any) -> None:
    machine, workload, _ = made.settings({name: value})
    beside = {n: workload.max_context_tokens if x is None else x for n, x in ALONE[name].items()}
    given = beside if name in WHOLE else beside | {name: value}
    variant = made.held.get("variant") or made.first("variant")
    point(made.kernel, machine, workload, ({"variant": variant} if variant else {}) | given)
