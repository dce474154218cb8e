"""Every shipped fit, one after the other, and the tables of their held-out errors and seconds.

    AHBM_DATA=... .venv/bin/python benchmarks/calibrate.py [--out FOLDER] [--docs FILE] [FIT ...]

Writes each fit's machines, report and JSON, and prints Markdown; `--docs` puts that between the
comments of a page, as docs/calibration.md has them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "ahbm_jax"))

import jax
import numpy as np

import calibration
from ahbm_jax.config import shipped
from ahbm_jax.config.fit import Free
from ahbm_jax.config.load import load_fit
from ahbm_jax.errors import AhbmError
from ahbm_jax.report.markdown import markdown_table
from calibration.measurements import find
from calibration.proposal import propose
from calibration.report import write

BEGIN, END = "<!-- made by benchmarks/calibrate.py -->", "<!-- end -->"
ERRORS = ("mape", "median", "p90", "roofline_mape")
TWELVE_ROWS = 1000


def main() -> None:
    """Run the fits that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fits", nargs="*", metavar="FIT", default=shipped.names("fits"))
    parser.add_argument("--out", type=Path, default=Path("out/calibration"))
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    begin = time.monotonic()
    documents = [_fit(name, options.out) for name in options.fits]
    whole = time.monotonic() - begin
    lines = [
        *_errors(documents),
        "",
        *_searches(documents),
        "",
        f"All of them, with their reports, proposals and compilation: {whole:.0f} s.",
    ]
    if options.fits == shipped.names("fits"):
        lines += _twelve()
    text = "\n".join(lines)
    print(text)
    if options.docs is not None:
        before, _, rest = options.docs.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        options.docs.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def _fit(name: str, out: Path) -> dict[str, Any]:
    result = calibration.fit(name)
    document = result.document() | {"plan": propose(result)}
    write(result, out)
    (out / f"{name}.json").write_text(json.dumps(document, indent=1))
    return document


def _errors(documents: list[dict[str, Any]]) -> list[str]:
    head = ["fit", "split", "rows held out", "mean", "median", "90 % below", "baseline's mean"]
    rows = [
        [d["name"], split, str(errors["rows"]), *(f"{errors[key]:.2f}" for key in ERRORS)]
        for d in documents
        for split, errors in d["splits"].items()
    ]
    return markdown_table(head, rows)


def _searches(documents: list[dict[str, Any]]) -> list[str]:
    head = ["fit", "rows", "seconds", "starts that agree", "at a bound", "not identifiable"]
    rows = []
    for d in documents:
        bound = [row["name"] for row in d["parameters"] if row["at_bound"]]
        unseen = [row["name"] for row in d["parameters"] if not row["identifiable"]]
        agreeing = f"{d['starts_agreeing']} of {d['starts']}"
        names = (", ".join(each) or "none" for each in (bound, unseen))
        rows.append([d["name"], str(d["rows"]), f"{d['seconds']:.0f}", agreeing, *names])
    return markdown_table(head, rows)


def _twelve() -> list[str]:
    """Seconds of a fit of 12 parameters to 1,000 rows of H100 decode, compilation included."""
    jax.config.update("jax_enable_compilation_cache", False)
    jax.clear_caches()
    spec = load_fit("h100_decode")
    rows = calibration.load(find(spec.data, None), spec.format)
    rows = rows.take(np.flatnonzero(rows.matching(spec.where)))
    rows = rows.take(np.sort(np.random.default_rng(0).permutation(len(rows))[:TWELVE_ROWS]))
    free = [
        dataclasses.replace(one, by="n_kv_heads") if one.key == "dma.startup_cycles" else one
        for one in spec.parameters
    ]
    free.append(Free(key="issue.composite_cycles", low=0.1, high=200.0, start=2.0))
    found = calibration.fit(dataclasses.replace(spec, parameters=tuple(free)), rows).document()
    what = f"{len(found['parameters'])} parameters, {found['rows']} rows of H100 decode"
    searches = f"{found['starts']} starts, {len(spec.splits)} splits"
    return ["", f"{what}, {searches}, all compiled anew: {found['seconds']:.0f} s."]


if __name__ == "__main__":
    try:
        main()
    except AhbmError as error:
        raise SystemExit(f"calibrate: {error}") from error
