"""Random cases of the timing interpreter against the event simulation; `make agree` runs it.

Two processes share the rows. A row that disagrees ends with its smallest failing case, as a file
for `ahbm run`; the same seed finds it again.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The settings of the tests, whose compiled programs are then found; before JAX is imported.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import conftest  # noqa: F401

from contracts.agreement import ROWS, STRUCTURES, Row, compare
from contracts.points import cases
from hypothesis import Phase, given, seed, settings
from rich.table import Table

from ahbm_jax.cli.console import output, progress
from ahbm_jax.config.case import Case, case_text
from kernels import KERNELS

WORKERS = 2
POLL_S = 0.2
SHRINK_S = 60.0  # at most, of each row that fails
DISAGREE, INTERRUPTED = 1, 130
SEARCH = settings(
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)


@dataclass(frozen=True)
class Outcome:
    """What came of one row; `failure` says what is wrong with `smallest`, if anything is."""

    row: Row
    cases: int
    worst: float
    seconds: float
    failure: str
    smallest: Case | None

    def explanation(self) -> str:
        """What is wrong, and the case to run it with."""
        case = case_text(self.smallest) if self.smallest else ""
        return f"{self.row}: {self.failure}\nThe smallest such case, for `ahbm run`:\n\n{case}"


def search(
    row: Row,
    count: int,
    number: int,
    *,
    check: Callable[[Case], float] = compare,
    done: Callable[[], None] = lambda: None,
) -> Outcome:
    """Draw `count` cases of a row by seed `number`; after a failure, look for a smaller one.

    Args:
      row: the kernel, variant and structure.
      count: cases to draw.
      number: the seed.
      check: gives the worst relative difference of a case, and raises where it is too large.
      done: called after each case that agrees.
    """
    agreed, worst, start, until = 0, 0.0, time.perf_counter(), math.inf
    failing: list[Case] = []  # the last is the smallest, which hypothesis runs once more at the end

    @seed(f"{number} {row}")
    @settings(SEARCH, max_examples=count)
    @given(cases(row.kernel, row.variant, STRUCTURES[row.structure]))
    def run(case: Case) -> None:
        nonlocal agreed, worst, until
        if time.perf_counter() > until and case not in failing:
            return  # nothing smaller is found any more, so that hypothesis comes to an end
        try:
            worst = max(worst, check(case))
        except Exception:
            failing.append(case)
            until = min(until, time.perf_counter() + SHRINK_S)
            raise
        agreed += 1
        done()

    failure, smallest = "", None
    try:
        run()
    except Exception as error:
        failure, smallest = f"{type(error).__name__}: {error}", failing[-1] if failing else None
    return Outcome(row, agreed, worst, time.perf_counter() - start, failure, smallest)


_agreed: Any = None  # in a worker: how many cases agreed so far, in all processes


def start_worker(agreed: Any) -> None:
    """Make ready for `search_row`."""
    global _agreed
    _agreed = agreed


def search_row(row: Row, count: int, number: int) -> Outcome:
    """As `search`, in a worker."""

    def done() -> None:
        with _agreed.get_lock():
            _agreed.value += 1

    return search(row, count, number, done=done)


def search_rows(rows: Sequence[Row], count: int, number: int) -> list[Outcome]:
    """`count` cases of each row, in several processes, with a progress bar."""
    context = multiprocessing.get_context("spawn")
    agreed = context.Value("q", 0)
    pool = ProcessPoolExecutor(WORKERS, context, start_worker, (agreed,))
    # Workers inherit that an interrupt is none of their business.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    running = [pool.submit(search_row, row, count, number) for row in rows]
    signal.signal(signal.SIGINT, handler)
    with pool, progress() as bar:
        task = bar.add_task("cases", total=len(rows) * count)
        try:
            while wait(running, POLL_S).not_done:
                bar.update(task, completed=agreed.value)
        except KeyboardInterrupt:
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
    return [future.result() for future in running]


def report(outcomes: Sequence[Outcome], number: int) -> None:
    """Print a table of the rows, then each failure with its case."""
    table = Table("row", "cases", "worst relative difference", "s", title=f"seed {number}")
    for each in outcomes:
        worst = "disagrees" if each.failure else f"{each.worst:.1e}"
        table.add_row(str(each.row), str(each.cases), worst, f"{each.seconds:.0f}")
    console = output()
    console.print(table)
    total, worst = sum(each.cases for each in outcomes), max(each.worst for each in outcomes)
    console.print(f"{total} cases agree; the worst relative difference of them is {worst:.1e}")
    for each in outcomes:
        if each.failure:
            print(f"\n{each.explanation()}")


def main() -> int:
    """Run the script; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000, help="in all, at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernel", choices=sorted(KERNELS), help="[default: every kernel]")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.kernel in (None, row.kernel)]
    try:
        outcomes = search_rows(rows, -(-options.cases // len(rows)), options.seed)
    except KeyboardInterrupt:
        print("agree: interrupted", file=sys.stderr)
        return INTERRUPTED
    report(outcomes, options.seed)
    return DISAGREE if any(each.failure for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
