"""Errors say what is short and what to change, and survive a trip between processes."""

from __future__ import annotations

import pickle

from ahbm_jax.errors import AhbmError, ConfigError, Infeasible, UsageError, nearest


def test_infeasible_has_demand_bound_and_gap() -> None:
    error = Infeasible("TCM scratch of one PE", 1_500_000, 1_048_576, "bytes", "lower `tile`")
    assert error.gap == 451_424
    assert str(error) == (
        "TCM scratch of one PE: 1,500,000 bytes are needed and 1,048,576 are there, "
        "451,424 too few; lower `tile`"
    )


def test_errors_pickle() -> None:
    for error in (
        Infeasible("scratch", 3.5, 2.0, "bytes", "lower it"),
        ConfigError(["a.yaml:1: one", "a.yaml:2: two"]),
        UsageError("no such variant"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert vars(copy) == vars(error)
        assert isinstance(error, AhbmError)


def test_nearest() -> None:
    assert nearest("op3", ["opt1", "opt3", "dot"]) == " (did you mean `opt3`?)"
    assert nearest("OPT3V", ["opt1", "opt3v"]) == " (did you mean `opt3v`?)"
    assert nearest("zebra", ["opt1"]) == ""
    assert nearest("x", []) == ""
