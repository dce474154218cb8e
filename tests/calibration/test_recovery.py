"""Over many draws of noise, hidden costs are within their stated errors as often as they should."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calibration_tables import FREE, HIDDEN, simulated

import ahbm_jax
import calibration
from ahbm_jax.interpret.algebra import largest, maximum, smooth
from calibration.diagnosis import diagnose
from calibration.model import model
from calibration.parameters import settle
from calibration.search import Searcher

DRAWS = 60
QUANTILE = 1.96  # of a normal distribution, for 95 %


@pytest.fixture(scope="module")
def searcher() -> Iterator[Searcher]:
    machine, rows = ahbm_jax.load_machine("wormhole"), calibration.load(simulated(), "transactions")
    parameters = settle(FREE, machine, rows)
    with jax.enable_x64(True):
        chosen = model("microbench", "reads", machine, rows, parameters)
        yield Searcher(chosen)


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_nominal_coverage(searcher: Searcher, noise: float) -> None:
    parameters = searcher.model.parameters
    truth = np.log([HIDDEN[p.free.key] for p in parameters.each])
    exact = np.array(simulated()["latency_cycles"])
    random = np.random.default_rng(1)
    inside, sizes = [], []
    for _ in range(DRAWS):
        target = exact * np.exp(noise * random.standard_normal(len(exact)))
        logs = searcher.search(truth, target, np.ones(len(exact))).logs
        off = searcher.log_latency_ns(logs) - np.log(target)
        found = diagnose(searcher.slopes(logs), off, parameters)
        inside.append(np.abs(logs - truth) <= QUANTILE * found.errors)
        sizes.append(found.noise)
    # 95 % of 240, give or take: errors of one draw are correlated, and 32 rows are few.
    assert 0.86 <= np.mean(inside) <= 0.995
    assert np.mean(sizes) == pytest.approx(noise, rel=0.25)


def test_a_smooth_maximum_is_above_and_tends_to_the_hard_one() -> None:
    a = jnp.array([1.0, -jnp.inf, 5.0, -jnp.inf])
    b = jnp.array([2.0, 3.0, 5.0, -jnp.inf])
    hard = jnp.maximum(a, b)
    for temperature in (1.0, 0.1, 1e-3):
        with smooth(jnp.full(4, temperature)):
            soft, stacked = maximum(a, b), largest(jnp.stack([a, b]), 0)
            slope = jax.jacfwd(lambda a: maximum(a, b))(a)
        np.testing.assert_array_equal(soft, stacked)
        assert jnp.all((soft >= hard) & (soft <= hard + temperature * jnp.log(2.0) + 1e-6))
        assert jnp.all(jnp.isfinite(slope))  # where there is no time too
        assert slope[2, 2] == pytest.approx(0.5)
    np.testing.assert_allclose(soft, hard, atol=1e-2)
    np.testing.assert_array_equal(maximum(a, b), hard)  # outside nothing has changed
