"""Files that a command writes: checked before the work starts, and written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ahbm_jax.errors import UsageError

json_option = click.option(
    "--json", "json_path", type=Path, metavar="FILE", help="Also write the results to FILE as JSON."
)


def check_output(path: Path | None, option: str, suffixes: Collection[str] = ()) -> None:
    """Refuse a file that could not be written after the work is done.

    Args:
      path: None where the option was not given.
      option: whose value it is, for example `--json`.
      suffixes: what it may end in; anything if there are none.

    Raises:
      UsageError: it ends in something else, is a folder or a device, or its folder is missing or
        not writable.
    """
    if path is None:
        return
    if suffixes and path.suffix not in suffixes:
        allowed = " or ".join(suffixes)
        raise UsageError(f"`{option}` is {path}, which does not end in what is allowed: {allowed}")
    try:
        problem = _problem(path)
    except OSError as error:  # for example a name that is too long
        problem = f"which cannot be: {error.strerror}; give another path"
    if problem is not None:
        raise UsageError(f"`{option}` is {path}, {problem}")


def _problem(path: Path) -> str | None:
    """Why a file cannot be written, to follow its path in a message."""
    folder = path.resolve().parent
    if path.is_dir():
        return "a folder; give the path of a file"
    if path.exists() and not path.is_file():
        return "which is no regular file; give the path of one"
    if not folder.is_dir():
        return f"but there is no folder {folder}; make it first"
    if not _writable(folder):
        return f"but {folder} is not writable; give another place"
    return None


def _writable(folder: Path) -> bool:
    """Whether a file can be made there; permissions alone do not say so of every file system."""
    probe = _beside(folder / "probe")
    try:
        probe.touch()
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


def _beside(target: Path) -> Path:
    """A name in the same folder that nobody has, with the same suffix."""
    return target.with_name(f".ahbm.{secrets.token_hex(4)}{target.suffix}")


def check_distinct(paths: Mapping[str, Path | None]) -> None:
    """Refuse one file for two options.

    Raises:
      UsageError: with the names of both.
    """
    seen: dict[Path, str] = {}
    for option, path in paths.items():
        if path is not None and (other := seen.setdefault(path.resolve(), option)) != option:
            raise UsageError(f"`{other}` and `{option}` are both {path}; give each its own file")


@contextmanager
def whole_file(path: Path, option: str) -> Iterator[Path]:
    """A temporary path beside `path`, with its suffix: what is written there becomes `path`.

    Nothing is left of it if the body raises, and `path` is then as it was.

    Raises:
      UsageError: the file cannot be written, for example because the disk is full.
    """
    target = path.resolve()
    # Named before it is made, so that an interrupt finds it whenever it comes.
    temporary = _beside(target)
    try:
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"`{option}` {path} cannot be written: {why}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path | None, document: Any, option: str = "--json") -> None:
    """Write `document` to `path`, if any, as a whole file.

    Raises:
      UsageError: the file cannot be written, for example because the disk is full.
    """
    if path is None:
        return
    text = json_text(document)
    with whole_file(path, option) as temporary:
        temporary.write_text(text, encoding="utf-8")


def json_text(document: Any) -> str:
    """`document` as JSON; null for a number that is not finite."""
    return json.dumps(_plain(document), indent=1, allow_nan=False) + "\n"


def _plain(x: Any) -> Any:
    """What JSON can hold: text keys, lists, and null for a number that is not finite."""
    if isinstance(x, dict):
        return {str(key): _plain(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_plain(value) for value in x]
    if isinstance(x, float) and not math.isfinite(x):
        return None
    return x if x is None or isinstance(x, (bool, int, float, str)) else _plain(x.item())
