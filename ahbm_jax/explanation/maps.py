"""The max-plus maps of a kernel's loops, and the part of each entry that a resource takes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from ahbm_jax.explanation.cycle import critical_cycle, cycle_mean
from ahbm_jax.explanation.resources import RESOURCES, resource_of
from ahbm_jax.interpret.evaluate import Static, evaluate, leaf_names
from ahbm_jax.interpret.iteration import LoopMap
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.knobs import Point
from ahbm_jax.result import QUICK_TO_COMPILE

Maps = tuple[list[jax.Array], list[LoopMap]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMap:
    """One loop's map at one point, for the ranks of one lane.

    Attributes:
      names: of the clocks.
      matrix: [to, from]; the last coordinate is what no iteration changes.
      parts: [resources, to, from]: which part of an entry is time of each of `RESOURCES`.
      states: clocks before and after the first iteration, [2, clocks].
      trips: equal iterations.
      order: fill-order position of a rank of the lane.
    """

    names: tuple[str, ...]
    matrix: np.ndarray
    parts: np.ndarray
    states: np.ndarray
    trips: int
    order: int

    def cycle(self) -> tuple[float, tuple[int, ...]]:
        """The largest mean of a cycle of the clocks, and such a cycle."""
        return critical_cycle(self.matrix[:-1, :-1])

    def spent_ns(self, cycle: tuple[int, ...]) -> dict[str, float]:
        """Mean time of each resource on an arc of a cycle."""
        means = cycle_mean(np.moveaxis(self.parts, 0, -1), cycle)
        return {name: float(ns) for name, ns in zip(RESOURCES, means, strict=True)}


def loop_maps(points: Sequence[Point]) -> list[list[list[LaneMap]]]:
    """Of each outermost loop of tiles, by point, the map of each lane.

    The points share a kernel and its static knobs. Of several requests it is those of the first:
    a request does not change the map, only the clocks at which its loop starts.
    """
    first = points[0]
    static = replace(first.static, several=False, mixed=False)
    with jax.enable_x64(True):
        rows = [[float(x[0]) for x in replace(p, static=static).arrays()] for p in points]
        slopes, maps = jax.device_get(maps_function(first.kernel, static)(*np.asarray(rows).T))
    return [
        [_lanes(found, parts, i) for i in range(len(points))]
        for parts, found in zip(slopes, maps, strict=True)
    ]


@functools.lru_cache(maxsize=64)
def maps_function(kernel: Kernel, static: Static) -> Callable[..., Maps]:
    """Of leaves [n] each: per loop, the entries' time by resource, and the map."""
    names, costs = leaf_names(static), len(static.cost_names)
    owners = [
        [resource_of(cost) == resource for cost in static.cost_names] for resource in RESOURCES
    ]

    def maps(*leaves: jax.Array) -> Maps:
        place = [leaf.reshape(1, 1, -1) for leaf in leaves]

        def of_costs(*moved: jax.Array) -> Maps:
            loops: list[LoopMap] = []
            point = dict(zip(names, (*moved, *place[costs:]), strict=True))
            evaluate(kernel, static, point, counting=False, loops=loops)
            return [loop.matrix for loop in loops], loops

        def along(owned: jax.Array) -> Maps:
            tangents = tuple(mask * leaf for mask, leaf in zip(owned, place, strict=False))
            _, slopes, loops = jax.jvp(of_costs, tuple(place[:costs]), tangents, has_aux=True)
            return slopes, loops

        return jax.vmap(along, out_axes=(0, None))(jnp.asarray(owners, leaves[0].dtype))

    return jax.jit(maps, compiler_options=QUICK_TO_COMPILE)


def _lanes(found: LoopMap, parts: np.ndarray, point: int) -> list[LaneMap]:
    matrix, lanes = np.asarray(found.matrix), np.ndindex(found.trips.shape[:2])
    return [
        LaneMap(
            names=found.names,
            matrix=matrix[:, :, *lane, point],
            parts=parts[:, :, :, *lane, point],
            states=np.stack([found.start[:, *lane, point], found.first[:, *lane, point]]),
            trips=int(found.trips[*lane, point]),
            order=int(found.order[*lane, point]),
        )
        for lane in lanes
    ]
