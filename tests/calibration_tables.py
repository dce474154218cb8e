"""Measurements of a machine with hidden costs, by the event simulation."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import ahbm_jax
from ahbm_jax.config.fit import Free
from ahbm_jax.events.simulation import execute
from ahbm_jax.interpret.record import record
from ahbm_jax.knobs import point
from ahbm_jax.machine.params import replace

HIDDEN = {
    "dma.startup_cycles": 310.0,
    "issue.load_cycles": 33.0,
    "hbm.sustained_fraction": 0.62,
    "dma.issue_cycles": 9.0,
}
FREE = tuple(
    Free(key=key, low=low, high=high)
    for key, low, high in [
        ("dma.startup_cycles", 20.0, 5000.0),
        ("issue.load_cycles", 1.0, 400.0),
        ("hbm.sustained_fraction", 0.05, 1.0),
        ("dma.issue_cycles", 0.1, 400.0),
    ]
)
COUNTS, BYTES = (1, 4, 16, 64), (64, 128, 256, 512, 1024, 2048, 4096, 8192)


@functools.cache
def simulated() -> dict[str, Any]:
    """Transactions on a machine with hidden costs, timed by the event simulation."""
    machine = replace(ahbm_jax.load_machine("wormhole"), HIDDEN)
    model = dataclasses.replace(
        ahbm_jax.load_workload("smollm2_135m"), query_heads=1, kv_heads=1, head_dim=1
    )
    rows: dict[str, list[Any]] = {name: [] for name in ("n", "bytes", "latency")}
    for count in COUNTS:
        for size in BYTES:
            knobs = {"variant": "reads", "C": 1, "P": 1, "sequences": count, "context": size // 2}
            each = point("microbench", machine, model, knobs)
            commands = record(each.kernel, machine, each.launch())
            latency = execute(machine, commands, cube_columns=1).latency_ns
            for name, x in (("n", count), ("bytes", size), ("latency", latency)):
                rows[name].append(x)
    total = len(rows["n"])
    return {
        "arch": ["sim"] * total,
        "pattern": ["reads"] * total,
        "memory": ["L1"] * total,
        "num_transactions": rows["n"],
        "num_peers": [1] * total,
        "same_axis": [1] * total,
        "transaction_bytes": rows["bytes"],
        "latency_cycles": rows["latency"],  # the clock is 1 GHz
    }
