"""Tables of measurements: read from CSV, Parquet or memory, checked row by row, and hashed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ahbm_jax.errors import ConfigError, UsageError, nearest
from calibration.formats import COUNT, FORMATS, LEVEL, NUMBER, TEXT, Format

FOLDER = "AHBM_DATA"  # names the folder of measurements
LARGEST = 2.0**40
SHOWN = 20  # problems listed; the others are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Rows of one format.

    Attributes:
      name: of the file.
      format: name of it in `FORMATS`.
      columns: arrays of float64, or of texts; a level that is not given is NaN.
      lines: of each row in its file.
      hash: SHA-256 of the whole table as it was given, its first 16 hexadecimal digits.
    """

    name: str
    format: str
    columns: dict[str, np.ndarray]
    lines: np.ndarray
    hash: str

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def spec(self) -> Format:
        """The format."""
        return FORMATS[self.format]

    def take(self, rows: np.ndarray) -> Measurements:
        """Some of the rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Measurements(
            name=self.name,
            format=self.format,
            columns=columns,
            lines=self.lines[rows],
            hash=self.hash,
        )

    def matching(self, where: Mapping[str, Any]) -> np.ndarray:
        """Which rows have, in each column of `where`, its value or one of its values."""
        chosen = np.ones(len(self), bool)
        for name, wanted in where.items():
            column = self.column(name)
            values = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
            held = set(column.tolist())
            for value in values:
                if value not in held:
                    some = ", ".join(map(str, sorted(held)[:SHOWN]))
                    raise UsageError(
                        f"`where` asks for {value!r} in column `{name}` of {self.name}, which no "
                        f"row has; there are: {some}"
                    )
            chosen &= np.isin(column, values)
        return chosen

    def column(self, name: str) -> np.ndarray:
        """A column by name."""
        if name not in self.columns:
            hint = nearest(name, self.columns)
            raise UsageError(
                f"`{name}` is no column of format `{self.format}`{hint}; allowed: "
                f"{', '.join(self.columns)}"
            )
        return self.columns[name]


def find(data: str | os.PathLike[str], given: str | os.PathLike[str] | None = None) -> Path:
    """The file of measurements: `given` if that is a file, else `data` in the folder it names.

    Raises:
      UsageError: neither `given` nor AHBM_DATA names a folder, or the file is not in it.
    """
    folder = given or os.environ.get(FOLDER)
    if not folder:
        raise UsageError(
            f"there is no folder of measurements for `{data}`; give `--data` a file or folder, or "
            f"set {FOLDER} to the folder"
        )
    path = Path(folder)
    found = path if path.is_file() else path / data
    if not found.is_file():
        raise UsageError(f"`--data` has no file {found}; give a CSV or Parquet file")
    return found


def load(
    source: str | os.PathLike[str] | pa.Table | Mapping[str, Any], format: str
) -> Measurements:
    """Measurements from a file, or from a table in Python.

    Args:
      source: path of a CSV or Parquet file, a pyarrow table, or a mapping of columns.
      format: name of a format in `FORMATS`.

    Raises:
      ConfigError: with every row that is no measurement: gaps, duplicate keys, numbers that are
        none, negative or absurd, each with its line.
      UsageError: no such format, or a file that cannot be read.
    """
    if format not in FORMATS:
        raise UsageError(
            f"`format` is {format!r}{nearest(format, FORMATS)}; allowed: {', '.join(FORMATS)}"
        )
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        table, name, first = _read(path), path.name, 2 if path.suffix != ".parquet" else 1
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        table: pa.Table = source if isinstance(source, pa.Table) else pa.table(dict(source))
        name, first = "table", 1
        digest = hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest()
    return _checked(table, name, FORMATS[format], format, digest[:16], first)


def _read(path: Path) -> pa.Table:
    try:
        if path.suffix == ".parquet":
            return pyarrow.parquet.read_table(path)
        options = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
        return pyarrow.csv.read_csv(path, convert_options=options)
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{path} cannot be read as a table ({error})") from error


def _checked(
    table: pa.Table, name: str, spec: Format, format: str, digest: str, first: int
) -> Measurements:
    missing = [column for column in spec.columns if column not in table.column_names]
    extra = [column for column in table.column_names if column not in spec.columns]
    if missing or extra:
        problems = [f"{name}: no column `{c}`; add it{nearest(c, extra)}" for c in missing]
        problems += [
            f"{name}: an unknown column `{c}`; format `{format}` has {', '.join(spec.columns)}; "
            "remove it"
            for c in extra
        ]
        raise ConfigError(problems)
    raw = {column: table[column].to_pylist() for column in spec.columns}
    lines = np.arange(table.num_rows) + first
    problems = list(_problems(raw, spec, name, lines.tolist()))
    if problems:
        more = len(problems) - SHOWN
        tail = [f"{name}: and {more} more"] if more > 0 else []
        raise ConfigError([*problems[:SHOWN], *tail])
    columns = {
        column: np.array([np.nan if x is None else x for x in values], float)
        if spec.columns[column] != TEXT
        else np.array(values, str)
        for column, values in raw.items()
    }
    return Measurements(name=name, format=format, columns=columns, lines=lines, hash=digest)


def _problems(
    raw: dict[str, list[Any]], spec: Format, name: str, lines: list[int]
) -> Iterator[str]:
    seen: dict[tuple[Any, ...], int] = {}
    for i, line in enumerate(lines):
        for column, kind in spec.columns.items():
            wrong = _wrong(raw[column][i], kind)
            if wrong:
                yield f"{name}:{line}: `{column}` is {raw[column][i]!r}; allowed: {wrong}"
        key = tuple(raw[column][i] for column in spec.key)
        if key in seen:
            yield f"{name}:{line}: the same key as line {seen[key]} ({', '.join(spec.key)})"
        seen.setdefault(key, line)
    if not lines:
        yield f"{name}: no rows; at least one is needed"


def _wrong(value: Any, kind: str) -> str:
    """What is allowed where a value is not; nothing where it is."""
    if kind == TEXT:
        return "" if isinstance(value, str) and value else "a text"
    if kind == LEVEL and value is None:
        return ""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or abs(value) > LARGEST:
        return f"a number up to {LARGEST:g}"
    if kind == COUNT:
        return "" if value >= 1 and float(value).is_integer() else "a whole number of 1 or more"
    if kind == NUMBER:
        return "" if value > 0 else "a number above 0"
    return ""
