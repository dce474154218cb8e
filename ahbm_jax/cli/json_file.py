"""The file of `--json`: checked before the work starts, and written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import click

from ahbm_jax.errors import UsageError

json_option = click.option(
    "--json", "json_path", type=Path, metavar="FILE", help="Also write the results to FILE as JSON."
)


def check_json_path(path: Path | None) -> None:
    """Refuse a file that could not be written after the work is done.

    Raises:
      UsageError: it is a folder, or its folder is missing or not writable.
    """
    if path is None:
        return
    folder = path.resolve().parent
    if path.is_dir():
        raise UsageError(f"`--json` is {path}, a folder; give the path of a file")
    if not folder.is_dir():
        raise UsageError(f"`--json` is {path}, but there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"`--json` is {path}, but {folder} is not writable; give another place")


def write_json(path: Path | None, document: Any) -> None:
    """Write `document` to `path` (if any) under another name, then rename.

    Raises:
      UsageError: the file cannot be written, for example because the disk is full.
    """
    if path is None:
        return
    text = json.dumps(_plain(document), indent=1, allow_nan=False) + "\n"
    target = path.resolve()
    temporary: str | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=target.parent, prefix=f".{target.name}.", delete=False, encoding="utf-8"
        ) as file:
            temporary = file.name
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        raise UsageError(f"`--json` {path} cannot be written: {error.strerror}") from error
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _plain(x: Any) -> Any:
    """What JSON can hold: text keys, lists, and null for a number that is not finite."""
    if isinstance(x, dict):
        return {str(key): _plain(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_plain(value) for value in x]
    if isinstance(x, float) and not math.isfinite(x):
        return None
    return x if x is None or isinstance(x, (bool, int, float, str)) else _plain(x.item())
