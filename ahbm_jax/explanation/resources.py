"""Which resource each cost is time of."""

from __future__ import annotations

from collections.abc import Mapping

LATENCY = "latency"  # pipelined: nobody is occupied meanwhile
ENGINES = ("cpu", "dma", "gemm", "math", "port")
RESOURCES = (*ENGINES, LATENCY)
OF_COST = {
    "dma.issue": "dma",
    "hbm.byte": "dma",
    "cache.byte": "dma",
    "gemm.subtile": "gemm",
    "gemm.writeout": "gemm",
    "gemm.epilogue": "gemm",
    "math.pass": "math",
    "math.exp_pass": "math",
    "pe_link.overhead": "port",
    "pe_link.byte": "port",
    "cube_link.overhead": "port",
    "cube_link.byte": "port",
}


def resource_of(cost: str) -> str:
    """The resource that a cost (`ahbm_jax.machine.costs`) is time of."""
    return "cpu" if cost.startswith("issue.") else OF_COST.get(cost, LATENCY)


def grouped(spent_ns: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Times of costs by resource, those of most time first, without what takes none."""
    groups: dict[str, dict[str, float]] = {resource: {} for resource in RESOURCES}
    for cost, ns in sorted(spent_ns.items(), key=lambda item: -item[1]):
        if ns > 0:
            groups[resource_of(cost)][cost] = ns
    return dict(sorted(groups.items(), key=lambda item: -sum(item[1].values())))


def by_resource(spent_ns: Mapping[str, float]) -> dict[str, float]:
    """Times of costs summed up by resource."""
    return {resource: sum(costs.values()) for resource, costs in grouped(spent_ns).items()}
