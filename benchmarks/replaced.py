"""What ADR-0060 says it gains over what it replaces, measured."""

from __future__ import annotations

from measured import MACHINE, ONE_PE, WORKLOAD, counts, latencies, of_group, shown, table

from ahbm_jax.machine.number import cdiv

CONTEXTS = (1024, 8192, 131072)


def reduce_to_root() -> None:
    """Section 4: a reduce to a root against a fan-out to all and an all-reduce."""
    print("8 x 8 ranks, latency in us: one query head, then the 8 of a group\n")
    points = [{"context": c} for c in CONTEXTS]
    rows = []
    for kernel, variant in (
        ("decode", "dot"),
        ("decode", "opt3"),
        ("mesh_mlo_2d", "dot"),
        ("mesh_mlo", "dot"),
    ):
        for packed in (False, True):
            found = [
                shown(x)
                for heads in (1, 8)
                for x in latencies(
                    variant, points, kernel=kernel, workload=of_group(heads), packed=packed
                )
            ]
            rows.append([f"{kernel} {variant}", "one" if packed else "three", *found])
    heads = [f"{c // 1024}k, {n}" for n in ("one head", "8 heads") for c in CONTEXTS]
    table(["kernel", "messages", *heads], rows)


def causal_skip() -> None:
    """Section 5.4: tile steps of a prompt, against those of every tile for every block."""
    block, tile = 4, 128
    print(
        f"prefill opt3 of a prompt on one rank, {block} query tokens and {tile} KV tokens a step\n"
    )
    sizes = {"query_tile": block, "tile": tile, "C": 1, "P": 1}
    rows = []
    for length in (512, 1024, 2048, 4096, 8192):
        first, second = (
            counts("prefill", "opt3", ONE_PE, WORKLOAD, context=end, query_length=length, **sizes)
            for end in (length, 2 * length)
        )
        closed = sum(cdiv(end, tile) for end in range(block, length + 1, block))
        steps, grid = first["composites"] / 2, length // block * cdiv(length, tile)
        us = [x["latency_ns"] / 1e3 for x in (first, second)]
        row = [f"{x:,.0f}" for x in (length, steps, closed, grid)]
        rows.append([*row, f"{steps / grid:.3f}", *(f"{x:,.0f}" for x in us)])
    head = [
        "tokens",
        "steps",
        "closed form",
        "all",
        "share",
        "us",
        "us of as many more behind them",
    ]
    table(head, rows)


def reuse() -> None:
    """Section 11 item 2: DMA reads and time against the query heads of a group."""
    groups = (1, 2, 4, 8, 16, 32, 64)
    print("8k tokens on 8 x 8 ranks by query heads on a KV head (G)\n")
    rows = []
    for kernel, variant in (("decode", "opt3"), ("decode", "dot"), ("mesh_mlo_2d", "dot")):
        found = [
            counts(kernel, variant, MACHINE, of_group(g), context=8192, C=8, P=8, tile=256)
            for g in groups
        ]
        name = f"{kernel} {variant}"
        rows.append([name, "DMA reads", *(f"{x['dma_reads']:,.0f}" for x in found)])
        rows.append([name, "MB read", *(f"{x['dma_read_bytes'] / 1e6:.2f}" for x in found)])
        rows.append([name, "us", *(shown(x["latency_ns"] / 1e3) for x in found)])
    table(["kernel", "", *(f"G = {g}" for g in groups)], rows)


def batches() -> None:
    """Requests through one group: what running them back to back saves, and mixed batches."""
    print("8 x 8 ranks, opt3, us: one request, eight of them, and eight times one\n")
    points = [{"context": c, "users": u} for c in CONTEXTS for u in (1, 8)]
    found = latencies("opt3", points).reshape(-1, 2)
    rows = [
        [f"{c:,}", shown(one), shown(eight), f"{100 * (1 - eight / (8 * one)):.0f} %"]
        for c, (one, eight) in zip(CONTEXTS, found, strict=True)
    ]
    table(["context", "one", "eight", "less than 8 x one"], rows)
    print("The same: eight that decode, a chunk of 512 tokens, and both as one batch\n")
    chunk = {"query_length": 512, "query_tile": 2}
    rows = []
    for context in CONTEXTS:
        sizes = {"context": context, "C": 8, "P": 8, "tile": 256}
        decode, prefill, mixed = (
            counts(kernel, "opt3", MACHINE, WORKLOAD, **sizes, **more)["latency_ns"] / 1e3
            for kernel, more in (
                ("decode", {"users": 8}),
                ("prefill", chunk),
                ("prefill", chunk | {"decode_users": 8}),
            )
        )
        less = 100 * (1 - mixed / (decode + prefill))
        rows.append([f"{context:,}", *map(shown, (decode, prefill, mixed)), f"{less:.1f} %"])
    table(["context", "eight decode", "a chunk", "one batch", "less than their sum"], rows)


def tables() -> None:
    """All of them."""
    reduce_to_root()
    causal_skip()
    reuse()
    batches()
