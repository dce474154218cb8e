"""`make agree` on a comparison that fails on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest
from contracts.agree import report, search
from contracts.agreement import Disagreement, Row

from ahbm_jax.cli.main import main
from ahbm_jax.config.case import Case, case_text

ROW = Row("decode", "dot", "default")


def disagree(case: Case) -> float:
    """As a rule that goes wrong where messages are slow and there are several tiles."""
    if (case.knobs.context or 0) > 100 and case.set.get("cube_link.hop_cycles", 0) > 12:
        raise Disagreement("latency_ns: timing 1.0, simulation 2.0")
    return 1e-16


def test_a_failure_ends_with_its_smallest_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = search(ROW, 200, 0, check=disagree)
    smallest = done.smallest
    assert smallest is not None
    assert done.failure == "Disagreement: latency_ns: timing 1.0, simulation 2.0"
    knobs = {"variant": "dot", "context": 101, "P": 1, "tile": 16, "group_shape": (1, 1)}
    assert smallest.knobs.given() == knobs
    assert smallest.set == {"cube_link.hop_cycles": 13.0, "scratch.capacity_bytes": 1e12}

    report([done], 0)
    printed = capsys.readouterr().out
    assert case_text(smallest) in printed
    file = tmp_path / "smallest.yaml"
    file.write_text(printed[printed.index("schema:") :])
    with pytest.raises(SystemExit) as stopped:
        main(["run", str(file)])
    assert not stopped.value.code
    assert "context 101, C 1, P 1, tile 16" in capsys.readouterr().out


def test_a_seed_finds_the_same_cases() -> None:
    def drawn(seed: int) -> list[Case]:
        seen: list[Case] = []
        search(ROW, 20, seed, check=lambda case: seen.append(case) or 0.0)
        return seen

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(drawn(1)) == 20
