"""The findings on the prefill ring that README's results quote, as Markdown tables.

Latencies by the timing interpreter; `--rate` adds how fast it answers on this machine.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measured import table

import ahbm_jax

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
WORKLOAD = ahbm_jax.load_workload("llama3_70b")
ROOM = {"scratch.capacity_bytes": 1e12}  # for what does not fit TCM, to see its time all the same
BASE = {
    "context": 8192,
    "query_length": 2048,
    "tile": 256,
    "query_tile": 64,
    "ring_chunk": 2048,
    "cube_link.bytes_per_cycle": 64,
    "pe_link.bytes_per_cycle": 64,
}


def latencies(
    points: list[dict[str, float]], kernel: str = "prefill_ring", **choices: Any
) -> np.ndarray:
    """Latency in us, on 8 x 8 ranks, of points that give the same knobs."""
    base = BASE if kernel == "prefill_ring" else {n: x for n, x in BASE.items() if "ring" not in n}
    rows = [base | point for point in points]
    columns = {name: jnp.array([float(row[name]) for row in rows]) for name in rows[0]}
    return np.asarray(program(kernel, **choices)(columns)) / 1e3


@functools.lru_cache(maxsize=1)
def program(kernel: str, **choices: Any) -> Callable[[dict[str, jax.Array]], jax.Array]:
    """Latency in ns of points given by their knobs, compiled when first called."""

    def one(values: dict[str, Any]) -> jax.Array:
        return ahbm_jax.latency_ns(kernel, MACHINE, WORKLOAD, C=8, P=8, **choices, **values)

    return jax.jit(jax.vmap(one))


def by_feed() -> None:
    """Both ways of feeding the PEs of a CUBE, by the widths of the links."""
    widths = [(cube, pe) for cube in (16, 64, 256, 1024) for pe in (16, 64, 256)]
    names = ("cube_link.bytes_per_cycle", "pe_link.bytes_per_cycle")
    points = [dict(zip(names, pair, strict=True)) for pair in widths]
    out = {feed: latencies(points, ring_feed=feed) for feed in ("gather", "lanes")}
    print("2k tokens on 8k, us, by how chunks get to the PEs\n")
    rows = [
        [str(cube), str(pe), *(f"{out[feed][i]:.1f}" for feed in out)]
        for i, (cube, pe) in enumerate(widths)
    ]
    table(["CUBE link, bytes a cycle", "PE link", *out], rows)


def by_layout() -> None:
    """Placements: the balance of the CUBEs, and the time."""
    lengths = (2048, 8192)
    print("Prompts of their own length, us: contiguous, and balanced placements\n")
    rows = []
    for layout in ("contiguous", "zigzag", "round_robin"):
        points = [{"context": n, "query_length": n} for n in lengths]
        rows.append([layout, *(f"{x:.1f}" for x in latencies(points, layout=layout))])
    table(["placement", *(f"{n:,} tokens" for n in lengths)], rows)


def against_a_reduce() -> None:
    """The ring against each rank folding all rows on its own KV and a reduce of [T, d]."""
    points = [{"context": c, "query_length": t} for c, t in ((8192, 512), (8192, 2048))]
    ring = latencies(points)
    reduced = latencies(points, "prefill", variant="opt3", **ROOM)
    fanned = latencies(points, "mesh_kv", **ROOM)
    print("Ring, reduce of every block's (m, l, O), fan-out of K and V (us; scratch unbounded)\n")
    rows = [
        [f"{int(p['query_length']):,} on {int(p['context']):,}", *(f"{x:.0f}" for x in found)]
        for p, found in zip(points, zip(ring, reduced, fanned, strict=True), strict=True)
    ]
    table(["tokens", "prefill_ring", "prefill, reduced", "mesh_kv"], rows)


def by_size() -> None:
    """Query tile and ring chunk."""
    tiles, chunks = (16, 32, 64, 128, 256), (512, 1024, 2048, 4096)
    points = [{"query_tile": q, "ring_chunk": c} for q in tiles for c in chunks]
    out = latencies(points).reshape(len(tiles), len(chunks))
    print("2k tokens on 8k, us, by query tile of a PE and KV tokens of a CUBE in a chunk\n")
    rows = [
        [str(q), *("-" if np.isinf(x) else f"{x:.1f}" for x in row)]
        for q, row in zip(tiles, out, strict=True)
    ]
    table(["query tile", *(f"chunk {c:,}" for c in chunks)], rows)


def rate(count: int = 64) -> None:
    """Points a second on this machine."""
    rows = []
    for context, length in ((8192, 512), (8192, 2048), (131072, 2048), (8192, 8192)):
        sizes = {"context": context, "query_length": length}
        rng = np.random.default_rng(0)
        points = [sizes | {"cube_link.bytes_per_cycle": x} for x in rng.uniform(16, 256, count)]
        latencies(points)
        start = time.perf_counter()
        latencies(points)
        rows.append([f"{length:,} on {context:,}", f"{count / (time.perf_counter() - start):,.0f}"])
    table(["tokens", "points/s"], rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", action="store_true", help="measure the rate alone")
    if parser.parse_args().rate:
        rate()
        return
    by_feed()
    by_layout()
    against_a_reduce()
    by_size()


if __name__ == "__main__":
    main()
