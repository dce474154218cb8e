"""The points of a bench, all checked before the first is run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ahbm_jax.bench.heads import Share
from ahbm_jax.config.bench import Bench, Panel
from ahbm_jax.errors import AhbmError, ConfigError
from ahbm_jax.knobs import Point, point
from ahbm_jax.machine.number import cdiv
from ahbm_jax.machine.params import Machine, Workload

PANEL_KEYS = ("variant", "context", "C", "P", "tile", "users", "layout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row to be: a point, and where in the bench it comes from."""

    panel: Panel
    variant: str
    point: Point

    @property
    def context(self) -> int:
        """Tokens in the KV cache."""
        return int(self.point.knobs.context)


def plan(bench: Bench, machine: Machine, workload: Workload, heads: Share) -> list[Job]:
    """Every variant at every context and C of every panel.

    Raises:
      ConfigError: with everything in the panels that the kernel, machine or model refuses.
    """
    jobs: list[Job] = []
    problems: list[str] = []
    for panel in bench.panels:
        for variant, context, cubes in itertools.product(
            panel.variants, panel.contexts_tokens, panel.cubes
        ):
            try:
                knobs = dict(_knobs(panel, variant, context, cubes, machine, heads))
                settled = point(panel.kernel, machine, workload, knobs)
            except (AhbmError, ValueError) as error:
                problems.append(f"bench `{bench.name}`, panel `{panel.name}`: {error}")
            else:
                jobs.append(Job(panel=panel, variant=variant, point=settled))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return jobs


def _knobs(
    panel: Panel, variant: str, context: int, cubes: int, machine: Machine, heads: Share
) -> Iterator[tuple[str, Any]]:
    for name, value in panel.knobs.items():
        if name.lower() in [key.lower() for key in PANEL_KEYS]:
            raise ValueError(f"`knobs` has `{name}`, which the panel's own keys set; take it out")
        yield name, value
    one_shot = panel.tile_tokens == "one-shot"
    yield "tile", cdiv(context, cubes * panel.pes) if one_shot else panel.tile_tokens
    yield from {"variant": variant, "context": context, "C": cubes, "P": panel.pes}.items()
    groups_fit = cubes <= machine.grid.cubes  # if not, `point` says so
    yield "users", heads.users_per_group(panel.users, machine.grid, cubes) if groups_fit else 1
    if panel.layout is not None:
        yield "layout", panel.layout
