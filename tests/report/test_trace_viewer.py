"""A trace opened by speedscope, offline, in a browser without a window: is it drawn?"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from report.browser import CHROMIUM, Page, opened

from ahbm_jax import load_machine, load_workload
from ahbm_jax.events import simulate
from ahbm_jax.report.trace import chrome_trace

ROOT = Path(__file__).resolve().parents[2]
VIEWER = ROOT / ".cache/viewer/node_modules/speedscope/dist/release/index.html"
WINDOW = (4000, 600)  # speedscope shortens names that do not fit
TILES = range(4)
# Speedscope runs this when it is ready. It draws names on a canvas, so note them.
PROFILE = """
var drawn = [], alerts = [];
const draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  drawn.push(text);
  return draw.call(this, text, ...place);
};
window.alert = text => alerts.push(text);
speedscope.loadFileFromBase64("trace.json", "%s");
"""
NEXT_THREAD = 'drawn = []; window.dispatchEvent(new KeyboardEvent("keypress", {key: "n"}))'

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or not VIEWER.exists(),
    reason="needs chromium, and speedscope from `make viewer`",
)


@pytest.fixture(scope="module")
def trace() -> dict[str, Any]:
    machine, workload = load_machine("ahbm_4sip"), load_workload("llama3_70b")
    knobs: dict[str, Any] = {"context": 256 * len(TILES), "C": 1, "P": 1, "tile": 256}
    return chrome_trace(simulate("decode", machine, workload, variant="opt3", **knobs))


@contextmanager
def viewer(trace: dict[str, Any], folder: Path) -> Iterator[Page]:
    """Speedscope, asked to show a trace."""
    script = folder / "profile.js"
    script.write_text(PROFILE % base64.b64encode(json.dumps(trace).encode()).decode())
    address = f"{VIEWER.as_uri()}#localProfilePath={script.relative_to('/')}"
    with opened(address, folder, WINDOW) as page:
        page.until("window.drawn !== undefined")
        yield page


def shown(page: Page, thread: str, awaited: str) -> list[str]:
    """What is drawn of a thread, once what begins with `awaited` is."""
    page.until(f"document.body.innerText.includes({json.dumps(thread)})")
    page.until(f"drawn.some(text => text.startsWith({json.dumps(awaited)}))")
    return page.evaluate("drawn")


def coloured(page: Page) -> float:
    """Share of the page that is not grey."""
    pixels = matplotlib.image.imread(io.BytesIO(page.picture()))[..., :3]
    return float(np.mean(np.ptp(pixels, axis=-1) > 0.05))


def test_slices_are_drawn(trace: dict[str, Any], tmp_path: Path) -> None:
    with viewer(trace, tmp_path) as page:
        cpu = shown(page, "CUBE 0 (pid 1), PE 0 CPU", "held by composite v[3]")
        assert {f"held by composite v[{tile}]" for tile in TILES} <= set(cpu)
        for engine in ("DMA", "GEMM"):
            page.evaluate(NEXT_THREAD)
            drawn = shown(page, f"PE 0 {engine}", "composite v[3]")
            for tensor in "kv":
                for tile in TILES:
                    name = f"composite {tensor}[{tile}] "
                    assert any(text.startswith(name) for text in drawn), name
        assert page.evaluate("alerts") == []
        (tmp_path / "gemm.png").write_bytes(page.picture())
        assert coloured(page) > 0.1  # the slices themselves, which WebGL draws


def test_nothing_is_drawn_of_an_empty_trace(trace: dict[str, Any], tmp_path: Path) -> None:
    with viewer(trace | {"traceEvents": []}, tmp_path) as page:
        page.until("alerts.length > 0")
        assert "Unrecognized format" in page.evaluate("alerts[0]")
        assert page.evaluate("drawn") == []
        assert coloured(page) < 0.05
