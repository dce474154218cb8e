"""A budget divided among a machine's numbers, by gradients from many starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ahbm_jax.errors import UsageError
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.machine.params import Machine, Workload
from ahbm_jax.result import QUICK_TO_COMPILE, Result, latency_ns, run
from ahbm_jax.sweeps.design import sampled

Array = jax.Array
HALVINGS = 40
RATE = 0.05  # of the span of each number, in powers, a step


@dataclass(frozen=True, slots=True, kw_only=True)
class Divided:
    """The best division of a budget that was found.

    Attributes:
      values: each number of the machine.
      spent: of the budget.
      result: the point, evaluated anew in float64.
      starts: how many starts there were.
      agreeing: how many of them ended within 1 % of the best.
    """

    values: dict[str, float]
    spent: float
    result: Result
    starts: int
    agreeing: int


def divide_budget(
    kernel: str | Kernel,
    machine: Machine,
    workload: Workload,
    spans: Mapping[str, tuple[float, float]],
    prices: Mapping[str, float],
    budget: float,
    *,
    starts: int = 16,
    steps: int = 60,
    seed: int = 0,
    **held: Any,
) -> Divided:
    """Numbers of the machine of least latency whose prices add up to at most a budget.

    Adam on the logarithms of the numbers, from a Latin hypercube of starts, each step moved back
    into the budget. The latency has kinks and flats, so that a division that is found is good, not
    proved the best: `agreeing` says how far the starts agree.

    Args:
      kernel: as in `run`.
      machine: from `load_machine`.
      workload: from `load_workload`.
      spans: lowest and highest value, above 0, of each dotted machine key.
      prices: what one unit of a number costs; 0 where it is not named.
      budget: what may be spent.
      starts: how many.
      steps: of each start.
      seed: of the starts.
      **held: knobs of the point, concrete values.

    Raises:
      UsageError: a span is empty or not positive, or its lowest values cost more than the budget.
    """
    names, price, low, high = _box(spans, prices, budget)
    width = np.log(high / low)

    def numbers(u: Array) -> Array:
        return jnp.asarray(low, u.dtype) * jnp.exp(u * jnp.asarray(width, u.dtype))

    def spent(u: Array) -> Array:
        return jnp.sum(numbers(u) * jnp.asarray(price, u.dtype))

    def afforded(u: Array) -> Array:
        """All powers lowered as much as the budget asks for."""

        def halve(_: int, span: tuple[Array, Array]) -> tuple[Array, Array]:
            least, most = span
            middle = (least + most) / 2
            fits = spent(jnp.clip(u - middle, 0, 1)) <= budget
            return jnp.where(fits, least, middle), jnp.where(fits, middle, most)

        one = jnp.ones((), u.dtype)
        down = jax.lax.fori_loop(0, HALVINGS, halve, (0 * one, one))[1]
        inside = jnp.clip(u, 0, 1)
        return jnp.where(spent(inside) <= budget, inside, jnp.clip(u - down, 0, 1))

    def latency(u: Array) -> Array:
        given = dict(zip(names, numbers(u), strict=True))
        return latency_ns(kernel, machine, workload, **held, **given)

    optimiser = optax.adam(RATE)

    def search(u: Array) -> tuple[Array, Array]:
        def step(carry: Any, _: None) -> tuple[Any, None]:
            u, state, best = carry
            value, slope = jax.value_and_grad(lambda x: jnp.log(latency(x)))(u)
            best = jax.tree.map(
                lambda old, new: jnp.where(value < best[1], new, old), best, (u, value)
            )
            with jax.numpy_dtype_promotion("standard"):  # optax mixes its types
                change, state = optimiser.update(jnp.nan_to_num(slope), state)
            return (afforded(u + change), state, best), None

        u = afforded(u)
        worst = jnp.full((), jnp.inf, u.dtype)
        carry = (u, optimiser.init(u), (u, worst))
        return jax.lax.scan(step, carry, length=steps)[0][2]

    unit = sampled("latin", dict.fromkeys(names, (0.0, 1.0)), starts, seed, ())
    begin = jnp.asarray(np.stack(list(unit.values()), -1), jnp.float32)
    ends, values = jax.jit(jax.vmap(search), compiler_options=QUICK_TO_COMPILE)(begin)
    best = int(jnp.argmin(values))
    found = {n: float(x) for n, x in zip(names, numbers(ends[best]), strict=True)}
    return Divided(
        values=found,
        spent=float(sum(found[name] * p for name, p in zip(names, price, strict=True))),
        result=run(kernel, machine, workload, **held, **found),
        starts=starts,
        agreeing=int(jnp.sum(values <= values[best] + 0.01)),
    )


def _box(
    spans: Mapping[str, tuple[float, float]], prices: Mapping[str, float], budget: float
) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    names = list(spans)
    low, high = np.array(list(spans.values()), float).T
    price = np.array([prices.get(name, 0.0) for name in names])
    unknown = set(prices) - set(names)
    if unknown or not np.all((low > 0) & (high >= low)) or np.any(price < 0):
        raise UsageError(
            f"spans are {dict(spans)} and prices {dict(prices)}; allowed: spans from above 0 to no "
            "less, and prices of these numbers that are not negative"
        )
    if low @ price > budget:
        raise UsageError(
            f"the lowest values cost {low @ price:g}, over the budget of {budget:g}; raise it or "
            "lower the spans"
        )
    return names, price, low, high
