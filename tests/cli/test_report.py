from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from report.sweeps_to_see import AXES

from ahbm_jax import load_machine, load_workload
from ahbm_jax.cli.main import ahbm
from ahbm_jax.errors import UsageError
from ahbm_jax.report.sweep_view import page
from ahbm_jax.sweeps import space, sweep_to_store
from ahbm_jax.sweeps.request import request
from ahbm_jax.sweeps.store import read


@pytest.fixture(scope="module")
def half_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of nine chunks of which four are done."""
    store = tmp_path_factory.mktemp("stores") / "half.zarr"
    machine, workload = load_machine("ahbm_4sip"), load_workload("llama3_70b")
    held = {"variant": "opt1", "C": 2, "P": 2}

    def stop(done: int, total: int) -> None:
        if done >= 16:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "BLOCK_POINTS", 4)
        asked = request("decode", machine, workload, AXES, None, ["latency_ns"], held)
        with pytest.raises(KeyboardInterrupt):
            sweep_to_store(asked, store, progress=stop)
    return store


def reported(store: Path, out: Path) -> Result:
    return CliRunner().invoke(ahbm, ["report", str(store), "-o", str(out)])


def test_a_store_that_is_not_done_says_how_much_is(half_done: Path, tmp_path: Path) -> None:
    out = tmp_path / "half.html"
    done = reported(half_done, out)
    assert (done.exit_code, done.output) == (0, f"in {out}\n")
    text = out.read_text()
    head = re.sub("<[^>]*>", " ", text[text.index("<h1>") : text.index("<section")])
    assert "44.4 % of the points; run `ahbm sweep` again to go on" in head
    assert "36" in head
    found = read(half_done)
    assert int((found.result_code == -128).sum()) == 20
    assert np.isnan(found.latency_ns.values[found.result_code.values == -128]).all()


def test_a_store_s_page_has_its_name(half_done: Path, tmp_path: Path) -> None:
    reported(half_done, tmp_path / "a.html")
    assert "<title>half</title>" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "there is no .*nowhere; `ahbm sweep SPEC --out .*nowhere` makes it"),
        ("file", "file is no sweep's store; give what `ahbm sweep` wrote"),
        ("folder", "folder is no sweep's store; give what `ahbm sweep` wrote"),
        ("half.zarr/context", "context is no sweep's store"),
    ],
)
def test_what_is_no_store(name: str, message: str, half_done: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    store = half_done.parent / name if name.startswith("half") else tmp_path / name
    error = reported(store, tmp_path / "a.html").exception
    assert isinstance(error, UsageError)
    assert re.search(message, str(error))
    assert not (tmp_path / "a.html").exists()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("missing/a.html", "there is no folder .*missing; make it first"),
        ("a.pdf", r"does not end in what is allowed: \.html"),
        ("folder.html", "a folder; give the path of a file"),
    ],
)
def test_where_no_page_can_be(out: str, message: str, half_done: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    error = reported(half_done, tmp_path / out).exception
    assert isinstance(error, UsageError)
    assert re.search(message, str(error))
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]


def test_an_interrupt_leaves_the_page_that_was_there(
    half_done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a.html"
    out.write_text("before")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", interrupted)
        assert reported(half_done, out).exit_code != 0
    with monkeypatch.context() as patch:
        patch.setattr(page, "_section", interrupted)
        assert reported(half_done, out).exit_code != 0
    assert out.read_text() == "before"
    assert list(tmp_path.iterdir()) == [out]
