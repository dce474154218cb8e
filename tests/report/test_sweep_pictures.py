"""Pictures of sweeps: what they show is what the dataset holds, and files of them."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from report import sweeps_to_see

from ahbm_jax import pictures
from ahbm_jax.errors import UsageError
from ahbm_jax.report.sweep_view import marks
from ahbm_jax.report.sweep_view.fronts import MOST_LOADS
from ahbm_jax.report.sweep_view.page import facts
from ahbm_jax.report.sweep_view.points import MOST_NUMBERS, plain, thinned

CLOSE = 1e-5  # numbers of a picture have six digits
SMALL = {"one_axis", "nothing_runs", "half_done", "sample", "grid"}


def held(found: xr.Dataset, drop: tuple[str, ...], at: dict[str, int]) -> xr.Dataset:
    return found.isel({dim: i for dim, i in at.items() if dim not in drop})


def test_lines_are_the_dataset() -> None:
    found = sweeps_to_see.grid()
    album = pictures(found)
    at = {"hbm.access_latency_ns": 200.0}
    view = album.each["latency"].seen(album.grid, {"x": "context", "by": "tile", "at": at})
    lines = marks.lines(album.grid, view)
    assert [line["name"] for line in lines] == ["tile 64", "tile 256", "tile 32k"]
    here = found.sel(at).transpose("tile", "context", ...)
    for line, one in zip(lines, (here.sel(tile=x) for x in found.tile), strict=True):
        wanted = one.latency_ns.where(np.isfinite(one.latency_ns)).values
        np.testing.assert_allclose(line["y"], wanted, rtol=CLOSE)
        np.testing.assert_allclose(line["bound"], one.bound_ns.max("resource"), rtol=CLOSE)
        np.testing.assert_array_equal(line["codes"], one.result_code)


def test_lines_over_the_best() -> None:
    found = sweeps_to_see.grid()
    album = pictures(found)
    changes = {"x": "tile", "by": "hbm.access_latency_ns", "relative": True}
    lines = marks.lines(album.grid, album.each["latency"].seen(album.grid, changes))
    y = np.array([line["y"] for line in lines])
    assert np.all(np.isnan(y[:, 2]))  # where none runs there is no best
    np.testing.assert_allclose(np.min(y[:, :2], axis=0), 1.0)
    last = found.isel(context=-1, tile=0).latency_ns
    np.testing.assert_allclose(y[:, 0], last / last.min(), rtol=CLOSE)


def test_a_line_alone_has_every_bound() -> None:
    found = sweeps_to_see.one_axis()
    album = pictures(found)
    lines = marks.lines(album.grid, album.each["latency"].view)
    bounds = {line["name"]: line["y"] for line in lines if "codes" not in line}
    assert list(bounds) == found.resource.values.tolist()
    for name, values in bounds.items():
        np.testing.assert_allclose(values, found.bound_ns.sel(resource=name), rtol=CLOSE)


def test_cells_are_the_dataset_transposed_or_not() -> None:
    found = sweeps_to_see.grid()
    album = pictures(found)
    for x, y in itertools.permutations(found.latency_ns.dims, 2):
        for name in ("latency_ns", "bound_ns.dma", "elasticity.dma.issue"):
            changes = {"x": x, "y": y, "quantity": name, "relative": False}
            view = album.each["map"].seen(album.grid, changes)
            shown = marks.field(album.grid, view)
            variable, _, label = name.partition(".")
            here = held(found, (str(x), str(y)), view["at"])[variable]
            here = here.sel({here.dims[-1]: label}) if label else here
            wanted = here.transpose(y, x).values
            np.testing.assert_allclose(
                shown["z"], np.where(np.isfinite(wanted), wanted, np.nan), rtol=CLOSE, atol=1e-12
            )


def test_a_sample_is_points() -> None:
    found = sweeps_to_see.sample()
    album = pictures(found)
    picture = album.each["map"]
    shown = marks.field(
        album.grid, picture.seen(album.grid, {"x": "dma.issue_cycles", "y": "tile"})
    )
    for (tile, point), z in np.ndenumerate(shown["z"]):
        one = found.isel(tile=tile, sample=point)
        assert shown["x"][tile, point] == one["dma.issue_cycles"]
        assert shown["y"][tile, point] == one.tile
        assert math.isnan(z) if one.result_code else math.isclose(z, one.latency_ns, rel_tol=CLOSE)


def test_limits_say_waits_far_from_every_bound() -> None:
    found = sweeps_to_see.grid()
    album = pictures(found)
    ratio = (found.latency_ns / found.bound_ns.max("resource")).values.ravel()
    for limit, code, times, bottleneck in zip(
        album.grid.limits, album.grid.codes, ratio, found.bottleneck.values.ravel(), strict=True
    ):
        if code == 0:
            waits = album.grid.limit_names[limit] == "waits"
            assert waits == (times > 2.0)
            assert waits or limit == bottleneck
    assert len(set(album.grid.limits)) > 1


def test_bars_are_the_elasticities_of_one_point() -> None:
    found = sweeps_to_see.grid()
    album = pictures(found)
    at = {"context": 131072, "tile": 64, "hbm.access_latency_ns": 60.0}
    shown = dict(marks.bars(album.grid, album.each["elasticity"].seen(album.grid, {"at": at})))
    wanted = found.elasticity.sel(at)
    large = {str(c): float(x) for c, x in zip(wanted.cost.values, wanted, strict=True)}
    assert shown.keys() == {name for name, x in large.items() if abs(x) >= 0.005}
    assert sum(shown.values()) == pytest.approx(1.0, abs=0.05)  # the whole path but what is small
    values = list(shown.values())
    assert sorted(values, key=abs) == values


def test_fronts_are_what_no_design_beats() -> None:
    found = sweeps_to_see.grid()
    album = pictures(found)
    fronts = album.each["front"].fronts
    assert fronts is not None
    assert fronts["costs"]["hbm.access_latency_ns"]["more"]  # slower HBM is cheaper
    assert not fronts["costs"]["scratch_peak_bytes"]["more"]
    for stop in fronts["loads"]:
        here = found.isel(stop["at"])
        flat = here.latency_ns.broadcast_like(here.latency_ns).values.ravel()
        for cost, about in fronts["costs"].items():
            sign = -1 if about["more"] else 1
            column = sign * here[cost].broadcast_like(here.latency_ns).values.ravel()
            pairs = {(c, y) for c, y in zip(column, flat, strict=True) if np.isfinite(y)}
            best = sorted(
                p for p in pairs if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in pairs)
            )
            shown = sorted((sign * point["x"], point["y"]) for point in stop["fronts"][cost])
            np.testing.assert_allclose(shown, best, rtol=CLOSE)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_picture_as_a_file_the_same_each_time(name: str, tmp_path: Path) -> None:
    album = pictures(getattr(sweeps_to_see, name)())
    for picture in album.each.values():
        for suffix in ("png", "svg"):
            paths = [tmp_path / f"{x}.{suffix}" for x in "ab"]
            if picture.kind == "missing":
                with pytest.raises(UsageError, match="variables"):
                    album.save(picture.name, paths[0])
                continue
            for path in paths:
                album.save(picture.name, path)
            first, second = (path.read_bytes() for path in paths)
            assert first == second
            assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml"}[suffix])


MISTAKES = [
    ("maps", "a.png", {}, "no picture `maps`.*did you mean.*map"),
    ("map", "a.pdf", {}, r"end it in \.png or \.svg"),
    ("map", "a.png", {"z": "tile"}, "has no `z`.*allowed: x, y, quantity"),
    ("map", "a.png", {"x": "tiles"}, "`x` is 'tiles'.*tile"),
    ("map", "a.png", {"at": {"tiles": 64}}, "`at` has `tiles`.*allowed: context, tile"),
    ("map", "a.png", {"at": {"tile": 65}}, "tile = 65, which is not drawn; allowed: 64"),
    ("latency", "a.png", {"relative": "yes"}, "`relative` is 'yes'.*False, True"),
    ("front", "a.png", {"cost": "tile"}, "`cost` is 'tile'.*allowed: scratch_peak_bytes, hbm"),
]


@pytest.mark.parametrize(("name", "file", "changes", "message"), MISTAKES)
def test_a_mistake_is_one_message(
    name: str, file: str, changes: dict, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        pictures(sweeps_to_see.grid()).save(name, tmp_path / file, **changes)
    assert not list(tmp_path.iterdir())


def test_what_has_no_pictures() -> None:
    with pytest.raises(UsageError, match=r"one from `ahbm_jax\.sweep`"):
        pictures(xr.Dataset({"speed": ("x", [1.0])}))
    with pytest.raises(UsageError, match="a single point"):
        pictures(sweeps_to_see.large(1, 1))


def test_a_sweep_without_bounds_and_elasticities_says_how_to_get_them() -> None:
    few = ["latency_ns", "result_code", "gap"]
    each = pictures(sweeps_to_see.grid()[few]).each
    assert "`bound_ns`" in each["latency"].says
    for name, needed in (("bottleneck", "bottleneck"), ("elasticity", "elasticity")):
        assert each[name].kind == "missing"
        assert f"`{needed}`" in each[name].says
    only_tiles = pictures(sweeps_to_see.grid()[few].isel({"hbm.access_latency_ns": 0}))
    assert only_tiles.each["front"].kind == "missing"


def test_the_head_counts_every_point() -> None:
    found = sweeps_to_see.grid()
    said = facts(pictures(found).grid)
    assert said["points"] == "36"
    assert said["cannot run"] == "4 (scratch_overflow 4)"
    assert found.attrs["machine_sha256"][:12] in said["machine"]
    assert "variant opt1" in said["held"]
    assert "shown" not in said
    assert "done" not in said


def test_ten_million_points_make_a_small_page() -> None:
    found = sweeps_to_see.large(200, 250, 200)
    album = pictures(found)
    shown = math.prod(album.grid.shape)
    assert 0.1 * MOST_NUMBERS < 3 * shown <= MOST_NUMBERS
    said = facts(album.grid)
    assert said["points"] == "10,000,000"
    assert "of 200 values of context" in said["shown"]
    assert len(album.page("large")) < 15e6
    last = album.grid.array(album.grid.quantities["latency_ns"].values)[-1, -1, -1]
    assert last == pytest.approx(1e7, rel=CLOSE)
    fronts = album.each["front"].fronts
    assert fronts is not None
    assert len(fronts["loads"]) == MOST_LOADS


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(6, 5000))
def test_thinning_keeps_ends_and_the_limit(shape: list[int], most: int) -> None:
    found = sweeps_to_see.large(*shape)
    few = thinned(found, most)
    assert few.result_code.size <= max(most // 3, 2)
    kept = few.latency_ns.values.ravel()
    assert kept[0] == 1.0
    if 3 * math.prod(shape) <= most:
        assert few.latency_ns.shape == found.latency_ns.shape
    elif few.latency_ns.size >= 2 ** len(shape):
        assert kept[-1] == math.prod(shape)


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_numbers_that_are_not_whole_have_six_digits(values: list[float]) -> None:
    for x, short in zip(values, plain(np.array(values)), strict=True):
        if math.isfinite(x):
            assert short == pytest.approx(x, rel=5.01e-6, abs=0.0)
            assert (
                short == x
                or len(repr(short).partition("e")[0].strip("-0.").replace(".", "").strip("0")) <= 6
            )
        else:
            assert short is None
