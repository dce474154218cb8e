"""How fast design points are timed on this machine, beside a plain walk of the same commands.

Medians of `--repeats` runs within this process. Run on a quiet machine; `make bench` does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import ahbm_jax
from ahbm_jax.interpret.record import record
from ahbm_jax.kernel_names import variant_names
from ahbm_jax.knobs import point

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from contracts.walk import walk

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
WORKLOAD = ahbm_jax.load_workload("llama3_70b")
Points = dict[str, jax.Array]


def draw(count: int, contexts: tuple[float, float]) -> Points:
    """Random shapes and costs; contexts log-uniform between two powers of two."""
    rng = np.random.default_rng(0)
    drawn = {
        "context": np.floor(2 ** rng.uniform(*contexts, count)),
        "C": rng.choice([1, 2, 4, 8, 16], count),
        "P": rng.integers(1, 9, count),
        "tile": rng.choice([64, 128, 256, 512], count),
        "hbm.access_latency_ns": rng.uniform(60, 200, count),
        "hbm.pseudo_channel_gb_per_s": rng.uniform(25.6, 44, count),
        "dma.issue_cycles": rng.uniform(10, 50, count),
        "issue.composite_cycles": rng.uniform(0, 400, count),
        "issue.math_cycles": rng.uniform(0, 40, count),
        "gemm.stream_depth_subtiles": rng.choice([2, 8, 16, 64], count),
    }
    return {name: jnp.asarray(values, jnp.float32) for name, values in drawn.items()}


def timer(variant: str) -> Callable[[Points], jax.Array]:
    """Latency of many points."""

    def one(values: dict[str, Any]) -> jax.Array:
        return ahbm_jax.latency_ns("decode", MACHINE, WORKLOAD, variant=variant, **values)

    return jax.jit(jax.vmap(one))


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Median time of a call."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def walked_seconds(variant: str) -> float:
    """Time to record and walk one point: 64 ranks at 64k tokens."""
    settled = point("decode", MACHINE, WORKLOAD, {"variant": variant, "context": 65536})
    start = time.perf_counter()
    walk(MACHINE, record(settled.kernel, MACHINE, settled.launch()))
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=65536)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    columns = ("variant", "first call s", "points/s", "1k context", "1M context", "1M / 1k")
    table = Table(*columns, "walk s/point", "ratio", title=f"{options.points} random points")
    for variant in variant_names("decode"):
        latencies = timer(variant)
        mixed = draw(options.points, (8.0, 20.0))
        start = time.perf_counter()
        jax.block_until_ready(latencies(mixed))
        first = time.perf_counter() - start
        rates = []
        for contexts in ((8.0, 20.0), (10.0, 10.0), (20.0, 20.0)):
            points = draw(options.points, contexts)
            taken = seconds(lambda: jax.block_until_ready(latencies(points)), options.repeats)  # noqa: B023
            rates.append(options.points / taken)
        walked = walked_seconds(variant)
        table.add_row(
            variant,
            f"{first:.1f}",
            *(f"{rate:,.0f}" for rate in rates),
            f"{rates[1] / rates[2]:.2f}",
            f"{walked:.3f}",
            f"{walked * rates[0]:,.0f}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
