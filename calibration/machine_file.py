"""A fitted machine as a file that loads back, each number with the data that it is from."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from ahbm_jax.config import schema
from ahbm_jax.config.load import sources
from ahbm_jax.machine.params import Machine, Validity, field_names, replace
from calibration.fitting import FitResult, GroupFit
from calibration.parameters import level_text

DIGITS = 6
VALID = tuple(field.removeprefix("least_") for field in field_names(Validity)[::2])  # sizes


def machine_files(result: FitResult) -> dict[str, str]:
    """Text of each fitted machine, by file name: one for each group, and each level of a column."""
    files = {}
    for group in result.groups:
        levels = sorted(
            {(p.free.by, p.level) for p in group.parameters.each if p.level is not None}, key=str
        )
        for level in levels or [(None, None)]:
            name = _name(result.spec.name, group.label, *level)
            files[f"{name}.yaml"] = _text(result, group, name, level[1])
    return files


def write_machines(result: FitResult, folder: Path) -> list[Path]:
    """Write the fitted machines; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in machine_files(result).items():
        path = folder / name
        path.write_text(text)
        paths.append(path)
    return paths


def fitted_machine(result: FitResult, group: GroupFit, level: Any = None) -> Machine:
    """The machine with what was found for a group (and a level), and where that is valid."""
    found = {
        parameter.free.key: float(f"{np.exp(group.splits[0].logs[i]):.{DIGITS}g}")
        for i, parameter in enumerate(group.parameters.each)
        if _at(parameter.level, level)
    }
    return replace(result.machine, found | {"validity": _validity(group)})


def _at(own: Any, level: Any) -> bool:
    """Whether a parameter's level is that of a machine; of no level it is in all."""
    return own is None or str(own) == str(level)


def _validity(group: GroupFit) -> Validity:
    """Least and greatest sizes of the rows that were not held out."""
    kept = ~group.splits[0].out
    ends = {}
    for name in VALID:
        column = np.atleast_1d(group.model.sizes.get(name, 1.0))
        column = column[kept] if column.size > 1 else column
        ends[f"least_{name}"] = float(column.min())
        ends[f"most_{name}"] = float(column.max())
    return Validity(**ends)


def _text(result: FitResult, group: GroupFit, name: str, level: Any) -> str:
    machine = fitted_machine(result, group, level)
    known = sources(result.spec.machine)
    split, data = result.spec.splits[0].name, result.data
    where = f"{data.name} {data.hash}"
    basis = f"fit `{result.spec.name}` to {where}, without the rows of split `{split}`"
    fitted = {p.free.key: i for i, p in enumerate(group.parameters.each) if _at(p.level, level)}
    whole: dict[str, Any] = {"schema": schema.MACHINE, "name": name}
    for section in field_names(machine):
        inner = getattr(machine, section)
        if section == "name" or inner is None:
            continue
        whole[section] = {}
        for key in field_names(inner):
            dotted = f"{section}.{key}"
            source = known.get(dotted, f"least and greatest of the rows of {basis}")
            if dotted in fitted:
                error = 100 * float(group.diagnosis.errors[fitted[dotted]])
                source = f"{basis}; standard error {error:.2g} %"
            whole[section][key] = {"value": getattr(inner, key), "source": source}
    return (
        f"# Found by `ahbm fit`; the machine it began from is `{result.machine.name}`.\n"
        + _yaml(whole)
    )


def _yaml(data: dict[str, Any]) -> str:
    writer = YAML()
    writer.width = 2**30
    stream = io.StringIO()
    writer.dump(data, stream)
    return stream.getvalue()


def _name(spec: str, label: str, column: Any, level: Any) -> str:
    parts = [spec, label.replace(", ", "_")]
    if column is not None:
        parts.append(f"{column}_{level_text(level)}")
    return "_".join(part for part in parts if part)
