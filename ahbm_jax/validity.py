"""Whether a point is inside the measurements that a fitted machine's numbers are from."""

from __future__ import annotations

import dataclasses

from ahbm_jax.knobs import Point


def outside(settled: Point) -> list[str]:
    """What of a concrete point lies outside, in words; nothing if the machine was not fitted."""
    validity = settled.machine.validity
    if validity is None:
        return []
    ends = dataclasses.asdict(validity)
    found = []
    for name in (field.removeprefix("least_") for field in ends if field.startswith("least_")):
        size, least, most = float(settled.leaves[name]), ends[f"least_{name}"], ends[f"most_{name}"]
        if not least <= size <= most:
            found.append(f"{name} is {size:g}; measured: {least:g} to {most:g}")
    return found
