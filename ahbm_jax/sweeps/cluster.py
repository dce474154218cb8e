"""The blocks of a sweep as tasks on a Dask cluster whose workers see the store's folder."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path

from ahbm_jax.errors import UsageError
from ahbm_jax.sweeps.plan import Plan
from ahbm_jax.sweeps.request import Request
from ahbm_jax.sweeps.store import write


def run_on_cluster(
    scheduler: str,
    request: Request,
    store: Path,
    numbers: Iterable[int],
    done: Callable[[int, int], None],
) -> None:
    """Evaluate blocks as tasks; a worker that dies is replaced by the scheduler.

    Args:
      scheduler: address of the Dask scheduler.
      request: the sweep.
      store: where the workers write; a folder that all of them see.
      numbers: the blocks.
      done: called with each block that is in the store, and its infeasible points.

    Raises:
      UsageError: dask is not installed, or no scheduler answers.
    """
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise UsageError("`--scheduler` needs dask: pip install 'ahbm_jax[cluster]'") from error
    try:
        client = Client(scheduler, timeout="10s")
    except OSError as error:
        raise UsageError(f"no Dask scheduler answers at {scheduler}: {error}") from error
    with client:
        sent = client.scatter(pickle.dumps(request), broadcast=True)
        tasks = client.map(
            _task, list(numbers), request=sent, store=str(store.absolute()), pure=False
        )
        for finished in as_completed(tasks):
            done(*finished.result())


@functools.lru_cache(maxsize=4)
def _plan(request: bytes) -> Plan:
    return Plan(pickle.loads(request))


def _task(number: int, request: bytes, store: str) -> tuple[int, int]:
    """Evaluate a block on a worker and put it into the store."""
    plan = _plan(request)
    arrays = plan.finish(number, plan.start(number))
    write(Path(store), plan.request.space, number, arrays)
    return number, int((arrays["result_code"] > 0).sum())
