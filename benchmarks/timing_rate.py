"""How fast design points are timed on this machine, beside the event simulation of one of them.

Medians of `--repeats` runs within this process. Run on a quiet machine; `make bench` does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import ahbm_jax
from ahbm_jax.cli.sweep import use_all_cores
from ahbm_jax.events.simulation import execute
from ahbm_jax.interpret.record import record
from ahbm_jax.kernel_names import variant_names
from ahbm_jax.knobs import Point, point
from ahbm_jax.sweeps.program import compiled, spread

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
WORKLOAD = ahbm_jax.load_workload("llama3_70b")
Points = dict[str, jax.Array]
MIXED = (8.0, 20.0)  # contexts, as powers of two


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


def placed(variant: str, points: Points) -> tuple[Point, tuple[jax.Array, ...]]:
    """The numbers of many points, spread over a device for each core; and one of the points."""
    settled: list[Point] = []

    def leaves(values: dict[str, Any]) -> Any:
        settled.append(point("decode", MACHINE, WORKLOAD, {"variant": variant} | values))
        return settled[-1].arrays()

    arrays = [leaf.reshape(-1) for leaf in jax.vmap(leaves)(points)]
    size = max(leaf.size for leaf in arrays)
    wide = tuple(jax.device_put(jnp.broadcast_to(leaf, size), spread()) for leaf in arrays)
    return settled[-1], wide


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Median time of a call."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def large(count: int) -> Points:
    """Random costs of one shape: 64 ranks that sweep 256 tiles each."""
    shape = {"context": 2.0**20, "C": 8, "P": 8, "tile": 64}
    return draw(count, MIXED) | {n: jnp.full(count, x, jnp.float32) for n, x in shape.items()}


def simulated_seconds(variant: str, points: Points) -> float:
    """Time to record and simulate the first of `points`, whatever scratch it needs."""
    knobs = {name: float(values[0]) for name, values in points.items()}
    settled = point("decode", MACHINE, WORKLOAD, {"variant": variant} | knobs)
    start = time.perf_counter()
    launch = settled.launch()
    records = record(settled.kernel, settled.machine, launch)
    execute(settled.machine, records, cube_columns=launch.cube_cols)
    return time.perf_counter() - start


def measure(variant: str, count: int, repeats: int) -> list[str]:
    """The row of one variant."""
    sets = [draw(count, MIXED), draw(count, (10.0, 10.0)), draw(count, (20.0, 20.0)), large(count)]
    begin = time.perf_counter()
    one, numbers = placed(variant, sets[0])
    latencies = compiled(one.kernel, one.static, ("latency_ns",), 0, count, quick=False)
    jax.block_until_ready(latencies(numbers, ()))
    first = time.perf_counter() - begin
    rates = []
    for points in sets:
        _, numbers = placed(variant, points)
        taken = seconds(lambda: jax.block_until_ready(latencies(numbers, ())), repeats)  # noqa: B023
        rates.append(count / taken)
    simulated = simulated_seconds(variant, sets[-1])
    return [
        variant,
        f"{first:.1f}",
        *(f"{rate:,.0f}" for rate in rates[:3]),
        f"{rates[1] / rates[2]:.2f}",
        f"{rates[3]:,.0f}",
        f"{simulated:.1f}",
        f"{rates[3] * simulated:,.0f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=65536)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    use_all_cores()
    title = f"{options.points} random points; large: 64 ranks x 256 tiles, also simulated"
    columns = ("variant", "first call s", "points/s", "1k context", "1M context", "1M / 1k")
    table = Table(*columns, "large", "simulation s", "ratio", title=title)
    for variant in variant_names("decode"):
        table.add_row(*measure(variant, options.points, options.repeats))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
