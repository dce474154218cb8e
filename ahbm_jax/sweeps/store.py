"""A sweep's Zarr store, and beside it the journal of the blocks that are in it."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import xarray as xr
import zarr

from ahbm_jax.errors import UsageError
from ahbm_jax.sweeps.dataset import (
    SCHEMA,
    attributes,
    coordinates,
    dimensions_of,
    identity,
    shape_of,
)
from ahbm_jax.sweeps.plan import Arrays
from ahbm_jax.sweeps.request import Request
from ahbm_jax.sweeps.space import Space
from ahbm_jax.sweeps.variables import VARIABLES

UNWRITTEN_CODE = -128


@dataclass(slots=True)
class Journal:
    """Which blocks of a store are finished, with the infeasible points of each."""

    file: TextIO
    finished: dict[int, int] = field(default_factory=dict)

    def add(self, number: int, infeasible: int) -> None:
        """Note a block whose arrays are all in the store."""
        self.finished[number] = infeasible
        self.file.write(json.dumps({"block": number, "infeasible": infeasible}) + "\n")
        self.file.flush()


def journal_path(store: Path) -> Path:
    """The journal of a store: beside it, so that the store holds nothing but its arrays."""
    return store.with_name(store.name + ".journal")


@contextmanager
def opened(store: Path, request: Request) -> Iterator[Journal]:
    """The journal of a store that is begun, or gone on with if it is of this very sweep.

    Raises:
      UsageError: the store holds something else, or another process writes to it.
    """
    path, header = journal_path(store), identity(request)
    if store.exists() and not path.exists():
        raise UsageError(f"{store} is there and no sweep's store; give another path, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"another process writes to {store}; wait until it ends") from error
        file.seek(0)
        lines = _whole_lines(file)
        if lines:
            _check_same(store, lines[0], header)
        if not lines or not store.exists():
            lines = [header]
            _make(store, request)
        _rewrite(file, lines)
        yield Journal(file, {line["block"]: line["infeasible"] for line in lines[1:]})


def write(store: Path, space: Space, number: int, arrays: Arrays) -> None:
    """Put a block into the store; each array's part is one chunk, written whole or not at all."""
    group = zarr.open_group(store, mode="r+", zarr_format=3)
    region = space.block(number).region
    for name, values in arrays.items():
        array = group[name]
        assert isinstance(array, zarr.Array)
        array[(*region, ...)] = values


def read(store: Path) -> xr.Dataset:
    """The dataset of a store, whole or partly done; its arrays are read when they are used.

    Raises:
      UsageError: nothing is there, or no sweep's store.
    """
    if not store.exists():
        raise UsageError(f"there is no {store}; `ahbm sweep SPEC --out {store}` makes it")
    try:
        found = xr.open_zarr(store, chunks=None, consolidated=False)
    except (OSError, ValueError) as error:  # of which zarr's own are kinds
        raise UsageError(f"{store} is no sweep's store; give what `ahbm sweep` wrote") from error
    if found.attrs.get("schema") != SCHEMA:
        schema = found.attrs.get("schema")
        raise UsageError(f"{store} has the schema {schema!r}; allowed: {SCHEMA}, of `ahbm sweep`")
    return found


def _make(store: Path, request: Request) -> None:
    """Write the coordinates and the arrays' descriptions, in place only when they are complete."""
    temporary = store.with_name(f".{store.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)
    coordinates(request).to_zarr(temporary, consolidated=False, zarr_format=3)
    group = zarr.open_group(temporary, mode="r+", zarr_format=3)
    for name in request.variables:
        dtype, shape = VARIABLES[name].dtype, shape_of(request, name)
        own = shape[len(request.space.shape) :]
        group.create_array(
            name,
            shape=shape,
            chunks=(*request.space.block_shape, *own),
            dtype=dtype,
            fill_value=UNWRITTEN_CODE if VARIABLES[name].code else math.nan,
            attributes=attributes(request, name),
            dimension_names=dimensions_of(request, name),
        )
    os.replace(temporary, store)


def _whole_lines(file: TextIO) -> list[dict[str, Any]]:
    """The lines of a journal; one that was cut off in writing is left out."""
    found = []
    for line in file:
        if not line.endswith("\n"):
            break
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found


def _rewrite(file: TextIO, lines: list[dict[str, Any]]) -> None:
    file.seek(0)
    file.truncate()
    file.writelines(json.dumps(line) + "\n" for line in lines)
    file.flush()


def _check_same(store: Path, found: dict[str, Any], header: dict[str, Any]) -> None:
    differ = [name for name in header if found.get(name) != header[name]]
    if differ:
        raise UsageError(
            f"{store} holds another sweep: it differs in {', '.join(differ)}; "
            f"give another path, or remove it and {journal_path(store)}"
        )
