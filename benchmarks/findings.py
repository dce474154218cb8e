"""The findings that README's results quote, from the timing model, as Markdown tables."""

from __future__ import annotations

import replaced
import tuning
from measured import CONTEXTS, VARIANTS, latencies, table


def by_context() -> None:
    """Latency of the variants on 8 x 8 ranks."""
    points = [{"context": c} for c in CONTEXTS]
    print("Latency in us, 8 x 8 ranks, tile 256\n")
    rows = [[v, *(f"{x:.2f}" for x in latencies(v, points))] for v in VARIANTS]
    table(["variant", *(f"{c:,}" for c in CONTEXTS)], rows)


def best_cubes() -> None:
    """Latency by C, and the best one."""
    cubes, contexts = (1, 2, 4, 8, 16), (1024, 4096, 8192, 16384, 32768, 131072, 1048576)
    print("opt3: latency in us by C, P = 8\n")
    points = [{"context": c, "C": x} for c in contexts for x in cubes]
    out = latencies("opt3", points).reshape(len(contexts), len(cubes))
    rows = [
        [f"{c:,}", *(f"{x:.2f}" for x in row), str(cubes[int(row.argmin())])]
        for c, row in zip(contexts, out, strict=True)
    ]
    table(["context", *(f"C = {c}" for c in cubes), "best C"], rows)


def issue_costs() -> None:
    """What opt2 gains over opt3 as issuing gets dearer: all issue costs times a factor."""
    factors = (0.0, 1.0, 2.0, 5.0, 10.0)
    points = [
        {
            "context": 131072,
            "issue.math_cycles": 4 * f,
            "issue.composite_cycles": 40 * f,
            "issue.ex_composite_cycles": 40 * f,
            "issue.loop_cycles": 4 * f,
            "dma.issue_cycles": dma,
        }
        for dma in (25, 0)
        for f in factors
    ]
    print(
        "128k tokens on 8 x 8 ranks, latency in us; issue costs of composite, MATH and loop x f\n"
    )
    opt1, opt3, opt2 = (latencies(v, points) for v in ("opt1", "opt3", "opt2"))
    rows = [
        [
            f"{p['dma.issue_cycles']}",
            f"{p['issue.math_cycles'] / 4:g}",
            *(f"{x[i]:.2f}" for x in (opt1, opt3, opt2)),
            f"{100 * (1 - opt2[i] / opt3[i]):.1f} %",
        ]
        for i, p in enumerate(points)
    ]
    table(["DMA issue cycles", "f", "opt1", "opt3", "opt2", "opt2 saves of opt3"], rows)


def lazy_v() -> None:
    """opt3v against opt3 by tile and DMA issue cost."""
    tiles, costs = (64, 128, 256, 512, 1024), (0, 10, 25, 50)
    points = [
        {"context": 131072, "tile": t, "dma.issue_cycles": d}
        for d in (0, 10, 25, 50)
        for t in tiles
    ]
    print("opt3v / opt3 at 128k tokens on 8 x 8 ranks, by tile and DMA issue cycles\n")
    ratio = (latencies("opt3v", points) / latencies("opt3", points)).reshape(4, len(tiles))
    rows = [[str(d), *(f"{x:.3f}" for x in row)] for d, row in zip(costs, ratio, strict=True)]
    table(["DMA issue cycles", *(f"tile {t}" for t in tiles)], rows)


def one_shot() -> None:
    """One-shot against tiled by the tokens of a rank."""
    tokens = (128, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
    points = [{"context": n, "C": 1, "P": 1} for n in tokens]
    print("One rank (C = P = 1), latency in us by tokens, tile 256\n")
    kinds = ("one_shot", "dot", "opt1", "opt3", "opt3v", "opt2")
    rows = [[v, *(f"{x:.2f}" for x in latencies(v, points))] for v in kinds]
    table(["variant", *(f"{n:,}" for n in tokens)], rows)


if __name__ == "__main__":
    by_context()
    best_cubes()
    issue_costs()
    lazy_v()
    one_shot()
    tuning.tables()
    replaced.tables()
