"""The variables that a sweep can give: names, units, and how each follows from an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ahbm_jax.derived import COUNTS, RESOURCES, bounds_ns, energy_pj, utilisation
from ahbm_jax.errors import UsageError, nearest
from ahbm_jax.interpret.evaluate import RESULTS
from ahbm_jax.interpret.timing import ENGINES
from ahbm_jax.machine.costs import costs_ns
from ahbm_jax.machine.params import Machine

Array = jax.Array


@dataclass(frozen=True, slots=True)
class Facts:
    """What a variable is made of; arrays [n], `elasticity` [costs, n]."""

    report: dict[str, Array]
    leaves: dict[str, Array]
    energy: Any
    elasticity: Array | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable.

    Attributes:
      unit: "1" where it is a share or a code.
      doc: one line.
      of: its values, [n], or [labels, n] where it has a dimension of its own.
      dimension: name of that dimension.
      labels: what its entries are called, or the meanings of a code.
      counting: it needs counters, which take time.
      dtype: of the stored values.
    """

    unit: str
    doc: str
    of: Callable[[Facts], Array]
    dimension: str | None = None
    labels: tuple[str, ...] = ()
    counting: bool = True
    dtype: str = "float32"


def _ok(facts: Facts) -> Array:
    return facts.report["result_code"] == 0


def _where_ok(facts: Facts, x: Array) -> Array:
    return jnp.where(jnp.broadcast_to(_ok(facts), x.shape), x, jnp.nan)


def _stack(facts: Facts, parts: dict[str, Array]) -> Array:
    return _where_ok(facts, jnp.stack(list(parts.values())))


def _latency(facts: Facts) -> Array:
    return jnp.where(_ok(facts), facts.report["latency_ns"], jnp.inf)


def _bounds(facts: Facts) -> dict[str, Array]:
    return bounds_ns(facts.report, facts.leaves["hbm.byte"])


def _gap(facts: Facts) -> Array:
    code, leaves = facts.report["result_code"], facts.leaves
    scratch = facts.report["scratch_peak_bytes"] - leaves["scratch.capacity"]
    cache = leaves["context_tokens"] - leaves["cache_tokens"]
    gap = jnp.where(code == RESULTS.index("scratch_overflow"), scratch, jnp.nan)
    gap = jnp.where(code == RESULTS.index("over_cache"), cache, gap)
    return jnp.where(code == 0, 0.0, gap)


def _elasticity(facts: Facts) -> Array:
    assert facts.elasticity is not None
    return _where_ok(facts, facts.elasticity)


LATENCY, CODE, ELASTICITY = "latency_ns", "result_code", "elasticity"
VARIABLES = {
    LATENCY: Variable(
        unit="ns",
        doc="latency of one request group; infinite where the point cannot run",
        of=_latency,
        counting=False,
    ),
    CODE: Variable(
        unit="1",
        doc="0 where the point runs, or what keeps it from running",
        of=lambda facts: facts.report["result_code"],
        labels=RESULTS,
        counting=False,
        dtype="int8",
    ),
    "gap": Variable(
        unit="bytes (scratch_overflow) or tokens (over_cache)",
        doc="how much more the point asks for than there is; 0 where it runs",
        of=_gap,
        counting=False,
    ),
    "scratch_peak_bytes": Variable(
        unit="bytes",
        doc="scratch that the busiest PE needs",
        of=lambda facts: facts.report["scratch_peak_bytes"],
        counting=False,
    ),
    "bound_ns": Variable(
        unit="ns",
        doc="time of the busiest rank if nothing but one resource took time",
        of=lambda facts: _stack(facts, _bounds(facts)),
        dimension="resource",
        labels=RESOURCES,
    ),
    "bottleneck": Variable(
        unit="1",
        doc="the resource with the largest bound; -1 where the point cannot run",
        of=lambda facts: jnp.where(
            _ok(facts), jnp.argmax(jnp.stack(list(_bounds(facts).values())), axis=0), -1
        ),
        labels=RESOURCES,
        dtype="int8",
    ),
    "utilisation": Variable(
        unit="1",
        doc="busy share of the busiest rank's engines",
        of=lambda facts: _stack(facts, utilisation(facts.report)),
        dimension="engine",
        labels=ENGINES,
    ),
    "count": Variable(
        unit="1",
        doc="commands and bytes of all ranks of the group",
        of=lambda facts: _stack(facts, {name: facts.report[name] for name in COUNTS}),
        dimension="command",
        labels=tuple(COUNTS.values()),
    ),
    "energy_pj": Variable(
        unit="pJ",
        doc="energy of all ranks' work",
        of=lambda facts: _where_ok(facts, energy_pj(facts.energy, facts.report)),
    ),
    ELASTICITY: Variable(
        unit="1",
        doc="d log latency / d log cost: the share of the critical path that a cost takes",
        of=_elasticity,
        dimension="cost",
        counting=False,
    ),
}
ALWAYS = (LATENCY, CODE, "gap")


def names_of(asked: Sequence[str] | None, machine: Machine) -> tuple[str, ...]:
    """The variables of a sweep, in the order of `VARIABLES`; by default all but elasticities.

    Raises:
      UsageError: an unknown name, or energy of a machine that gives none.
    """
    if asked is None:
        left_out = {ELASTICITY} | ({"energy_pj"} if machine.energy is None else set())
        return tuple(name for name in VARIABLES if name not in left_out)
    for name in asked:
        if name not in VARIABLES:
            allowed = ", ".join(VARIABLES)
            raise UsageError(f"`{name}` is no variable{nearest(name, VARIABLES)}; has: {allowed}")
    if "energy_pj" in asked and machine.energy is None:
        raise UsageError(
            f"machine `{machine.name}` gives no energies; add an `energy` section to it"
        )
    return tuple(name for name in VARIABLES if name in (*ALWAYS, *asked))


def labels_of(name: str, machine: Machine) -> tuple[str, ...]:
    """Entries of a variable's own dimension, or the meanings of a code."""
    return tuple(costs_ns(machine)) if name == ELASTICITY else VARIABLES[name].labels
