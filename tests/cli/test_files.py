"""Files that commands write: refused before the work, whole after it, as they were on an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ahbm_jax.cli.files import check_distinct, check_output, whole_file
from ahbm_jax.errors import UsageError


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "a folder"),
        ("absent/x.csv", "there is no folder"),
        ("file/x.csv", "there is no folder"),
        ("x.txt", r"does not end in what is allowed: \.csv or \.json"),
        (f"{'x' * 300}.csv", "too long"),
        ("pipe.csv", "no regular file"),
    ],
)
def test_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe.csv")
    suffixes = (".csv", ".json") if name else ()
    with pytest.raises(UsageError, match=f"`--log` is .*{said}"):
        check_output(tmp_path / name, "--log", suffixes)


def test_accepted(tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("as it was")
    check_output(None, "--log", (".csv",))
    check_output(tmp_path / "there.csv", "--log", (".csv", ".json"))
    check_output(tmp_path / "new", "--log")
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]


def test_a_file_for_each_option(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "x")
    check_distinct({"--log": tmp_path / "x", "--json": tmp_path / "y", "--plot": None})
    with pytest.raises(UsageError, match="`--log` and `--json` are both"):
        check_distinct({"--log": tmp_path / "x", "--json": tmp_path / "link"})


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, UsageError])
def test_as_it_was_on_an_error(tmp_path: Path, error: type[BaseException]) -> None:
    file = tmp_path / "x.csv"
    file.write_text("as it was")

    def write() -> None:
        with whole_file(file, "--log") as temporary:
            assert (temporary.parent, temporary.suffix) == (tmp_path, ".csv")
            temporary.write_text("half of")
            raise error

    with pytest.raises(error):
        write()
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "as it was"


def test_replaced_through_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "x.csv", tmp_path / "link.csv"
    link.symlink_to(file)
    with whole_file(link, "--log") as temporary:
        temporary.write_text("all of it")
    assert link.is_symlink()
    assert file.read_text() == "all of it"
    assert len(list(tmp_path.iterdir())) == 2
