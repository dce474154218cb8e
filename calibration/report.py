"""The report of a fit, as Markdown and as one HTML file: how good, how sure, where it is wrong."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

import numpy as np

from ahbm_jax.report.markdown import markdown_table
from calibration.fitting import FitResult, GroupFit
from calibration.machine_file import write_machines
from calibration.residual_plot import residual_plot

CELLS = 3  # of the worst places, for each group
LEAST_ROWS = 5  # of a place that is named as wrong


def write(result: FitResult, folder: Path) -> list[Path]:
    """Write fitted machines, pictures and reports into `folder`; returns all paths."""
    paths = write_machines(result, folder)
    pictures = []
    for i, group in enumerate(result.groups):
        path = folder / f"{result.spec.name}_residuals_{i}.png"
        residual_plot(group, path)
        pictures.append(path)
    markdown = folder / f"{result.spec.name}.md"
    page = folder / f"{result.spec.name}.html"
    markdown.write_text(_markdown(result, [p.name for p in pictures]))
    page.write_text(_html(result, pictures))
    return [*paths, *pictures, markdown, page]


def _sections(result: FitResult) -> list[tuple[str, list[str], list[list[str]], list[str]]]:
    """Title, heads of a table, its rows, and paragraphs, of each section."""
    document = result.document()
    splits = [
        [name, str(e["rows"]), *(f"{e[k]:.2f}" for k in ("mape", "median", "p90", "roofline_mape"))]
        for name, e in document["splits"].items()
    ]
    parameters = [
        [
            row["name"],
            f"{row['value']:.5g}",
            f"{row['standard_error']:.2g}",
            row["unit"],
            "" if row["identifiable"] else "not identifiable",
            "yes" if row["at_bound"] else "no",
        ]
        for row in document["parameters"]
    ]
    wrong = [sentence for group in result.groups for sentence in where_wrong(group)]
    correlated = [sentence for group in result.groups for sentence in _correlated(group)]
    heads = ["split", "rows held out", "mean %", "median %", "90 % below", "baseline's mean %"]
    names = ["parameter", "value", "standard error", "unit", "", "at a bound"]
    agree = (
        f"{document['starts_agreeing']} of {document['starts']} searches from starts up to 5 x "
        f"apart ended at the same loss. {document['rows']} rows of {document['data']}, hash "
        f"{document['data_hash']}, in {document['seconds']:.0f} s."
    )
    return [
        ("Held-out errors", heads, splits, [agree]),
        ("Where the model is wrong", [], [], wrong),
        ("Parameters", names, parameters, []),
        ("What moves together", [], [], correlated or ["No two parameters do (0.9 and more)."]),
        ("What the data cannot see", [], [], document["unseen"] or ["Nothing that is free."]),
    ]


def where_wrong(group: GroupFit) -> list[str]:
    """In words: on which axis the mean error varies most, and its worst places."""
    ratio = group.splits[0].predicted_ns / group.target_ns - 1
    every = 100 * np.abs(ratio).mean()
    label = f"{group.label}: " if group.label else ""
    places = []
    for axis in group.rows.spec.axes:
        column = group.rows.columns[axis]
        for value in np.unique(column):
            here = column == value
            if here.sum() >= LEAST_ROWS:
                mean, bias = 100 * np.abs(ratio[here]).mean(), 100 * ratio[here].mean()
                places.append((mean * np.sqrt(here.mean()), axis, value, mean, bias, here.sum()))
    places = [place for place in places if place[3] > 1.2 * every]
    places.sort(key=lambda place: -place[0])
    if not places:
        return [f"{label}no axis has a place with an error well above the mean of {every:.1f} %."]
    return [
        f"{label}{axis} = {value}: {mean:.1f} % over {count} rows (mean {every:.1f} %), "
        f"{abs(bias):.1f} % too {'long' if bias > 0 else 'short'} on average"
        for _, axis, value, mean, bias, count in places[:CELLS]
    ]


def _correlated(group: GroupFit) -> list[str]:
    names = [parameter.name for parameter in group.parameters.each]
    r = group.diagnosis.correlation
    pairs = [(i, j) for i in range(len(names)) for j in range(i) if abs(r[i, j]) > 0.9]
    return [f"{names[i]} and {names[j]}: correlation {r[i, j]:+.2f}" for i, j in pairs]


def _markdown(result: FitResult, pictures: list[str]) -> str:
    out = [f"# Fit `{result.spec.name}`", ""]
    for title, heads, rows, texts in _sections(result):
        out += [f"## {title}", ""]
        if rows:
            out += [*markdown_table(heads, rows), ""]
        out += [f"- {text}" for text in texts]
        out.append("")
    out += ["## Residuals by each axis", ""]
    out += [f"![{name}]({name})\n" for name in pictures]
    return "\n".join(out) + "\n"


STYLE = "body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;"
STYLE += "text-align:left;border-bottom:1px solid #ccc}table{border-collapse:collapse}"
STYLE += "img{max-width:100%}"


def _html(result: FitResult, pictures: list[Path]) -> str:
    name = html.escape(result.spec.name)
    out = [f"<!doctype html><meta charset=utf-8><title>{name}</title><style>{STYLE}</style>"]
    out.append(f"<h1>Fit {name}</h1>")
    for title, heads, rows, texts in _sections(result):
        out.append(f"<h2>{html.escape(title)}</h2>")
        if rows:
            out.append(f"<table>{_row(heads, 'th')}{''.join(_row(r, 'td') for r in rows)}</table>")
        out.append("<ul>" + "".join(f"<li>{html.escape(text)}" for text in texts) + "</ul>")
    out.append("<h2>Residuals by each axis</h2>")
    for picture in pictures:
        data = base64.b64encode(picture.read_bytes()).decode()
        out.append(f'<img alt="{html.escape(picture.name)}" src="data:image/png;base64,{data}">')
    return "\n".join(out) + "\n"


def _row(cells: list[Any], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
