"""Tables of measurements: what is read, what is refused, and what a result is known by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from ahbm_jax.errors import ConfigError, UsageError
from calibration.formats import FORMATS
from calibration.measurements import find, load

GOOD = {
    "arch": ["a", "a"],
    "config": ["x", "x"],
    "num_kernel_binaries": [1, 2],
    "kernel_bytes_each": [256, 256],
    "dispatch_ns": [2500.0, 2600.5],
}
BAD = [
    ("dispatch_ns", [2500.0, -1.0], r"table:2: `dispatch_ns` is -1.0; allowed: a number above 0"),
    ("dispatch_ns", [2500.0, 0.0], r"table:2: `dispatch_ns` is 0.0"),
    ("dispatch_ns", [None, 1.0], r"table:1: `dispatch_ns` is None"),
    ("dispatch_ns", [1.0, float("nan")], r"table:2: `dispatch_ns` is nan"),
    ("dispatch_ns", [1.0, 1e300], r"allowed: a number up to 1.09951e\+12"),
    ("dispatch_ns", ["fast", "slow"], r"table:1: `dispatch_ns` is 'fast'"),
    ("num_kernel_binaries", [0, 2], r"allowed: a whole number of 1 or more"),
    ("num_kernel_binaries", [1.5, 2.0], r"allowed: a whole number of 1 or more"),
    ("num_kernel_binaries", [1, 1], r"table:2: the same key as line 1"),
    ("config", ["x", None], r"table:2: `config` is None; allowed: a text"),
]


@pytest.mark.parametrize(("column", "values", "said"), BAD)
def test_a_bad_row_is_named_by_line(column: str, values: list[Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(GOOD | {column: values}, "dispatch")


def test_all_problems_at_once() -> None:
    rows = GOOD | {"dispatch_ns": [-1.0, None], "num_kernel_binaries": [0, 2]}
    with pytest.raises(ConfigError) as caught:
        load(rows, "dispatch")
    assert len(caught.value.problems) == 3


def test_columns_that_are_missing_or_unknown() -> None:
    renamed = {("nanoseconds" if k == "dispatch_ns" else k): v for k, v in GOOD.items()}
    with pytest.raises(ConfigError) as caught:
        load(renamed, "dispatch")
    assert "no column `dispatch_ns`" in caught.value.problems[0]
    assert "unknown column `nanoseconds`" in caught.value.problems[1]
    with pytest.raises(ConfigError, match="no rows"):
        load({name: values[:0] for name, values in GOOD.items()}, "dispatch")
    with pytest.raises(UsageError, match=r"`format` is 'dispach'.*did you mean `dispatch`"):
        load(GOOD, "dispach")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_say_the_same_as_tables(tmp_path: Path, suffix: str) -> None:
    path, table = tmp_path / f"d{suffix}", pa.table(GOOD)
    write = pyarrow.csv.write_csv if suffix == ".csv" else pyarrow.parquet.write_table
    write(table, path)
    rows = load(path, "dispatch")
    assert rows.columns["dispatch_ns"].tolist() == GOOD["dispatch_ns"]
    assert rows.lines.tolist() == ([2, 3] if suffix == ".csv" else [1, 2])  # a CSV has a head
    write(pa.table(GOOD | {"dispatch_ns": [2500.0, 2600.0]}), path)
    assert load(path, "dispatch").hash != rows.hash
    assert find("d" + suffix, tmp_path) == path == find("other", path)


def test_nowhere_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AHBM_DATA", raising=False)
    with pytest.raises(UsageError, match="set AHBM_DATA to the folder"):
        find("d.csv")
    monkeypatch.setenv("AHBM_DATA", str(tmp_path))
    with pytest.raises(UsageError, match=r"has no file .*d\.csv"):
        find("d.csv")


def test_where_names_what_there_is() -> None:
    rows = load(GOOD, "dispatch")
    assert rows.matching({"num_kernel_binaries": (1, 2)}).all()
    with pytest.raises(UsageError, match=r"asks for 3 in column `num_kernel_binaries`.*1.0, 2.0"):
        rows.matching({"num_kernel_binaries": 3})
    with pytest.raises(UsageError, match=r"`conf` is no column.*did you mean `config`"):
        rows.matching({"conf": "x"})


def test_every_format_has_what_it_names() -> None:
    for spec in FORMATS.values():
        assert {*spec.key, spec.target, *spec.axes} <= set(spec.columns)
        assert spec.target not in spec.key
