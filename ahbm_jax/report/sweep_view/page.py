"""A sweep as one HTML page that needs no network."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ahbm_jax.report.sweep_view.colours import CANNOT, CLASS_COLOURS, COLOURS, MISSING_COLOUR
from ahbm_jax.report.sweep_view.grid import LEAST_ELASTICITY, UNEVALUATED, Grid, held
from ahbm_jax.report.sweep_view.picture import MISSING, Picture
from ahbm_jax.report.sweep_view.plot import LOG_SPAN

SHORT_HASH = 12


def page_of(grid: Grid, pictures: Sequence[Picture], title: str) -> str:
    """The page of a sweep's pictures."""
    from plotly.offline import get_plotlyjs

    here = files("ahbm_jax.report.sweep_view")
    names = ("page.css", "figures.js", "controls.js")
    style, *scripts = (here.joinpath(name).read_text("utf-8") for name in names)
    shared = {
        "grid": grid.document(),
        "colours": COLOURS,
        "classColours": CLASS_COLOURS,
        "cannot": CANNOT,
        "missing": MISSING_COLOUR,
        "logSpan": LOG_SPAN,
        "leastElasticity": LEAST_ELASTICITY,
    }
    parts = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8">',
        f"<title>{html.escape(title)}</title>",
        f"<style>{style}</style>",
        f"<h1>{html.escape(title)}</h1>",
        _head(grid),
        *(_section(picture) for picture in pictures),
        _data("grid", shared),
        f"<script>{get_plotlyjs()}</script>",
        *(f"<script>{script}</script>" for script in scripts),
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _head(grid: Grid) -> str:
    rows = [
        f"<tr><td>{html.escape(name)}<td>{html.escape(text)}" for name, text in facts(grid).items()
    ]
    return f"<table>{''.join(rows)}</table>"


def facts(grid: Grid) -> dict[str, str]:
    """What was swept, how much of it is done, and how much of it the page shows."""
    source, total = grid.source, grid.total
    waiting = grid.counts.get(UNEVALUATED, 0)
    failed = {grid.code_names[c]: n for c, n in sorted(grid.counts.items()) if c > 0}
    why = ", ".join(f"{name} {count:,}" for name, count in failed.items())
    axes = [f"{dim.name} ({dim.of:,})" for dim in grid.dims]
    fixed = [f"{name} {value}" for name, value in held(source).items()]
    found = {
        "kernel": _hashed(source, "kernel"),
        "machine": _hashed(source, "machine"),
        "workload": _hashed(source, "workload"),
        "made by": f"ahbm_jax {source.get('version')}, JAX {source.get('jax')} on "
        f"{source.get('platform')}, {source.get('precision')}",
        "varies": ", ".join(axes),
        "held": ", ".join(fixed) or "nothing",
        "points": f"{total:,}",
        "cannot run": f"{sum(failed.values()):,}" + (f" ({why})" if why else ""),
    }
    if waiting:
        done = 100 * (total - waiting) / total
        found["done"] = f"{done:.1f} % of the points; run `ahbm sweep` again to go on"
    if grid.extrapolated is not None:
        found["extrapolated"] = f"{grid.extrapolated:,}, outside the measurements of the machine"
    fewer = [f"{d.size:,} of {d.of:,} values of {d.name}" for d in grid.dims if d.size < d.of]
    if fewer:
        found["shown"] = f"{', '.join(fewer)}; the store has all"
    return found


def _hashed(source: dict[str, Any], name: str) -> str:
    return f"{source.get(name)} (sha256 {str(source.get(name + '_sha256'))[:SHORT_HASH]})"


def _section(picture: Picture) -> str:
    name = html.escape(picture.name)
    parts = [f'<section id="{name}"><h2>{html.escape(picture.title)}</h2>']
    parts.append(f"<p>{_prose(picture.says)}</p>")
    if picture.kind != MISSING:
        parts.append('<div class="controls"></div><div class="plot"></div>')
        parts.append('<button class="save">Save as plotly JSON</button>')
    parts.append(_data(f"picture-{name}", dataclasses.asdict(picture)) + "</section>")
    return "\n".join(parts)


def _prose(text: str) -> str:
    """Text whose parts in backticks are code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _data(name: str, document: Any) -> str:
    """Data in a page; a `<` in it cannot end the element."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'
