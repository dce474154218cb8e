"""Pictures of timelines: files that are the same each time, and what they show of GEMM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ahbm_jax import load_machine, load_workload
from ahbm_jax.errors import UsageError
from ahbm_jax.events import Timeline, simulate
from ahbm_jax.report.slices import SCORES, VALUES, Slices
from ahbm_jax.report.timeline_plot import idle_ns, idle_share, plot_timeline, window_ns

ROOT = Path(__file__).resolve().parents[2]
FIRST = (0, 0)


def simulated(**knobs: Any) -> Timeline:
    one_pe: dict[str, Any] = {"context": 4096, "C": 1, "P": 1}
    machine, workload = load_machine("ahbm_4sip"), load_workload("llama3_70b")
    return simulate("decode", machine, workload, **(one_pe | knobs))


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    return simulated(C=2, P=2, context=2048, tile=64)


def waits_before(timeline: Timeline, kind: str) -> list[float]:
    """How long GEMM is idle before each composite of a kind."""
    lane = Slices(timeline).lanes(FIRST)["gemm"]
    starts = {each.start_ns for each in lane if each.kind == kind}
    gaps = {end: end - start for start, end in idle_ns(lane, timeline.latency_ns)}
    return [gaps.get(start, 0.0) for start in sorted(starts)]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures_are_the_same_each_time(timeline: Timeline, suffix: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        plot_timeline(timeline, path, ranks=3, title="decode")
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml"}[suffix])


@pytest.mark.parametrize("name", ["timeline.pdf", "timeline", "timeline.PNG.gz"])
def test_another_kind_of_file(timeline: Timeline, name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"timeline.*PNG or SVG: end it in \.png or \.svg"):
        plot_timeline(timeline, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_nothing_to_draw(timeline: Timeline, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`ranks` is 0; at least 1 is allowed"):
        plot_timeline(timeline, tmp_path / "a.png", ranks=0)
    with pytest.raises(UsageError, match="`tiles` is 0; at least 1 is allowed"):
        plot_timeline(timeline, tmp_path / "a.png", tiles=0)


@pytest.mark.parametrize("variant", ["dot", "opt1", "opt2", "opt3", "opt3v", "one_shot"])
def test_every_variant_can_be_drawn(variant: str, tmp_path: Path) -> None:
    done = simulated(variant=variant, C=2, P=2, context=1000, tile=100)
    plot_timeline(done, tmp_path / "a.svg", ranks=9, tiles=9)


def test_gemm_idles_during_softmax_in_opt1_and_not_in_opt3() -> None:
    """As in the pictures of docs/timelines.md."""
    shape = {"query_length": 4, "tile": 1024}
    opt1, opt3 = (simulated(variant=variant, **shape) for variant in ("opt1", "opt3"))
    softmax_ns = 32 * 1024 / 128 * (1 + 1 + 4 + 1)  # passes of max, sub, exp and sum
    assert min(waits_before(opt1, VALUES)) > softmax_ns
    # The last tile's softmax has no next tile to hide behind.
    assert max(waits_before(opt3, VALUES)[:-1]) < 0.02 * softmax_ns
    # Before Q K^T, both wait for the stream to start.
    assert max(waits_before(opt3, SCORES)) == max(waits_before(opt1, SCORES)) < softmax_ns / 3
    for variants in ((opt1, opt3), (simulated(variant="opt1"), simulated(variant="opt3"))):
        shares = []
        for done in variants:
            end = window_ns(done, [FIRST], 3)
            shares.append(idle_share(Slices(done).lanes(FIRST)["gemm"], end))
        assert shares[0] > 1.5 * shares[1]


def test_the_window_ends_with_its_tiles() -> None:
    done = simulated(variant="opt1", tile=512)
    ends = [
        max(
            end
            for end, command in zip(done.ended_ns, done.commands, strict=True)
            if command.tile == tile
        )
        for tile in range(8)
    ]
    assert window_ns(done, [FIRST], 1) == ends[0]
    assert window_ns(done, [FIRST], 7) == ends[6]
    assert window_ns(done, [FIRST], 8) == done.latency_ns  # all there is


def test_idle_times() -> None:
    done = simulated(variant="opt3", tile=512)
    lane = Slices(done).lanes(FIRST)["gemm"]
    end = 0.5 * done.latency_ns
    served = sum(min(each.end_ns, end) - each.start_ns for each in lane if each.start_ns < end)
    shown = [each for each in lane if each.start_ns < end]
    assert idle_share(shown, end) == pytest.approx(1 - served / end)
    assert idle_share([], end) == 1


@pytest.mark.parametrize("variant", ["opt1", "opt3"])
def test_the_committed_pictures_are_small(variant: str) -> None:
    picture = (ROOT / "docs" / f"{variant}.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 80_000
