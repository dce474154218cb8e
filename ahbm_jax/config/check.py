"""The bounds of the files for machines and workloads that are built or changed in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from pydantic import ValidationError

from ahbm_jax.config import schema
from ahbm_jax.config.document import scalar
from ahbm_jax.config.problem import Problem, shown
from ahbm_jax.errors import ConfigError, nearest
from ahbm_jax.machine.params import Machine, Workload, replace


def apply_overrides(machine: Machine, overrides: Iterable[str]) -> Machine:
    """A machine with some of its numbers and switches replaced.

    Args:
        machine: the machine to start from.
        overrides: texts such as "hbm.access_latency_ns=120", in the units of the keys; of two for
            one key the later holds.

    Returns:
        The changed machine.

    Raises:
        ConfigError: with every override that names no key, or whose value the key does not allow.
    """
    known = _settable()
    values: dict[str, Any] = {}
    problems: list[str] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        key, value = key.strip(), scalar(text)
        if not equals:
            found = Problem((), "no `=`", "`key=value`", "write `--set key=value`")
        else:
            found = setting_problem(key, value) or _left_out(machine, key)
        if found is None:
            values[key] = known[key].adapter.validate_python(value)
        else:
            problems.append(found.text(f"--set {override}"))
    if problems:
        raise ConfigError(problems)
    return replace(machine, values)


def setting_problem(key: str, value: Any) -> Problem | None:
    """What is wrong with a value for a dotted key of any machine, if anything."""
    known = _settable()
    if key not in known:
        section = [name for name in known if name.startswith(key.partition(".")[0] + ".")]
        allowed = ", ".join(section) or "`section.key` as `ahbm machine show` lists them"
        return Problem((key,), "an unknown key", allowed + nearest(key, known), "correct the key")
    try:
        known[key].adapter.validate_python(value)
    except ValidationError as error:
        return _refused(known[key], error.errors()[0]["input"])
    return None


def check_machine(machine: Machine) -> None:
    """Check a machine that was built in Python against the bounds of the files.

    Args:
        machine: its leaves may be Python numbers, arrays (every element is checked) or tracers
            (which have no value yet and are skipped).

    Raises:
        ConfigError: with every leaf that is no number, not finite or out of bounds.
    """
    _check(machine, Machine, "machine", [])


def check_workload(workload: Workload) -> None:
    """Check a workload that was built in Python, as `check_machine` does a machine.

    Raises:
        ConfigError: with every field out of bounds, or if the KV heads do not divide the query
            heads.
    """
    heads = {
        key: next(iter(_concrete(getattr(workload, key, None))), None)
        for key in ("query_heads", "kv_heads")
    }
    _check(workload, Workload, "workload", head_problems(heads))


def head_problems(heads: Mapping[str, Any]) -> list[Problem]:
    """What is wrong between the `query_heads` and `kv_heads` of a workload, if both are counts."""
    query, kv = (schema.whole(heads.get(key)) for key in ("query_heads", "kv_heads"))
    if type(query) is not int or type(kv) is not int or kv < 1 or query < 1 or query % kv == 0:
        return []
    below = query // kv * kv
    nearby = f"{below} or {below + kv}" if below else str(kv)
    return [
        Problem(
            ("query_heads",),
            f"{query}, not a multiple of `kv_heads` {kv}",
            "query heads that the KV heads divide, so that each KV head serves as many",
            f"`query_heads` to {nearby}, or `kv_heads` to a divisor of {query}",
        )
    ]


def _settable() -> dict[str, schema.Leaf]:
    """The numbers and switches of a machine by their dotted keys."""
    return {key: leaf for key, leaf in schema.leaves(Machine).items() if not leaf.named}


def _left_out(machine: Machine, key: str) -> Problem | None:
    """Why a key that some machines have cannot be set on this one, if so."""
    if getattr(machine, key.partition(".")[0]) is not None:
        return None
    allowed = "keys of the sections that the machine has"
    return Problem((key,), "a key of a section left out", allowed, "add it to the file first")


def _refused(leaf: schema.Leaf, value: Any) -> Problem:
    return Problem(tuple(leaf.key.split(".")), shown(value), leaf.allowed, f"give {leaf.allowed}")


def _check(tree: Any, record: type, what: str, more: Iterable[Problem]) -> None:
    if not isinstance(tree, record):
        found = [
            Problem(
                (),
                shown(tree),
                f"an instance of {record.__name__}",
                f"give what `load_{what}` gives",
            )
        ]
    else:
        found = [*_bad_leaves(tree, record, ()), *more]
    if found:
        raise ConfigError([problem.text(what) for problem in found])


def _bad_leaves(tree: Any, record: type, path: tuple[str, ...]) -> Iterator[Problem]:
    for name, inner in schema.sections(record).items():
        value = getattr(tree, name)
        if isinstance(value, inner):
            yield from _bad_leaves(value, inner, (*path, name))
        elif not (value is None and schema.optional(record, name)):
            loc = (*path, name)
            yield Problem(loc, shown(value), f"an instance of {inner.__name__}", "give one")
    for key, leaf in schema.leaves(record).items():
        if "." not in key:
            given = getattr(tree, key)
            for value in [] if given is None and leaf.optional else _concrete(given):
                try:
                    leaf.adapter.validate_python(value)
                except ValidationError:
                    yield Problem((*path, key), shown(value), leaf.allowed, f"give {leaf.allowed}")
                    break


def _concrete(value: Any) -> list[Any]:
    """The Python values to check of a leaf: an array's extremes, nothing of a tracer."""
    if isinstance(value, Tracer):
        return []
    if not isinstance(value, (np.generic, np.ndarray, jax.Array)):
        return [value]
    array = np.asarray(value)
    if array.size == 0 or array.ndim == 0:
        return [array.item()] if array.ndim == 0 else []
    return [array.min().item(), array.max().item()]  # NaN if any element is
