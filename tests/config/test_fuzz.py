"""Whatever a file holds, it loads or gives a `ConfigError`: never another exception."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahbm_jax.config import shipped
from ahbm_jax.config.bench import Bench
from ahbm_jax.config.load import (
    apply_overrides,
    check_machine,
    check_workload,
    load_bench,
    load_machine,
    load_workload,
)
from ahbm_jax.errors import ConfigError
from ahbm_jax.machine.params import Machine, Workload

KINDS: list[tuple[str, Callable[[Path], Any], type]] = [
    ("machines/ahbm_4sip", load_machine, Machine),
    ("workloads/llama3_70b", load_workload, Workload),
    ("benches/milestone-gqa-llama70b", load_bench, Bench),
]
FRAGMENTS = st.sampled_from(
    [
        *[
            "",
            "\n",
            " ",
            "  ",
            ":",
            "- ",
            "{",
            "}",
            "[",
            "]",
            "'",
            '"',
            "#",
            "&a ",
            "*a",
            "<<: *a",
            "!!",
        ],
        *[
            "!!binary ",
            "!!timestamp 2020-99-99",
            "!!int ",
            "!!float ",
            "!!set ",
            "!!omap ",
            "!x ",
            "|",
        ],
        *[
            "? ",
            "%YAML 1.1\n---\n",
            "---\n",
            "...\n",
            "null",
            "~",
            ".nan",
            "-.inf",
            "1e400",
            "0x",
            "0o9",
        ],
        *[
            "-1",
            "0",
            "1e6",
            "1_0",
            "09",
            "yes",
            "true",
            "9" * 5000,
            "1:2",
            "\t",
            "\x00",
            "\ufeff",
            "é",
        ],
        *["\\ud800", '"\\ud800"', "value", "source", "schema", "hbm", "ahbm-workload/1"],
    ]
) | st.text(max_size=8)


def outcome(load: Callable[[Path], Any], path: Path, record: type, text: bytes) -> None:
    path.write_bytes(text)
    try:
        loaded = load(path)
    except ConfigError as error:
        assert error.problems
        assert all(problem.startswith(f"{path}:") for problem in error.problems)
        str(error).encode()  # can be printed
    else:
        assert type(loaded) is record
        if isinstance(loaded, Machine):
            check_machine(loaded)  # what loads is within bounds
        if isinstance(loaded, Workload):
            check_workload(loaded)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "any.yaml"


@pytest.mark.parametrize(("file", "load", "record"), KINDS)
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_mutations_of_a_shipped_file(
    file: str, load: Callable[[Path], Any], record: type, path: Path, data: st.DataObject
) -> None:
    text = (shipped.root() / f"{file}.yaml").read_text()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 3) | st.integers(0, 300))
        text = text[:start] + data.draw(FRAGMENTS) + text[end:]
    outcome(load, path, record, text.encode("utf-8", "surrogatepass"))


@settings(deadline=None, max_examples=100)
@given(text=st.binary(max_size=60) | st.lists(FRAGMENTS, max_size=12).map(
    lambda parts: "".join(parts).encode("utf-8", "surrogatepass")
))  # fmt: skip
def test_any_text(path: Path, text: bytes) -> None:
    outcome(load_machine, path, Machine, text)


@settings(deadline=None, max_examples=100)
@given(
    key=st.sampled_from(["hbm.access_latency_ns", "grid.sips", "math.blocking", "hbm"]) | FRAGMENTS,
    value=FRAGMENTS,
)
def test_any_override(key: str, value: str) -> None:
    try:
        check_machine(apply_overrides(load_machine("one_pe"), [f"{key}={value}"]))
    except ConfigError as error:
        assert len(error.problems) == 1
