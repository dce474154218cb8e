"""A picture of the first tiles of a timeline: a lane for each worker of a few ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ahbm_jax.errors import UsageError
from ahbm_jax.events import Timeline
from ahbm_jax.interpret.record import Rank
from ahbm_jax.report.amount import percent
from ahbm_jax.report.slices import (
    HELD,
    ISSUE,
    KINDS,
    MATH,
    MESSAGE,
    OTHER,
    SCORES,
    TRANSFER,
    VALUES,
    Slice,
    Slices,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
COLOURS = {  # told apart in the common kinds of colour blindness
    SCORES: "#4393c3",
    VALUES: "#f4a03c",
    OTHER: "#8dd3c7",
    MATH: "#5aae61",
    TRANSFER: "#9970ab",
    MESSAGE: "#de77ae",
    ISSUE: "#222222",
    HELD: "#e6e6e6",
}
MEANINGS = {
    SCORES: "QK$^T$",
    VALUES: "PV",
    MATH: "MATH (softmax)",
    ISSUE: "CPU issues",
    HELD: "CPU held",
}
IDLE = "#d7191c"
FRAME: dict[str, Any] = {
    "edgecolor": IDLE,
    "facecolor": "#fdecea",
    "hatch": "////",
    "linewidth": 0.0,
}
PALE = 0.35  # opacity
WIDTH_INCHES, LANE_INCHES, MARGIN_INCHES = 10.0, 0.34, 1.3
DOTS_PER_INCH = 120
BAR = 0.76  # height of a slice, of its lane
CHARACTER = 0.0079  # width of a character, of the axis
JOINED = 0.004  # of the axis: what is closer shares a label, what is shorter has no edge

Gap = tuple[float, float]


def plot_timeline(
    timeline: Timeline, path: str | Path, *, ranks: int = 2, tiles: int = 4, title: str = ""
) -> None:
    """Draw the first `tiles` tiles of the first `ranks` ranks, all of it if there are no more.

    Args:
      timeline: from `simulate`.
      path: a file that ends in .png or .svg.
      ranks: how many, at least 1.
      tiles: how many, at least 1.
      title: above the picture.

    Raises:
      UsageError: an argument is out of range; the message names it.
    """
    target = Path(path)
    if target.suffix not in FORMATS:
        raise UsageError(f"`path` is {target}; a picture is PNG or SVG: end it in .png or .svg")
    for name, count in (("ranks", ranks), ("tiles", tiles)):
        if count < 1:
            raise UsageError(f"`{name}` is {count}; at least 1 is allowed")
    import matplotlib

    # SVG names its parts by a random number unless it is given a salt.
    with matplotlib.rc_context({"svg.hashsalt": "ahbm", "font.size": 9.0}):
        figure = _figure(timeline, list(timeline.spans)[:ranks], tiles, title)
        stamp = {"Date": None} if target.suffix == ".svg" else {"Software": None}
        figure.savefig(target, metadata=stamp, dpi=DOTS_PER_INCH)


def window_ns(timeline: Timeline, ranks: Sequence[Rank], tiles: int) -> float:
    """When all that these ranks issue before their tile number `tiles` is complete."""
    first, end = 0, 0.0
    for record in timeline.records:
        if record.rank in ranks:
            loops = (
                i
                for i, command in enumerate(record.commands)
                if command.op == "loop" and command.tile == tiles
            )
            cut = next(loops, None)
            if cut is None:
                end = max(end, timeline.finish_ns[record.rank])
            else:
                end = max(end, *timeline.ended_ns[first : first + cut])
        first += len(record.commands)
    return end


def idle_ns(slices: Sequence[Slice], end_ns: float) -> list[Gap]:
    """From when to when a lane serves nobody, from time 0 to `end_ns`."""
    edges = [0.0, *(x for each in slices for x in (each.start_ns, each.end_ns)), end_ns]
    gaps = [(start, min(end, end_ns)) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    return [(start, end) for start, end in gaps if start < end]


def idle_share(slices: Sequence[Slice], end_ns: float) -> float:
    """Share of the time from 0 to `end_ns` in which a lane serves nobody."""
    return sum(end - start for start, end in idle_ns(slices, end_ns)) / end_ns


def _figure(timeline: Timeline, ranks: Sequence[Rank], tiles: int, title: str) -> Figure:
    from matplotlib.figure import Figure

    end = window_ns(timeline, ranks, tiles)
    drawn = Slices(timeline)
    lanes = {rank: _lanes(drawn, rank, end) for rank in ranks}
    heights = [len(each) for each in lanes.values()]
    inches = LANE_INCHES * sum(heights) + 0.3 * len(heights) + MARGIN_INCHES
    figure = Figure(figsize=(WIDTH_INCHES, inches), layout="constrained")
    rows = figure.subplots(len(ranks), squeeze=False, sharex=True, height_ratios=heights)
    for axes, (rank, workers) in zip(rows[:, 0], lanes.items(), strict=True):
        _draw_rank(axes, rank, workers, end)
    _time_axis(rows[-1, 0], end)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, weight="bold")
    kinds = {each.kind for workers in lanes.values() for lane in workers.values() for each in lane}
    _legend(figure, [kind for kind in KINDS if kind in kinds])
    return figure


def _lanes(drawn: Slices, rank: Rank, end: float) -> dict[str, list[Slice]]:
    """Slices that begin before `end`; no lanes for ports that are not used by then."""
    lanes = {
        worker: [each for each in slices if each.start_ns < end]
        for worker, slices in drawn.lanes(rank).items()
    }
    return {name: lane for name, lane in lanes.items() if lane or not name.startswith("port")}


def _draw_rank(axes: Axes, rank: Rank, workers: dict[str, list[Slice]], end: float) -> None:
    axes.set_title("CUBE {} PE {}".format(*rank), loc="left", fontsize=9, weight="bold")
    axes.set_xlim(0.0, end)
    axes.set_ylim(len(workers) - 0.5, -0.5)
    axes.set_yticks(range(len(workers)), [_lane_name(worker) for worker in workers])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    for row, (worker, slices) in enumerate(workers.items()):
        axes.axhline(row + 0.5, color="#d0d0d0", linewidth=0.5)
        _draw_slices(axes, row, slices, end)
        if worker == "gemm":
            _draw_gaps(axes, row, idle_ns(slices, end), end)
        if worker != "cpu":
            share = percent(idle_share(slices, end))
            axes.annotate(
                f"idle {share}",
                (1.0, row),
                xytext=(5, 0),
                xycoords=axes.get_yaxis_transform(),
                textcoords="offset points",
                va="center",
                color=IDLE if worker == "gemm" else "#606060",
            )


def _lane_name(worker: str) -> str:
    _, _, port = worker.partition("port.")
    return f"port {port.replace('.', ' ').upper()}" if port else worker.upper()


def _draw_slices(axes: Axes, row: int, slices: Sequence[Slice], end: float) -> None:
    """Bars as high as the share of their time in which they are served, on paler ones."""
    for each in slices:
        width, left = each.end_ns - each.start_ns, each.start_ns
        share = each.busy_ns / width if width and each.kind != HELD else 1.0
        edge = 0.6 if width > JOINED * end else 0.0
        style: dict[str, Any] = {"facecolor": COLOURS[each.kind], "edgecolor": "white"}
        style |= {"left": left, "linewidth": edge}
        if share < 1.0:
            axes.barh(row, width, BAR, alpha=PALE, **style)
        axes.barh(row + BAR / 2 * (1.0 - share), width, BAR * share, **style)
    for text, start, stop in _labels(slices, end):
        axes.text((start + stop) / 2, row, text, ha="center", va="center", clip_on=True)


def _labels(slices: Sequence[Slice], end: float) -> Iterator[tuple[str, float, float]]:
    """(text, start, end) of what there is room for."""
    for run in _runs(slices, JOINED * end):
        start, stop = run[0].start_ns, min(run[-1].end_ns, end)
        room = (stop - start) / (CHARACTER * end)
        text = next((x for x in _texts(run[0]) if len(x) <= room), "")
        if text:
            yield text, start, stop


def _texts(drawn: Slice) -> list[str]:
    """What a slice may be labelled, the longest first."""
    if drawn.kind in (HELD, TRANSFER, MESSAGE):
        return [drawn.name, drawn.name.removeprefix("held by ")]
    if drawn.kind == ISSUE or drawn.tile < 0:
        return []
    short = {SCORES: "QK", VALUES: "PV"}.get(drawn.kind, "")
    return [f"{short} {drawn.tile}".strip(), str(drawn.tile)]


def _runs(slices: Sequence[Slice], gap_ns: float) -> Iterator[list[Slice]]:
    """Neighbours that are the same kind of work on the same tile."""
    run: list[Slice] = []
    for each in slices:
        near = bool(run) and each.start_ns - run[-1].end_ns <= gap_ns
        if near and each.kind not in (HELD, ISSUE) and _same_work(run[-1], each):
            run.append(each)
            continue
        if run:
            yield run
        run = [each]
    if run:
        yield run


def _same_work(a: Slice, b: Slice) -> bool:
    return (a.kind, a.tile) == (b.kind, b.tile)


def _draw_gaps(axes: Axes, row: int, gaps: Sequence[Gap], end: float) -> None:
    """Frames where GEMM is idle, with the nanoseconds where there is room."""
    for start, stop in gaps:
        axes.barh(row, stop - start, left=start, height=BAR, **FRAME)
        text = f"{stop - start:,.0f} ns"
        if len(text) * CHARACTER * end <= stop - start:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
            middle = (start + stop) / 2
            axes.text(middle, row, text, color=IDLE, ha="center", va="center", bbox=box)


def _time_axis(axes: Axes, end: float) -> None:
    """Nanoseconds, or microseconds from 10 of them on."""
    if end < 10_000:
        axes.set_xlabel("ns")
        return
    axes.xaxis.set_major_formatter(lambda ns, _: f"{ns / 1e3:g}")
    axes.set_xlabel("us")


def _legend(figure: Figure, kinds: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=COLOURS[kind], label=MEANINGS.get(kind, kind)) for kind in kinds]
    patches.append(Patch(color="black", alpha=PALE, label="pale: waiting"))
    patches.append(Patch(label="GEMM idle", **FRAME))
    columns: dict[str, Any] = {"ncols": len(patches), "columnspacing": 1.2, "handlelength": 1.5}
    figure.legend(handles=patches, loc="outside lower left", frameon=False, **columns)
