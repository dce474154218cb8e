"""`ahbm explain`: its page and its JSON, for long and for short loops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ahbm_jax.cli.main import main

POINT = ("explain", "decode", "--machine", "one_pe", "--variant", "opt1")


def ahbm(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(x) for x in arguments])
    return int(stopped.value.code or 0)


def test_a_long_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "why.json"
    assert ahbm(*POINT, "--context", "8k", "--json", file) == 0
    document = json.loads(file.read_text())
    assert (document["schema"], document["machine"]) == ("ahbm-explain/1", "one_pe")
    assert document["loops"][0]["tiles"] == 32
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    assert "…" not in shown
    for text in (
        "32 tiles, the first 31 full and alike",
        "a tile, steady from tile",
        "x composite v",
    ):
        assert text in shown
    assert shown.count("store output") == 3


def test_a_short_loop_shows_no_steady_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert ahbm(*POINT, "--context", "100", "--steps", "0") == 0
    shown = capsys.readouterr().out
    assert "Loop: 1 tile on CUBE 0, PE 0" in shown
    assert "Too short for a steady state" in shown
    assert "The chain, a tile" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--steps", "-1"), "--steps"), (("--json", "/"), "a folder"), (("--tile", "0"), "`tile`")],
)
def test_bad_input(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ahbm(*POINT, *arguments) == 2
    assert message in capsys.readouterr().err
