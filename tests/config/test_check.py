"""Overrides, and machines and workloads built in Python, meet the bounds of the files."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ahbm_jax.config.load import (
    apply_overrides,
    check_machine,
    check_workload,
    load_machine,
    load_workload,
)
from ahbm_jax.errors import ConfigError
from ahbm_jax.machine.params import replace

MACHINE = load_machine("ahbm_4sip")
WORKLOAD = load_workload("llama3_70b")


def test_overrides_change_what_they_name() -> None:
    changed = apply_overrides(
        MACHINE,
        [
            "hbm.access_latency_ns=1e2",
            "grid.sips = 1e1",
            "math.blocking=false",
            "dma.issue_cycles=7",
        ],
    )
    values = {"grid.sips": 10, "math.blocking": False, "dma.issue_cycles": 7.0}
    assert changed == replace(MACHINE, {"hbm.access_latency_ns": 100.0, **values})
    assert type(changed.dma.issue_cycles) is float
    assert type(changed.grid.sips) is int
    assert apply_overrides(MACHINE, []) == MACHINE
    assert apply_overrides(MACHINE, ["clock.frequency_ghz=2", "clock.frequency_ghz=3"]).clock == (
        replace(MACHINE.clock, {"frequency_ghz": 3.0})
    )


BAD_OVERRIDES = [
    ("hbm.acces_latency_ns=3", "did you mean `hbm.access_latency_ns`?"),
    ("access_latency_ns=3", "did you mean `hbm.access_latency_ns`?"),
    ("hbm=3", "allowed: hbm.pseudo_channels_per_pe, "),
    ("zebra.stripes=3", "got an unknown key"),
    ("name=x", "got an unknown key"),
    ("hbm.access_latency_ns", "got no `=`"),
    ("hbm.access_latency_ns=fast", "got 'fast'; allowed: a number 0 to 1e+06"),
    ("hbm.access_latency_ns=", "got ''; allowed: a number"),
    ("hbm.access_latency_ns=nan", "got 'nan'; allowed: a number"),
    ("hbm.access_latency_ns=.nan", "got nan; allowed: a number"),
    ("hbm.access_latency_ns=-1", "got -1; allowed: a number"),
    ("hbm.access_latency_ns=[1]", "got '[1]'; allowed: a number"),
    ("hbm.access_latency_ns=!!int x", "got '!!int x'; allowed: a number"),
    ("hbm.sustained_fraction=80", "above 0 and at most 1"),
    ("grid.sips=1.5", "got 1.5; allowed: a whole number 1 to 1024"),
    ("math.blocking=1", "got 1; allowed: true or false"),
    ("energy.hbm_pj_per_byte=3", "got a key of a section left out"),
]


@pytest.mark.parametrize(("override", "said"), BAD_OVERRIDES)
def test_a_bad_override(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(MACHINE, [override])
    (problem,) = caught.value.problems
    assert problem.startswith(f"--set {override}: ")
    assert said in problem


def test_all_bad_overrides_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(MACHINE, ["dma.issue_cycles=1", *(bad for bad, _ in BAD_OVERRIDES)])
    assert len(caught.value.problems) == len(BAD_OVERRIDES)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("issue.loop_cycles", float("nan"), "got nan; allowed: a number 0 to 1e+06"),
        ("issue.loop_cycles", jnp.array([1.0, jnp.nan, 2.0]), "got nan"),
        ("issue.loop_cycles", np.array([1.0, -2.0]), "got -2.0"),
        ("issue.loop_cycles", np.float32("inf"), "got inf"),
        ("issue.loop_cycles", True, "got true; allowed: a number"),
        ("issue.loop_cycles", "3", "got '3'; allowed: a number"),
        ("issue.loop_cycles", None, "got nothing; allowed: a number"),
        ("math.blocking", 1, "got 1; allowed: true or false"),
        ("grid.sips", 0, "a whole number 1 to 1024"),
        ("hbm", None, "got nothing; allowed: an instance of Hbm"),
        ("name", "", "got ''; allowed: a name"),
    ],
)
def test_a_bad_machine_in_python(key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_machine(replace(MACHINE, {key: value}))
    (problem,) = caught.value.problems
    assert problem.startswith(f"machine: `{key}`: ")
    assert said in problem


def test_all_that_is_wrong_in_python_at_once() -> None:
    bad = replace(MACHINE, {"issue.loop_cycles": -1, "hbm.access_latency_ns": float("nan")})
    with pytest.raises(ConfigError) as caught:
        check_machine(bad)
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigError, match="got 3; allowed: an instance of Machine"):
        check_machine(3)  # pyright: ignore[reportArgumentType]


def test_numbers_of_any_library_pass() -> None:
    check_machine(
        replace(
            MACHINE,
            {
                "hbm.access_latency_ns": jnp.float32(3),
                "issue.loop_cycles": np.arange(3),
                "dma.issue_cycles": jnp.bfloat16(3),
                "math.lanes": 7,
                "scratch.capacity_bytes": np.int64(7),
            },
        )
    )


def test_tracers_are_skipped_and_constants_are_not() -> None:
    def cost(latency: jax.Array, loop: float) -> jax.Array:
        check_machine(
            replace(MACHINE, {"hbm.access_latency_ns": latency, "issue.loop_cycles": loop})
        )
        return 2 * latency

    assert jax.jit(jax.grad(lambda latency: cost(latency, 1.0)))(3.0) == 2.0
    with pytest.raises(ConfigError, match=r"`issue\.loop_cycles`: got nan"):
        jax.jit(lambda latency: cost(latency, float("nan")))(3.0)


def test_a_bad_workload_in_python() -> None:
    check_workload(WORKLOAD)
    bad = replace(WORKLOAD, {"query_heads": 33, "kv_heads": 2, "storage": "int8"})
    with pytest.raises(ConfigError) as caught:
        check_workload(bad)
    assert len(caught.value.problems) == 2
    assert "got 'int8'; allowed: one of bfloat16, float16, float32" in str(caught.value)
    assert "`query_heads`: got 33, not a multiple of `kv_heads` 2" in str(caught.value)
    with pytest.raises(ConfigError, match="`kv_heads`: got 0"):
        check_workload(replace(WORKLOAD, {"kv_heads": 0}))
