from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ahbm_jax.cli.sweep import sweep
from ahbm_jax.config import shipped
from ahbm_jax.sweeps.store import journal_path

# Each choice is a chunk, and compiled: long enough to be killed in between.
SPEC = """\
schema: ahbm-sweep/1
name: chunks
kernel: decode
machine: ahbm_4sip
workload: llama3_70b
knobs: {variant: opt1}
axes:
  scheduler.latency_cycles: [10, 20, 40]
  sinks: [false, true]
  layout: [contiguous, round_robin]
  hbm.access_latency_ns: [60, 100, 200]
  context: [1000, 9000, 30000]
  tile: [256, 32768]
variables: [latency_ns]
"""
FIELDS = {"points", "chunks", "chunks_resumed", "points_per_second", "infeasible"}
FIELDS |= {"seconds_compile", "seconds_run"}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


def ran(*arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "ahbm_jax.cli.main", "sweep", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def files(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in store.rglob("*") if p.is_file()}


def blocks_done(store: Path) -> int:
    journal = journal_path(store)
    return max(0, journal.read_text().count("\n") - 1) if journal.exists() else 0


def wait_for(condition, process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_a_run_that_is_killed_and_one_that_is_interrupted_go_on(spec: Path, tmp_path: Path) -> None:
    clean, store, out = tmp_path / "clean", tmp_path / "s", tmp_path / "run.json"
    assert CliRunner().invoke(sweep, [str(spec), "--out", str(clean)]).exit_code == 0
    for end, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        before = blocks_done(store)
        process = ran(str(spec), "--out", str(store))
        wait_for(lambda: blocks_done(store) > before, process)  # noqa: B023
        process.send_signal(end)
        _, said = process.communicate()
        assert process.returncode == code
        assert "the same command goes on" in said or end == signal.SIGKILL
    done = blocks_done(store)
    result = CliRunner().invoke(sweep, [str(spec), "--out", str(store), "--json", str(out)])
    assert result.exit_code == 0
    found = json.loads(out.read_text())
    assert set(found) >= FIELDS
    assert (found["points"], found["chunks"]) == (216, 4)
    assert 2 <= done == found["chunks_resumed"]
    assert files(store) == files(clean)


def test_a_cluster_that_loses_a_worker_gives_the_same_store(spec: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    clean, store = tmp_path / "clean", tmp_path / "s"
    assert CliRunner().invoke(sweep, [str(spec), "--out", str(clean)]).exit_code == 0
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        process = ran(str(spec), "--out", str(store), "--scheduler", cluster.scheduler_address)
        wait_for(lambda: blocks_done(store) > 0, process)
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        printed, said = process.communicate()
        assert process.returncode == 0, said
    assert "4, 0 of them there before" in printed
    assert files(store) == files(clean)


def test_a_mistake_is_one_message(tmp_path: Path) -> None:
    process = ran("no-such-sweep", "--out", str(tmp_path / "s"))
    _, said = process.communicate()
    assert process.returncode == 2
    assert all(name in said for name in shipped.names("sweeps"))
    assert not (tmp_path / "s").exists()
