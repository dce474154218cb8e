"""Pages of sweeps, opened offline in a browser without a window: is everything drawn, and right?"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import plotly.graph_objects
import pytest
import xarray as xr
from report import sweeps_to_see
from report.browser import CHROMIUM, Page, opened

from ahbm_jax import pictures, report_page
from ahbm_jax.report.sweep_view import marks

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
WINDOW = (1100, 3600)
ALL_PLOTS = "[...document.querySelectorAll('.plot')]"
DRAWN = {  # what plotly makes of each picture of `grid`
    "latency": (".scatterlayer .trace", 7),  # three lines, their bounds, and what cannot run
    "map": (".heatmaplayer .hm", 1),
    "front": (".scatterlayer .trace", 2),
    "bottleneck": (".heatmaplayer .hm", 2),
    "elasticity": (".barlayer .point", 5),
}


@contextmanager
def shown(found: xr.Dataset, folder: Path, title: str = "") -> Iterator[Page]:
    """The page of a sweep, drawn."""
    path = folder / "report.html"
    path.write_text(report_page(found, title=title))
    with opened(path.as_uri(), folder, WINDOW) as page:
        page.until("document.readyState === 'complete' && document.querySelector('.plot') !== null")
        page.until(f"{ALL_PLOTS}.every(plot => plot.querySelector('.modebar') !== null)")
        yield page


def count(page: Page, selector: str) -> int:
    return page.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")


def figure(page: Page, name: str) -> dict[str, Any]:
    """A picture's figure, as it is saved."""
    text = page.evaluate(
        f"JSON.stringify(draw[{name}.picture.kind]({name}.picture))".replace(
            name, f"document.getElementById('{name}')"
        )
    )
    return json.loads(text)


def numbers(values: Any) -> np.ndarray:
    return np.array(values, dtype=float)


def moved(page: Page, section: str, dim: str, index: int) -> None:
    """Move a slider as a reader does."""
    page.evaluate(
        f"{{const s = document.querySelector('#{section} [data-dim=\"{dim}\"]');"
        f"s.value = {index}; s.dispatchEvent(new Event('input'));}}"
    )


def chosen(page: Page, section: str, entry: int, text: str) -> None:
    """Choose from a drop-down."""
    page.evaluate(
        f"{{const s = document.querySelectorAll('#{section} select')[{entry}];"
        f"s.value = [...s.options].findIndex(o => o.text === '{text}');"
        "s.dispatchEvent(new Event('change'));}"
    )


def test_a_page_is_drawn_offline_and_answers(tmp_path: Path) -> None:
    found = sweeps_to_see.grid()
    with shown(found, tmp_path, "small <sweep>") as page:
        assert page.complaints() == []
        assert page.evaluate("performance.getEntriesByType('resource').length") == 0
        assert page.evaluate("document.title") == "small <sweep>"
        for name, (selector, least) in DRAWN.items():
            assert count(page, f"#{name} {selector}") >= least, name
            assert count(page, f"#{name} .modebar-btn") > 0
            plotly.graph_objects.Figure(figure(page, name))  # which knows every attribute
        pixels = matplotlib.image.imread(io.BytesIO(page.picture()))[..., :3]
        assert np.mean(np.ptp(pixels, axis=-1) > 0.05) > 0.1
        _check_map(page, found)
        _check_sliders(page, found)
        assert page.complaints() == []


def _check_map(page: Page, found: xr.Dataset) -> None:
    """Any two knobs, and grey for what cannot run."""
    chosen(page, "map", 0, "tile")
    chosen(page, "map", 1, "context")
    page.evaluate("document.querySelector('#map input[type=checkbox]').click()")
    moved(page, "map", "hbm.access_latency_ns", 3)
    here = found.isel({"hbm.access_latency_ns": 3}).transpose("context", "tile", ...)
    main, grey = page.evaluate("document.querySelector('#map .plot').data")
    wanted = here.latency_ns.where(np.isfinite(here.latency_ns))
    np.testing.assert_allclose(10 ** numbers(main["z"]), wanted, rtol=1e-5)
    np.testing.assert_array_equal(numbers(grey["z"]) == 1, here.result_code > 0)
    assert grey["name"] == "cannot run"
    lacks = f"{int(here.gap.values.max()):,} bytes too many"
    assert f"cannot run, scratch_overflow: {lacks}" in grey["text"][2][2]


def _check_sliders(page: Page, found: xr.Dataset) -> None:
    for index in (0, 2):
        moved(page, "elasticity", "context", index)
        (bars,) = page.evaluate("document.querySelector('#elasticity .plot').data")
        at = page.evaluate("document.getElementById('elasticity').picture.view.at")
        here = found.elasticity.isel({str(d): at[d] for d in found.result_code.dims})
        assert at["context"] == index
        for cost, x in zip(bars["y"], bars["x"], strict=True):
            assert x == pytest.approx(float(here.sel(cost=cost)), rel=1e-5)


VIEWS: list[tuple[str, str, dict[str, Any]]] = [
    ("grid", "latency", {"x": "context", "by": "tile"}),
    ("grid", "latency", {"x": "tile", "by": "context", "relative": True}),
    ("grid", "latency", {"x": "hbm.access_latency_ns", "by": None, "at": {"tile": 64}}),
    ("grid", "latency", {"x": "tile", "by": "tile", "quantity": "scratch_peak_bytes"}),
    ("sample", "latency", {"x": "context", "by": "tile"}),
    ("sample", "latency", {"x": "tile", "by": None, "at": {"sample": 3}}),
]


def test_the_script_shows_what_files_show(tmp_path: Path) -> None:
    for number, name in enumerate(("grid", "sample")):
        found = getattr(sweeps_to_see, name)()
        album, folder = pictures(found), tmp_path / str(number)
        folder.mkdir()
        with shown(found, folder) as page:
            for _, picture, changes in (view for view in VIEWS if view[0] == name):
                view = album.each[picture].seen(album.grid, changes)
                text = json.dumps({"kind": "lines", "view": view})
                data = json.loads(page.evaluate(f"JSON.stringify(draw.lines({text}).data)"))
                for line in marks.lines(album.grid, view):
                    same = next(trace for trace in data if trace["name"] == line["name"])
                    np.testing.assert_allclose(numbers(same["y"]), line["y"], rtol=1e-12)
                    if "bound" in line:
                        bound = f"{line['name']}: largest bound"
                        same = next(trace for trace in data if trace["name"] == bound)
                        np.testing.assert_allclose(numbers(same["y"]), line["bound"], rtol=1e-12)
            assert page.complaints() == []


def test_a_sample_is_drawn_as_points(tmp_path: Path) -> None:
    found = sweeps_to_see.sample()
    with shown(found, tmp_path) as page:
        chosen(page, "map", 0, "dma.issue_cycles")
        chosen(page, "map", 1, "context")
        moved(page, "map", "tile", 1)
        main = page.evaluate("document.querySelector('#map .plot').data")[0]
        here = found.isel(tile=1)
        np.testing.assert_array_equal(main["x"], here["dma.issue_cycles"])
        np.testing.assert_array_equal(main["y"], here.context)
        np.testing.assert_allclose(
            10 ** numbers(main["marker"]["color"]), here.latency_ns, rtol=1e-5
        )
        assert count(page, "#map .scatterlayer .point") == len(found.sample)
        assert page.complaints() == []


def test_what_is_not_evaluated_yet_is_not_what_cannot_run(tmp_path: Path) -> None:
    with shown(sweeps_to_see.half_done(), tmp_path) as page:
        for name in ("map", "bottleneck"):
            chosen(page, name, 0, "tile")
            chosen(page, name, 1, "context")
            data = page.evaluate(f"document.querySelector('#{name} .plot').data")
            grey = next(trace for trace in data if trace["name"] == "not evaluated yet")
            wanted = [[False] * 3] * 2 + [[True] * 3]
            np.testing.assert_array_equal(numbers(grey["z"]) == 1, wanted)
            assert "not evaluated yet" in grey["text"][2][0]
            assert not any(trace["name"] == "cannot run" for trace in data)
        assert page.complaints() == []


@pytest.mark.parametrize("name", ["one_axis", "nothing_runs"])
def test_a_poor_sweep_is_drawn_too(name: str, tmp_path: Path) -> None:
    found = getattr(sweeps_to_see, name)()
    with shown(found, tmp_path) as page:
        assert page.complaints() == []
        grey = page.evaluate(
            "document.querySelector('#map .plot').data.find(t => t.name === 'cannot run')"
        )
        assert np.sum(numbers(grey["z"]) == 1) == (found.result_code > 0).sum()
        said = page.evaluate("document.body.innerText")
        assert f"cannot run\t{int((found.result_code > 0).sum())} (scratch_overflow" in said
