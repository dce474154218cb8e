"""Machines, workloads, benches, cases and sweeps from their YAML files.

Every function here raises `ConfigError` alone, once, with all that is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ahbm_jax.config import schema, shipped
from ahbm_jax.config.bench import Bench
from ahbm_jax.config.case import Case
from ahbm_jax.config.check import (
    apply_overrides,
    check_machine,
    check_workload,
    head_problems,
    setting_problem,
)
from ahbm_jax.config.document import Document, parse, read, validate
from ahbm_jax.config.fit import Fit
from ahbm_jax.config.problem import Problem, shown
from ahbm_jax.config.sweep import Sweep, axis_problems, sample_problems
from ahbm_jax.errors import nearest
from ahbm_jax.machine.params import Machine, Workload

__all__ = [
    "Bench",
    "Case",
    "Fit",
    "Sweep",
    "apply_overrides",
    "check_machine",
    "check_workload",
    "load_bench",
    "load_case",
    "load_fit",
    "load_machine",
    "load_sweep",
    "load_workload",
    "sources",
]

PathOrName = str | os.PathLike[str]

_SCHEMAS = (
    schema.MACHINE,
    schema.WORKLOAD,
    schema.BENCH,
    schema.CASE,
    schema.SWEEP,
    schema.FIT,
)
_KINDS = {"machines": (schema.MACHINE, Machine), "workloads": (schema.WORKLOAD, Workload)}


def load_machine(path_or_name: PathOrName) -> Machine:
    """A machine from its file.

    Args:
        path_or_name: path of a YAML file, or the name of a shipped machine such as "ahbm_4sip".

    Returns:
        The machine, in the units of its keys; every leaf a Python float, int, bool or str.

    Raises:
        ConfigError: with every problem of the file, each with its line.
    """
    return schema.typed(Machine, _checked("machines", path_or_name))


def load_workload(path_or_name: PathOrName) -> Workload:
    """A workload from its file.

    Args:
        path_or_name: path of a YAML file, or the name of a shipped one such as "llama3_70b".

    Returns:
        The attention of one model.

    Raises:
        ConfigError: with every problem of the file, each with its line.
    """
    return schema.typed(Workload, _checked("workloads", path_or_name))


def load_bench(path_or_name: PathOrName) -> Bench:
    """A bench from its file.

    Args:
        path_or_name: path of a YAML file, or the name of a shipped bench.

    Returns:
        The bench. Paths of a machine or workload file in it are relative to the bench's own
        folder, and are returned ready to be loaded.

    Raises:
        ConfigError: with every problem of the file, each with its line.
    """
    path = shipped.resolve("benches", path_or_name)
    document = _read(path, schema.BENCH)
    return validate(document, Bench, list(_follow_both(document)))


def load_case(path: str | os.PathLike[str]) -> Case:
    """A case from its file.

    Args:
        path: path of a YAML file.

    Returns:
        The case. Paths of a kernel, machine or workload file in it are relative to the case's own
        folder, and are returned ready to be used, from any folder.

    Raises:
        ConfigError: with every problem of the file, each with its line. What only the kernel,
            machine or model can refuse, `ahbm_jax.knobs.point` does.
    """
    document = _read(Path(path), schema.CASE)
    found = [*_follow_kernel(document), *_follow_both(document), *_take_bad_settings(document)]
    return validate(document, Case, found)


def load_sweep(path_or_name: PathOrName) -> Sweep:
    """A sweep from its file.

    Args:
        path_or_name: path of a YAML file, or the name of a shipped sweep.

    Returns:
        The sweep. Paths of a kernel, machine or workload file in it are relative to its own
        folder, and are returned ready to be used, from any folder.

    Raises:
        ConfigError: with every problem of the file, each with its line.
    """
    document = _read(shipped.resolve("sweeps", path_or_name), schema.SWEEP)
    found = [*_follow_kernel(document), *_follow_both(document), *_take_bad_settings(document)]
    axes = document.data.get("axes")
    if isinstance(axes, dict):
        found += [*_follow_axes(document, axes), *axis_problems(axes, document.lines)]
    return validate(document, Sweep, [*found, *sample_problems(document.data.get("sample"))])


def load_fit(path_or_name: PathOrName) -> Fit:
    """A fit from its file.

    Args:
        path_or_name: path of a YAML file, or the name of a shipped fit.

    Returns:
        The fit. The path of a machine file in it is relative to the fit's own folder, and is
        returned ready to be loaded.

    Raises:
        ConfigError: with every problem of the file, each with its line.
    """
    document = _read(shipped.resolve("fits", path_or_name), schema.FIT)
    found = [*_follow(document, "machine", "machines"), *_bad_parameters(document)]
    return validate(document, Fit, found)


def sources(path_or_name: PathOrName) -> dict[str, str]:
    """Where each number of a machine or workload comes from.

    Args:
        path_or_name: path of a YAML file, or the name of a shipped machine or workload.

    Returns:
        The source of each number and switch by its dotted key, in the file's order.

    Raises:
        ConfigError: as `load_machine` and `load_workload`.
    """
    return dict(_sources(_checked(_kind(path_or_name), path_or_name)))


def _checked(kind: str, path_or_name: PathOrName) -> BaseModel:
    name, record = _KINDS[kind]
    document = _read(shipped.resolve(kind, path_or_name), name)
    return validate(document, schema.model(record), head_problems(_plain_heads(document)))


def _read(path: Path, name: str) -> Document:
    return read(path, name, [other for other in _SCHEMAS if other != name])


def _plain_heads(document: Document) -> dict[str, Any]:
    """The head counts of a workload file as written; empty for what is none."""
    entries = ((key, document.data.get(key)) for key in ("query_heads", "kv_heads"))
    return {key: entry.get("value") for key, entry in entries if isinstance(entry, dict)}


def _follow_both(document: Document) -> Iterator[Problem]:
    """Point a bench or case at its machine and workload files; yields what is wrong with them."""
    yield from _follow(document, "machine", "machines")
    yield from _follow(document, "workload", "workloads")


def _follow(document: Document, key: str, kind: str) -> Iterator[Problem]:
    found = _file(document, document.data.get(key), kind)
    if isinstance(found, Problem):
        yield replace(found, loc=(key,))
    elif found is not None:
        document.data[key] = found


def _file(document: Document, given: Any, kind: str) -> str | Problem | None:
    """The path of a file that is named; None for a shipped name, or what validation refuses."""
    known = shipped.names(kind)
    if not isinstance(given, str) or not given.strip() or given.strip() in known:
        return None
    path = _beside(document, given)
    if path is not None:
        return path
    allowed = f"{', '.join(known)}, or the path of a file from here{nearest(given, known)}"
    return Problem((), shown(given), allowed, "give a name or path that exists")


def _follow_axes(document: Document, axes: dict[str, Any]) -> Iterator[Problem]:
    """Point the axes of machines and workloads at their files; yields those that are none."""
    for key, kind in (("machine", "machines"), ("workload", "workloads")):
        values = axes.get(key)
        if not isinstance(values, list):
            continue
        for i, given in enumerate(values):
            found = _file(document, given, kind)
            if isinstance(found, Problem):
                yield replace(found, loc=("axes", key, i))
            elif found is not None:
                values[i] = found


def _follow_kernel(document: Document) -> Iterator[Problem]:
    """Point a case's `FILE.py:NAME` at its file; yields what is wrong with it."""
    given = document.data.get("kernel")
    if not isinstance(given, str) or ".py:" not in given:
        return  # a name, which is looked up among the kernels
    file, _, function = given.strip().rpartition(":")
    path = _beside(document, file)
    if path is not None:
        document.data["kernel"] = f"{path}:{function}"
        return
    allowed = "the name of a shipped kernel, or FILE.py:NAME with the path of a file from here"
    yield Problem(("kernel",), shown(given), allowed, "give a file that exists")


def _beside(document: Document, given: str) -> str | None:
    """The absolute path of a file that a document names, from its own folder; None if no file."""
    path = document.path.parent / given
    return str(path.absolute()) if os.path.isfile(path) else None


def _take_bad_settings(document: Document) -> Iterator[Problem]:
    """Yield what is wrong with each entry of a case's `set`, and take that entry out."""
    entries = document.data.get("set")
    for key, value in list(entries.items()) if isinstance(entries, dict) else ():
        found = setting_problem(key, value)
        if found is not None:
            del entries[key]  # or validation would report it a second time, less precisely
            yield replace(found, loc=("set", key))


def _bad_parameters(document: Document) -> Iterator[Problem]:
    """What is wrong with keys and bounds of a fit's parameters."""
    entries = document.data.get("parameters")
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue
        ends = [entry.get(end) for end in ("low", "high")]
        for end, value in zip(("low", "high"), ends, strict=True):
            if isinstance(entry.get("key"), str) and isinstance(value, (int, float)):
                found = setting_problem(entry["key"], value)
                if found is not None:
                    loc = ("parameters", i, "key" if "unknown" in found.got else end)
                    yield replace(found, loc=loc)
        if all(isinstance(end, (int, float)) for end in ends) and not ends[0] < ends[1]:
            got = f"{shown(ends[1])}, not above `low` {shown(ends[0])}"
            yield Problem(("parameters", i, "high"), got, "a number above `low`", "raise it")


def _kind(path_or_name: PathOrName) -> str:
    """Whether a name or file is a workload; a machine where it is not."""
    if path_or_name in shipped.names("workloads"):
        return "workloads"
    data = parse(shipped.resolve("machines", path_or_name)).data
    named = data.get("schema") if isinstance(data, dict) else None
    return "workloads" if named == schema.WORKLOAD else "machines"


def _sources(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in model:
        if isinstance(value, schema.Sourced):
            yield prefix + name, value.source
        elif isinstance(value, BaseModel):
            yield from _sources(value, f"{prefix}{name}.")
