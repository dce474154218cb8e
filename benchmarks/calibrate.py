"""Every shipped fit, one after the other, and the table of their held-out errors.

    AHBM_DATA=... .venv/bin/python benchmarks/calibrate.py [--out FOLDER] [FIT ...]

Writes each fit's machines, report and JSON, and prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.home() / ".cache" / "ahbm_jax"))

import calibration
from ahbm_jax.config import shipped
from ahbm_jax.errors import AhbmError
from calibration.proposal import propose
from calibration.report import write


def main() -> None:
    """Run the fits that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fits", nargs="*", metavar="FIT", default=shipped.names("fits"))
    parser.add_argument("--out", type=Path, default=Path("out/calibration"))
    options = parser.parse_args()
    print("| fit | split | rows held out | mean % | median % | 90 % below | baseline's mean % |")
    print("|---|---|---|---|---|---|---|")
    documents = [_fit(name, options.out) for name in options.fits]
    print("\n| fit | rows | seconds | starts that agree | parameters at a bound |")
    print("|---|---|---|---|---|")
    for d in documents:
        bound = sum(row["at_bound"] for row in d["parameters"])
        agreeing = f"{d['starts_agreeing']} of {d['starts']}"
        print(f"| {d['name']} | {d['rows']} | {d['seconds']:.0f} | {agreeing} | {bound} |")


def _fit(name: str, out: Path) -> dict[str, Any]:
    result = calibration.fit(name)
    document = result.document() | {"plan": propose(result)}
    write(result, out)
    (out / f"{name}.json").write_text(json.dumps(document, indent=1))
    for split, errors in document["splits"].items():
        numbers = (f"{errors[key]:.2f}" for key in ("mape", "median", "p90", "roofline_mape"))
        print(f"| {name} | {split} | {errors['rows']} | {' | '.join(numbers)} |", flush=True)
    return document


if __name__ == "__main__":
    try:
        main()
    except AhbmError as error:
        raise SystemExit(f"calibrate: {error}") from error
