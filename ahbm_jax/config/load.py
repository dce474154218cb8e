"""Machines, workloads and benches from their YAML files.

Every function here raises `ConfigError` alone, once, with all that is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ahbm_jax.config import schema, shipped
from ahbm_jax.config.bench import Bench
from ahbm_jax.config.check import apply_overrides, check_machine, check_workload, head_problems
from ahbm_jax.config.document import Document, parse, read, validate
from ahbm_jax.config.problem import Problem, shown
from ahbm_jax.errors import nearest
from ahbm_jax.machine.params import Machine, Workload

__all__ = [
    "Bench",
    "apply_overrides",
    "check_machine",
    "check_workload",
    "load_bench",
    "load_machine",
    "load_workload",
    "sources",
]

PathOrName = str | os.PathLike[str]

_SCHEMAS = (schema.MACHINE, schema.WORKLOAD, schema.BENCH)
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
    unknown: list[Problem] = []
    for key, kind in (("machine", "machines"), ("workload", "workloads")):
        unknown += _follow(document, key, kind)
    return validate(document, Bench, unknown)


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


def _follow(document: Document, key: str, kind: str) -> Iterator[Problem]:
    """Point a bench's machine or workload at its file; yields what is wrong with it."""
    given = document.data.get(key)
    known = shipped.names(kind)
    if not isinstance(given, str) or not given.strip() or given.strip() in known:
        return  # a shipped name, or no text at all, which validation says
    path = document.path.parent / given
    if os.path.isfile(path):
        document.data[key] = str(path)
        return
    allowed = f"{', '.join(known)}, or the path of a file from here{nearest(given, known)}"
    yield Problem((key,), shown(given), allowed, "give a name or path that exists")


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
