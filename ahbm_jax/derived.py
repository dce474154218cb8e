"""What follows from an evaluation's counters: bounds, utilisation, energy; numbers or arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ahbm_jax.interpret.timing import COMMAND_COUNTS, ENGINES
from ahbm_jax.machine.params import Energy

RESOURCES = ("memory", "dma", "gemm", "math", "issue", "link")
# Counters and how results call them.
COUNTS = {name: "composite" if name == "composites" else name for name in COMMAND_COUNTS}


def bounds_ns(report: Mapping[str, Any], hbm_ns_per_byte: Any) -> dict[str, Any]:
    """Rooflines: time of the busiest rank if nothing but one of `RESOURCES` took time."""
    hbm_bytes = report["most_dma_read_bytes"] + report["most_dma_write_bytes"]
    return {
        "memory": hbm_bytes * hbm_ns_per_byte,
        "dma": report["most_busy_dma"],
        "gemm": report["most_busy_gemm"],
        "math": report["most_busy_math"],
        "issue": report["most_busy_cpu"],
        "link": report["most_busy_port"],
    }


def utilisation(report: Mapping[str, Any]) -> dict[str, Any]:
    """Busy share of the busiest rank's engines."""
    return {e: report[f"most_busy_{e}"] / report["latency_ns"] for e in ENGINES}


def energy_pj(energy: Energy, report: Mapping[str, Any]) -> Any:
    """Energy of all ranks' work."""
    hbm = report["dma_read_bytes"] + report["dma_write_bytes"]
    return (
        hbm * energy.hbm_pj_per_byte
        + report["macs"] * energy.gemm_pj_per_mac
        + report["math_elements"] * energy.math_pj_per_element
        + report["sent_bytes"] * energy.link_pj_per_byte
    )
