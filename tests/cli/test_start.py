"""`ahbm --help` does not wait for JAX, and an interrupt ends a command at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ahbm_jax.cli.main import no_interrupt_lost

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
COMMANDS = (
    [],
    ["bench"],
    ["run"],
    ["simulate"],
    ["parity"],
    ["machine"],
    ["machine", "show"],
    ["ops"],
)
SLOW = ("jax", "numpy", "pydantic", "rich", "ruamel")
PROGRAM = f"""
import sys
from ahbm_jax.cli.main import main
try:
    main(sys.argv[1:])
finally:
    late = [name for name in {SLOW!r} if name in sys.modules]
    assert not late, late
"""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda x: " ".join(x) or "ahbm")
def test_help_imports_nothing_slow(command: list[str]) -> None:
    run = [sys.executable, "-c", PROGRAM, *command, "--help"]
    done = subprocess.run(run, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: ahbm")


def test_interrupt(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ahbm_jax.cli.main", "bench", "milestone-gqa-llama70b"]
    command += ["--json", str(tmp_path / "out.json")]
    environment = ENVIRONMENT | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}  # all anew
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.strip().endswith("ahbm: interrupted")
    assert "Traceback" not in error
    assert not [path for path in tmp_path.iterdir() if path.name != "cache"]


def test_an_interrupt_in_a_finaliser_comes_again() -> None:
    """As in a callback of a garbage collection, where Python reports exceptions and goes on."""

    class Finalised:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    def work() -> None:
        with no_interrupt_lost():
            Finalised()
            time.sleep(10)

    before, started = sys.unraisablehook, time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - started < 5
    assert sys.unraisablehook is before
