"""`ahbm simulate`: one point, command by command, beside the timing interpreter's latency of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ahbm_jax.cli.files import check_distinct, check_output, json_option, json_text, whole_file
from ahbm_jax.cli.point import Settled, point_options, settle
from ahbm_jax.errors import UsageError, nearest

if TYPE_CHECKING:
    import jax
    from rich.progress import Progress

    from ahbm_jax.events import Timeline
    from ahbm_jax.knobs import Point

SCHEMA = "ahbm-simulate/1"
SAME = 1e-9  # relative difference of equal latencies: both add up float64, in another order
TRACE_SUFFIXES = (".json",)
PLOT_RANKS = 2


def _file(name: str, text: str) -> Any:
    """The option of a file to write."""
    return click.option(f"--{name}", f"{name}_path", type=Path, metavar="FILE", help=text)


@click.command()
@point_options
@click.option(
    "--arbitration",
    default="static",
    show_default=True,
    metavar="NAME",
    help="Of links between neighbours: static, as in `run`, or first_come.",
)
@_file("log", "Write a row a command to FILE, .parquet or .csv.")
@_file("trace", "Write a trace to FILE, .json, to look at in ui.perfetto.dev.")
@_file("plot", "Draw the first tiles in FILE, .png or .svg.")
@click.option(
    "--plot-ranks",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"The first N ranks.  [default: {PLOT_RANKS}]",
)
@json_option
def simulate(
    kernel: str,
    machine: str | None,
    workload: str | None,
    overrides: tuple[str, ...],
    arbitration: str,
    plot_ranks: int | None,
    **options: Any,
) -> int:
    """Simulate one point of KERNEL (as in `run`) command by command, to check and look into it.

    Exit code 1 if the latency differs from that of `run`, with static arbitration.
    """
    files = {name: options.pop(f"{name}_path") for name in ("log", "trace", "plot", "json")}
    if plot_ranks is not None and files["plot"] is None:
        raise UsageError("`--plot-ranks` has no effect without `--plot`; add it")
    _check(files, arbitration)
    chosen = settle(kernel, machine, workload, overrides, options)

    from ahbm_jax.cli.console import output, progress
    from ahbm_jax.report.simulate_page import simulate_page

    with progress() as bar:
        timeline, simulation_s = _simulated(chosen.point, arbitration, bar)
        document = {
            **_named(chosen),
            **_found(timeline, _timing_ns(chosen.point, bar)),
            "all_layers_ns": timeline.latency_ns * chosen.workload.layers,
            "simulation_s": simulation_s,
            "files": {name: str(path) for name, path in files.items() if path is not None},
        }
        bar.add_task("write", total=None)
        _write(files, timeline, document, plot_ranks or PLOT_RANKS)
    console = output()
    for part in simulate_page(document):
        console.print(part)
    return 0 if document["same"] or arbitration != "static" else 1


def _check(files: dict[str, Path | None], arbitration: str) -> None:
    """Refuse what would fail after the work is done."""
    from ahbm_jax.events import ARBITRATIONS
    from ahbm_jax.events.op_log import WRITERS
    from ahbm_jax.report.timeline_plot import FORMATS

    if arbitration not in ARBITRATIONS:
        hint, allowed = nearest(arbitration, ARBITRATIONS), ", ".join(ARBITRATIONS)
        raise UsageError(f"`--arbitration` is {arbitration!r}{hint}; allowed: {allowed}")
    suffixes = {"log": tuple(WRITERS), "trace": TRACE_SUFFIXES, "plot": FORMATS}
    for name, path in files.items():
        check_output(path, f"--{name}", suffixes.get(name, ()))
    check_distinct({f"--{name}": path for name, path in files.items()})


def _simulated(point: Point, arbitration: str, bar: Progress) -> tuple[Timeline, float]:
    """The timeline of a point, and the seconds that it took."""
    from ahbm_jax.events import simulate_point

    task = bar.add_task("simulate", total=None)
    started = time.perf_counter()
    timeline = simulate_point(
        point,
        arbitration=arbitration,
        progress=lambda done, total: bar.update(task, completed=done, total=total),
    )
    if timeline.latency_ns == 0.0:
        raise UsageError(
            "the kernel takes no time: no command of it costs any; nothing to simulate"
        )
    return timeline, time.perf_counter() - started


def _timing_ns(point: Point, bar: Progress) -> float:
    """Latency by the timing interpreter, in float64.

    The latency alone, and quick to compile: a third of the time of all that `run` says.
    """
    import jax

    from ahbm_jax.bench.workers import in_parallel
    from ahbm_jax.interpret.evaluate import latency_function
    from ahbm_jax.result import QUICK_TO_COMPILE

    def latency(*leaves: jax.Array) -> jax.Array:
        return latency_function(point.kernel, point.static)(*leaves)[0]

    def timed() -> float:
        with jax.enable_x64(True):
            return float(jax.jit(latency, compiler_options=QUICK_TO_COMPILE)(*point.arrays()))

    bar.add_task("timing interpreter", total=None)
    return in_parallel([timed])[0]  # on a thread, so that an interrupt does not wait for it


def _named(chosen: Settled) -> dict[str, Any]:
    """What was simulated."""
    model = chosen.workload
    return {
        "schema": SCHEMA,
        "machine": chosen.machine.name,
        "workload": model.name,
        "layers": model.layers,
        "overrides": chosen.overrides,
        "kernel": chosen.kernel,
        "variant": None if ".py:" in chosen.kernel else chosen.point.knobs.variant,
        **chosen.point.request(),
    }


def _found(timeline: Timeline, timing_ns: float) -> dict[str, Any]:
    """What the simulation says, and how far it is from the timing interpreter's latency."""
    from ahbm_jax.report.summary import summary

    difference_ns = timeline.latency_ns - timing_ns
    return summary(timeline) | {
        "timing_latency_ns": timing_ns,
        "relative_difference": difference_ns / timing_ns if difference_ns else 0.0,
        "same": abs(difference_ns) <= SAME * timing_ns,
    }


def _write(
    files: dict[str, Path | None],
    timeline: Timeline,
    document: dict[str, Any],
    plot_ranks: int,
) -> None:
    """Write all files that were asked for, or none."""
    from ahbm_jax.events.op_log import op_log, write_op_log
    from ahbm_jax.report.timeline_plot import plot_timeline
    from ahbm_jax.report.trace import write_trace

    title = "{} {}, context {context:,}, C {C}, P {P}, tile {tile}".format(
        document["kernel"], document["variant"] or "", **document
    )
    writers: dict[str, Callable[[Path], Any]] = {
        "log": lambda path: write_op_log(op_log(timeline), path),
        "trace": lambda path: write_trace(timeline, path),
        "plot": lambda path: plot_timeline(timeline, path, ranks=plot_ranks, title=title),
        "json": lambda path: path.write_text(json_text(document), encoding="utf-8"),
    }
    with ExitStack() as stack:
        for name, path in files.items():
            if path is not None:
                writers[name](stack.enter_context(whole_file(path, f"--{name}")))
