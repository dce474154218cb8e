"""What the latency would be with one resource twice as fast."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ahbm_jax.explanation.resources import RESOURCES, by_resource, resource_of
from ahbm_jax.knobs import Point
from ahbm_jax.result import explained

Path = dict[str, float]  # time of each cost on a critical path
TAKEN_OVER = 0.01  # of the latency: a prediction further off than this missed another resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Faster:
    """The latency with the costs of `resource` halved.

    Attributes:
      predicted_ns: the latency less half the time that the resource has on the critical path. A
        lower bound: the latency is the longest of many paths, and another one may now be.
      exact_ns: evaluated anew.
      taken_over_by: where the two are further apart than `TAKEN_OVER`, the resource whose time on
        the critical path grew most.
    """

    resource: str
    predicted_ns: float
    exact_ns: float
    taken_over_by: str | None


def with_faster(settled: Point) -> tuple[Path, tuple[Faster, ...]]:
    """The point's critical path by cost, and what it gains from each resource."""
    points = [settled, *(scaled(settled, resource, 0.5) for resource in RESOURCES)]
    reports, paths = explained(points)
    now, then = paths[0], zip(RESOURCES, reports[1:], paths[1:], strict=True)
    latency = reports[0]["latency_ns"]
    return now, tuple(
        _faster(x, latency, now, report["latency_ns"], path) for x, report, path in then
    )


def scaled(settled: Point, resource: str, factor: float) -> Point:
    """A point with the costs of one resource multiplied."""
    costs = {name: settled.leaves[name] for name in settled.static.cost_names}
    moved = {name: factor * x for name, x in costs.items() if resource_of(name) == resource}
    return replace(settled, leaves=settled.leaves | moved)


def _faster(resource: str, latency: float, now: Path, exact: float, then: Path) -> Faster:
    before, after = by_resource(now), by_resource(then)
    predicted = latency - before[resource] / 2
    grown = {name: after[name] - before[name] for name in RESOURCES if name != resource}
    missed = exact - predicted > TAKEN_OVER * latency
    return Faster(
        resource=resource,
        predicted_ns=predicted,
        exact_ns=exact,
        taken_over_by=max(grown, key=lambda name: grown[name]) if missed else None,
    )
