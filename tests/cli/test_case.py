"""A case file runs as the same options would, and options go over what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ahbm_jax.cli.main import main
from ahbm_jax.cli.point import settle
from ahbm_jax.config import shipped

TEXT = """schema: ahbm-case/1
kernel: decode
machine: ../own.yaml
workload: llama3_70b
knobs: {variant: opt1, context: 1024, group_shape: [1, 1]}
set: {dma.issue_cycles: 250.5}
"""


@pytest.fixture
def case(tmp_path: Path) -> Path:
    machine = (shipped.root() / "machines" / "one_pe.yaml").read_text()
    (tmp_path / "own.yaml").write_text(machine)
    (tmp_path / "cases").mkdir()
    path = tmp_path / "cases" / "c.yaml"
    path.write_text(TEXT)
    return path


def ran(tmp_path: Path, *arguments: str | Path) -> dict[str, Any]:
    file = tmp_path / "out.json"
    with pytest.raises(SystemExit) as stopped:
        main(["run", *map(str, arguments), "--json", str(file)])
    assert not stopped.value.code
    return json.loads(file.read_text())


def test_a_case_is_its_options(tmp_path: Path, case: Path) -> None:
    flags = ("decode", "--machine", "one_pe", "--variant", "opt1")
    by_case = ran(tmp_path, case)
    assert by_case["overrides"] == ["dma.issue_cycles=250.5"]
    assert by_case == ran(tmp_path, *flags, "--context", "1k", "--set", "dma.issue_cycles=250.5")

    over = ("--context", "2k", "--set", "dma.issue_cycles=25")
    by_case, by_flags = ran(tmp_path, case, *over), ran(tmp_path, *flags, *over)
    assert by_case.pop("overrides") == ["dma.issue_cycles=250.5", *by_flags.pop("overrides")]
    assert by_case == by_flags
    assert by_case["context"] == 2048


def test_options_replace_what_a_case_says(case: Path) -> None:
    path = str(case)
    chosen = settle(path, None, None, (), {"variant": None})
    assert (chosen.kernel, chosen.workload.name) == ("decode", "llama3_70b")
    assert chosen.machine.name == "one_pe"
    assert chosen.machine.dma.issue_cycles == 250.5
    assert (chosen.point.knobs.variant, chosen.point.knobs.context) == ("opt1", 1024)

    other = settle(path, "ahbm_4sip", "smollm2_135m", (), {"variant": "opt3", "C": 4})
    assert (other.machine.name, other.workload.name) == ("ahbm_4sip", "smollm2_135m")
    assert other.machine.dma.issue_cycles == 250.5
    assert (other.point.knobs.variant, other.point.knobs.context) == ("opt3", 1024)
    assert (other.point.knobs.C, other.point.knobs.group_shape) == (4, None)


def test_without_a_case_the_defaults_hold() -> None:
    chosen = settle("decode", None, None, (), {"packed": None})
    assert (chosen.machine.name, chosen.workload.name) == ("ahbm_4sip", "llama3_70b")
    assert chosen.overrides == []
    assert not chosen.point.knobs.packed
