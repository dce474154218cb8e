"""Independent tasks on the processor's cores. Compiling is what they spend their time on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")
MOST = 8  # each compilation takes memory too


def in_parallel(
    tasks: Sequence[Callable[[], T]], done: Callable[[], None] = lambda: None
) -> list[T]:
    """Results of `tasks`, in their order; `done` is called here after each of them.

    XLA compiles outside Python's lock, so that threads suffice, and an interrupt reaches the
    caller at once, not when a compilation ends.
    """
    pool = ThreadPoolExecutor(max_workers=min(len(tasks), os.cpu_count() or 1, MOST) or 1)
    try:
        running = [pool.submit(task) for task in tasks]
        for finished in as_completed(running):
            finished.result()
            done()
        return [each.result() for each in running]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
