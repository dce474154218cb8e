"""The open tuning items of ADR-0060 section 9 that are not in `findings.py`, with numbers."""

from __future__ import annotations

import itertools

from measured import MACHINE, VARIANTS, latencies, shown, table

from ahbm_jax.machine.params import replace

LONG = 131072


def stream_depth() -> None:
    """Item 1: sub-tiles that a composite streams ahead."""
    depths = (1, 2, 4, 8, 12, 16, 32, 64)
    points = [{"context": LONG, "gemm.stream_depth_subtiles": d} for d in depths]
    print("128k tokens on 8 x 8 ranks, latency in us by stream depth (sub-tiles of 4 KiB)\n")
    rows = [[v, *map(shown, latencies(v, points))] for v in VARIANTS]
    table(["variant", *map(str, depths)], rows)


def queue_depth() -> None:
    """Item 1: composites that the CPU issues ahead."""
    depths = (1, 2, 3, 4, 8)
    machines = [replace(MACHINE, {"scheduler.queue_depth_composites": d}) for d in depths]
    print("128k tokens on 8 x 8 ranks, latency in us by composites in the queue\n")
    rows = [
        [v, *(shown(latencies(v, [{"context": LONG}], machine=m)[0]) for m in machines)]
        for v in ("opt1", "opt3", "opt2")
    ]
    table(["variant", *map(str, depths)], rows)


def topology() -> None:
    """Item 2: how partials are reduced, and in how many messages."""
    contexts = (1024, 8192, LONG)
    print("opt3 on 8 x 8 ranks, latency in us by reduce over PEs, over CUBEs, and packing\n")
    rows = []
    for pes, cubes, packed in itertools.product(("tree", "ring"), ("mesh", "ring"), (False, True)):
        choices = {"level2": pes, "level1": cubes, "packed": packed}
        found = latencies("opt3", [{"context": c} for c in contexts], **choices)
        rows.append([pes, cubes, "one" if packed else "three", *map(shown, found)])
    table(["PEs", "CUBEs", "messages", *(f"{c:,}" for c in contexts)], rows)


def tiles() -> None:
    """Item 3: tokens of a tile."""
    sizes = (32, 64, 128, 256, 512, 1024, 2048)
    print("128k tokens on 8 x 8 ranks, latency in us by tile\n")
    points = [{"context": LONG, "tile": t} for t in sizes]
    rows = [[v, *map(shown, latencies(v, points))] for v in VARIANTS]
    table(["variant", *(f"tile {t}" for t in sizes)], rows)


def tables() -> None:
    """All of them."""
    stream_depth()
    queue_depth()
    topology()
    tiles()
