"""`ahbm parity` on cases, and on a user's arrays."""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ahbm_jax.bench.workers import in_parallel
from ahbm_jax.cli.console import output, progress
from ahbm_jax.errors import UsageError
from ahbm_jax.kernel_names import default_variant, resolve_kernel
from ahbm_jax.parity import CaseResult, check_input, hard_cases, random_cases, run_case
from ahbm_jax.parity.case import STORAGE
from ahbm_jax.report.parity_table import parity_table

ARRAYS = ("q", "k", "v")
NUMBERS = {"kv_len": int, "softmax_scale": float}  # that a file may hold beside its arrays


def check_cases(*, seed: int, count: int, kernel: str, variant: str | None) -> dict[str, Any]:
    """Every hard case and `count` random ones, printed as a table."""
    resolve_kernel(kernel, variant)  # refuses a wrong name before the work
    cases = [*hard_cases(seed), *random_cases(seed, count, kernel)]
    with progress() as bar:
        task = bar.add_task("parity", total=len(cases))
        tasks = [partial(run_case, case, kernel=kernel, variant=variant) for case in cases]
        results = in_parallel(tasks, lambda: bar.advance(task))
    return _printed(results, kernel, variant) | {"seed": seed, "count": count}


def check_file(
    path: Path, settings: dict[str, Any], *, kernel: str, variant: str | None
) -> dict[str, Any]:
    """The arrays `q`, `k` and `v` of an npz file, printed as a table.

    Raises:
      UsageError: the file cannot be read, or `attention` refuses what is in it.
    """
    storage = settings.pop("storage", None)
    if storage is not None and storage not in STORAGE:
        raise UsageError(f"`--storage` is {storage!r}; allowed: {', '.join(STORAGE)}")
    arrays, numbers = _read(path)
    q, k, v = (_stored(x, storage) for x in arrays)
    settings = {"variant": variant or default_variant(kernel), **numbers, **settings}
    result = check_input(q, k, v, kernel=kernel, **settings)
    return _printed([result], kernel, variant) | {"input": str(path)}


def _printed(results: list[CaseResult], kernel: str, variant: str | None) -> dict[str, Any]:
    rows = [result.row() for result in results]
    console = output()
    for part in parity_table(rows):
        console.print(part)
    passed = all(result.passed for result in results)
    return {"kernel": kernel, "variant": variant, "passed": passed, "cases": rows}


def _read(path: Path) -> tuple[list[np.ndarray], dict[str, Any]]:
    """q, k and v, and the numbers beside them."""
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"`--input` {path} cannot be read as an npz file ({error}); write it with "
            "`numpy.savez(path, q=q, k=k, v=v)`"
        ) from error
    missing = [name for name in ARRAYS if name not in held]
    if missing:
        raise UsageError(
            f"`--input` {path} has no array {', '.join(missing)}; it has: "
            f"{', '.join(held) or 'none'}. Name them q [H, T, D], k and v [K, S, D]"
        )
    try:
        numbers = {name: kind(held[name]) for name, kind in NUMBERS.items() if name in held}
    except (TypeError, ValueError) as error:
        raise UsageError(f"`--input` {path}: {', '.join(NUMBERS)} must be numbers") from error
    return [held[name] for name in ARRAYS], numbers


def _stored(x: np.ndarray, storage: str | None) -> np.ndarray:
    """An array in its storage type; npz files know bfloat16 only as two bytes of anything."""
    if x.dtype == np.dtype("V2"):
        x = x.view(STORAGE["bfloat16"])
    if storage is None:
        return x
    if x.dtype.kind not in "fiuV":
        raise UsageError(f"an array of `--input` is {x.dtype}; numbers are needed")
    with np.errstate(over="ignore"):
        return x.astype(STORAGE[storage])
