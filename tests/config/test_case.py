"""A case is read back as it was written, and whatever is wrong in one is reported at its line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahbm_jax.config import schema, shipped
from ahbm_jax.config.case import Case, CaseKnobs, case_text
from ahbm_jax.config.check import apply_overrides
from ahbm_jax.config.load import load_case, load_machine
from ahbm_jax.errors import ConfigError
from ahbm_jax.knobs import Knobs
from ahbm_jax.machine.params import Machine, replace

TEXT = """schema: ahbm-case/1
kernel: decode
machine: one_pe
workload: llama3_70b
knobs:
  variant: opt1
  context: 1e3
  group_shape: [1, 1]
  packed: true
set:
  hbm.access_latency_ns: 3.5
  math.blocking: false
"""
# (text of the good file, its replacement, key that is named, what the message holds)
EDITS = [
    ("ahbm-case/1", "ahbm-case/2", "schema", "got 'ahbm-case/2'; allowed: ahbm-case/1"),
    ("ahbm-case/1", "ahbm-machine/1", "schema", "change: give another file"),
    ("kernel: decode", "kernal: decode", "kernal", "did you mean `kernel`?"),
    ("kernel: decode", "kernel: 3", "kernel", "got 3; allowed: a non-empty text"),
    ("kernel: decode", "kernel: a.py:f", "kernel", "FILE.py:NAME with the path of a file from her"),
    ("machine: one_pe", "machine: one_pee", "machine", "did you mean `one_pe`?"),
    ("machine: one_pe", "machine: none.yaml", "machine", "or the path of a file from here"),
    ("machine: one_pe", "machine:", "machine", "got nothing; allowed: a non-empty text"),
    ("workload: llama3_70b", "workload: [a]", "workload", "got a list; allowed: a non-empty text"),
    ("context: 1e3", "contxt: 1e3", "knobs.contxt", "did you mean `context`?"),
    ("context: 1e3", "context: 1.5", "knobs.context", "got 1.5; allowed: a whole number 0 to"),
    ("context: 1e3", "context: 128k", "knobs.context", "got '128k'; allowed: a whole number 0 to"),
    ("context: 1e3", "context: -1", "knobs.context", "change: raise it"),
    ("context: 1e3", "C: 0", "knobs.C", "a whole number 1 to 16777216; change: raise it"),
    ("context: 1e3", "tile: true", "knobs.tile", "got true; allowed: a whole number 1 to"),
    ("variant: opt1", "variant: 1", "knobs.variant", "got 1; allowed: a non-empty text"),
    ("[1, 1]", "[1, 1, 1]", "knobs.group_shape", "got a list; allowed: rows and columns, two"),
    ("[1, 1]", "[1]", "knobs.group_shape", "such as [2, 4]"),
    ("[1, 1]", "[1, x]", "knobs.group_shape[1]", "got 'x'; allowed: rows and columns"),
    ("[1, 1]", "1x1", "knobs.group_shape", "got '1x1'; allowed: rows and columns"),
    ("packed: true", "packed: 1", "knobs.packed", "got 1; allowed: true or false"),
    ("packed: true", "packed: true\n  packed: true", "knobs.packed", "twice (lines 9 and 10)"),
    ("knobs:\n", "knobs: 3\nother:\n", "knobs", "got 3; allowed: a mapping with the keys variant"),
    ("access_", "acces_", "set.hbm.acces_latency_ns", "did you mean `hbm.access_latency_ns`?"),
    ("3.5", "-1", "set.hbm.access_latency_ns", "got -1; allowed: a number 0 to 1e+06"),
    ("3.5", ".nan", "set.hbm.access_latency_ns", "got nan; allowed: a number 0 to 1e+06"),
    ("3.5", "fast", "set.hbm.access_latency_ns", "got 'fast'; allowed: a number 0 to 1e+06"),
    ("3.5", "{value: 1}", "set.hbm.access_latency_ns", "got a mapping; allowed: a number 0 to"),
    ("blocking: false", "blocking: 0", "set.math.blocking", "got 0; allowed: true or false"),
    ("set:\n", "set: [1]\nother:\n", "set", "got a list; allowed: dotted machine keys"),
]  # fmt: skip


def refused(path: Path, text: str) -> list[str]:
    """The problems of a bad case, each begun by its line number."""
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_case(path)
    assert all(problem.startswith(f"{path}:") for problem in caught.value.problems)
    return [problem.removeprefix(f"{path}:") for problem in caught.value.problems]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit[1].partition("\n")[0])
def test_a_problem_is_reported_at_its_line(tmp_path: Path, edit: tuple[str, ...]) -> None:
    old, new, key, said = edit
    assert TEXT.count(old) == 1
    line = TEXT[: TEXT.index(old)].count("\n") + 1
    problems = refused(tmp_path / "c.yaml", TEXT.replace(old, new))
    assert [p for p in problems if p.startswith(f"{line}: `{key}`") and said in p], problems
    assert len(problems) == 1 + ("other" in new), problems


def test_all_problems_at_once_in_line_order(tmp_path: Path) -> None:
    text = TEXT
    for old, new in (("one_pe", "absent"), ("opt1", "[]"), ("3.5", "-1"), ("math.", "maths.")):
        text = text.replace(old, new)
    problems = refused(tmp_path / "c.yaml", text)
    assert [problem.partition(":")[0] for problem in problems] == ["3", "6", "11", "12"]


def test_files_beside_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = (shipped.root() / "machines" / "one_pe.yaml").read_text()
    (tmp_path / "cases").mkdir()
    (tmp_path / "own.yaml").write_text(machine.replace("name: one_pe", "name: own"))
    (tmp_path / "own.py").write_text("")
    text = TEXT.replace("one_pe", "../own.yaml").replace("decode", "../own.py:f")
    (tmp_path / "cases" / "c.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    case = load_case("cases/c.yaml")
    monkeypatch.chdir("/")
    assert load_machine(case.machine).name == "own"
    assert Path(case.kernel.removesuffix(":f")).is_file()
    (tmp_path / "copy.yaml").write_text(case_text(case))  # in another folder than its files' paths
    assert load_case(tmp_path / "copy.yaml") == case


def test_what_is_left_out_is_left_to_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT[: TEXT.index("knobs:")])
    assert load_case(path).knobs.given() == {}
    path.write_text(TEXT)
    case = load_case(path)
    given = {"variant": "opt1", "context": 1000, "packed": True, "group_shape": (1, 1)}
    assert case.knobs.given() == given
    assert type(case.knobs.context) is int


def test_a_case_knows_every_knob() -> None:
    names = [[field.name for field in dataclasses.fields(kind)] for kind in (CaseKnobs, Knobs)]
    assert names[0] == names[1]


KEYS = [key for key, leaf in schema.leaves(Machine).items() if not leaf.named]
LARGEST = 2**24
TEXTS = (
    st.sampled_from(["decode", "true", "1e3", "null", "2020-01-01", "a: b", "- #", "\x85x\n y"])
    | st.text(min_size=1).map(str.strip).filter(lambda text: text and ".py:" not in text)
)  # fmt: skip
KINDS = {
    **dict.fromkeys(("variant", "layout", "level1", "level2", "ring_feed"), TEXTS),
    **dict.fromkeys(("context", "start_cube", "start_pe"), st.integers(0, LARGEST)),
    **dict.fromkeys(("packed", "sinks", "softcap"), st.booleans()),
    "group_shape": st.tuples(st.integers(1, LARGEST), st.integers(1, LARGEST)),
}
LEFT_OUT = tuple(f"{s}." for s in schema.sections(Machine) if schema.optional(Machine, s))
KNOBS = {
    field.name: KINDS.get(field.name, st.integers(1, LARGEST))
    for field in dataclasses.fields(CaseKnobs)
}


def value_of(key: str) -> st.SearchStrategy[Any]:
    """Values that a dotted machine key may have."""
    section, _, name = key.partition(".")
    fields = {field.name: field for field in dataclasses.fields(schema.sections(Machine)[section])}
    meta = fields[name].metadata
    if not meta.get("static"):
        low, high = meta["low"], meta["high"]
        return st.floats(low, high, exclude_min=meta["above_low"]) | st.just(int(high))
    return st.booleans() if meta["low"] is None else st.integers(meta["low"], meta["high"])


CASES = st.builds(
    Case,
    kernel=TEXTS,
    machine=st.sampled_from(shipped.names("machines")),
    workload=st.sampled_from(shipped.names("workloads")),
    knobs=st.fixed_dictionaries({}, optional=KNOBS).map(lambda knobs: CaseKnobs(**knobs)),
    set=st.fixed_dictionaries({}, optional={key: value_of(key) for key in KEYS}),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("case") / "c.yaml"


@given(case=CASES)
def test_round_trip(path: Path, case: Case) -> None:
    path.write_bytes(case_text(case).encode())
    again = load_case(path)
    assert again == case
    assert repr(again) == repr(case)  # the types and the sign of zero too


@given(case=CASES)
def test_overrides_are_the_settings(case: Case) -> None:
    settings = {key: value for key, value in case.set.items() if not key.startswith(LEFT_OUT)}
    machine = load_machine("one_pe")
    texts = [text for text in case.overrides() if not text.startswith(LEFT_OUT)]
    assert apply_overrides(machine, texts) == replace(machine, settings)
