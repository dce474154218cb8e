"""Entry of the `ahbm` command, and the one place that turns errors into messages."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click

from ahbm_jax.cli.bench import bench
from ahbm_jax.cli.explain import explain
from ahbm_jax.cli.fit import fit
from ahbm_jax.cli.machine import machine
from ahbm_jax.cli.ops import ops
from ahbm_jax.cli.parity import parity
from ahbm_jax.cli.report import report
from ahbm_jax.cli.run import run
from ahbm_jax.cli.simulate import simulate
from ahbm_jax.cli.sweep import sweep
from ahbm_jax.cli.tune import tune
from ahbm_jax.errors import AhbmError

BAD_INPUT, INTERRUPTED = 2, 130
REPEAT_S = 0.01


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="ahbm_jax", prog_name="ahbm")
def ahbm() -> None:
    """Attention kernels on a PE-grid accelerator with HBM cubes: right? how fast? bound by what?

    A bad input gives one message and exit code 2; a result that is not right gives exit code 1.
    """


for command in (bench, run, explain, simulate, sweep, report, tune, parity, fit, machine, ops):
    ahbm.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    _keep_compiled_programs()
    try:
        with no_interrupt_lost():
            status = ahbm.main(args=arguments, prog_name="ahbm", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("ahbm: interrupted", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)  # rather than wait for a program being compiled on another thread
    except AhbmError as error:
        print(f"ahbm: {error}", file=sys.stderr)
        status = BAD_INPUT
    sys.exit(status or 0)


@contextmanager
def no_interrupt_lost() -> Iterator[None]:
    """Have an interrupt come again if it came where Python only reports exceptions.

    JAX has a callback at each garbage collection, and a simulation collects often.
    """
    report, thread = sys.unraisablehook, threading.get_ident()

    def again(lost: sys.UnraisableHookArgs) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            threading.Timer(REPEAT_S, signal.pthread_kill, (thread, signal.SIGINT)).start()
        else:
            report(lost)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = report


def _keep_compiled_programs() -> None:
    """Have XLA keep what it compiles, unless the environment says where or how already."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(home) / "ahbm_jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


if __name__ == "__main__":
    main()
