"""Every kind of bad file gives one `ConfigError` that names the line and what is allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ahbm_jax.config import shipped
from ahbm_jax.config.load import load_bench, load_machine, load_workload
from ahbm_jax.errors import ConfigError

MACHINE = (shipped.root() / "machines" / "ahbm_4sip.yaml").read_text()
WORKLOAD = (shipped.root() / "workloads" / "llama3_70b.yaml").read_text()
BENCH = (shipped.root() / "benches" / "milestone-gqa-llama70b.yaml").read_text()

# (text of the good file, its replacement, key that is named, what the message holds)
MACHINE_EDITS = [
    ("access_latency_ns:", "acces_latency_ns:", "hbm.acces_latency_ns", "did you mean `access_lat"),
    ("value: 0.80", "value: 1.8", "hbm.sustained_fraction", "above 0 and at most 1; change: lower"),
    ("value: 0.80", "value: 0.0", "hbm.sustained_fraction", "got 0.0; allowed: a number above 0"),
    ("value: 25,", "value: -1,", "dma.issue_cycles", "a number 0 to 1e+06; change: raise it"),
    ("value: 25,", "value: .nan,", "dma.issue_cycles", "1e+06; change: give a number"),
    ("value: 25,", "value: -.inf,", "dma.issue_cycles", "got -inf; allowed: a number"),
    ("value: 25,", "value: 1e999,", "dma.issue_cycles", "got inf; allowed: a number"),
    ("value: 25,", "value: fast,", "dma.issue_cycles", "got 'fast'; allowed: a number"),
    ("value: 25,", "value: '25',", "dma.issue_cycles", "got '25'; allowed: a number"),
    ("value: 25,", "value: true,", "dma.issue_cycles", "got true; allowed: a number"),
    ("value: 25,", "value: ,", "dma.issue_cycles", "got nothing; allowed: a number"),
    ("value: 25,", "value: [25],", "dma.issue_cycles", "got a list; allowed: a number"),
    ("value: 25,", "value: 2020-01-01,", "dma.issue_cycles", "got '2020-01-01'; allowed: a number"),
    ("value: 25,", "value: !!int x,", "dma.issue_cycles", "got 'x' tagged as int"),
    ("value: 25,", f"value: {'9' * 5000},", "dma.issue_cycles", "got '9999"),
    ("value: 25,", f"value: {'9' * 400},", "dma.issue_cycles", "allowed: a number"),
    ("value: 25,", "valu: 25,", "dma.issue_cycles.valu", "did you mean `value`?"),
    ("value: 25,", "value: 25, unit: ns,", "dma.issue_cycles.unit", "got an unknown key"),
    ("value: 25,", "value: 25, value: 26,", "dma.issue_cycles", "twice (lines 23 and 23)"),
    ("value: 25,", "value: 25} #", "dma.issue_cycles.source", "got nothing; allowed: a non-empty"),
    ("value: 25, source: ", "value: 25, source: ' '} #", "dma.issue_cycles.source", "got ' '"),
    ("value: 25, source: ", "value: 25, source: 7} #", "dma.issue_cycles.source", "got 7; allowed"),
    ("{value: 25,", "25 # {", "dma.issue_cycles", "got 25 without a source"),
    ("{value: 25,", "25 # {", "dma.issue_cycles", "write `issue_cycles: {value: 25, source: "),
    ("tile_m: {value: 32,", "tile_m: {value: 4.5,", "gemm.tile_m", "got 4.5; allowed: a whole"),
    ("tile_m: {value: 32,", "tile_m: {value: 0,", "gemm.tile_m", "a whole number 1 to 4096"),
    ("tile_m: {value: 32,", "tile_m: {value: true,", "gemm.tile_m", "got true; allowed: a whole"),
    ("reuse: {value: true", "reuse: {value: yes", "gemm.operand_reuse", "allowed: true or false"),
    ("reuse: {value: true", "reuse: {value: 1", "gemm.operand_reuse", "allowed: true or false"),
    ("name: ahbm_4sip", "name: 4", "name", "got 4; allowed: a name"),
    ("name: ahbm_4sip", "name: ' '", "name", "got ' '; allowed: a name"),
    ("ahbm-machine/1", "ahbm-machine/2", "schema", "got 'ahbm-machine/2'; allowed: ahbm-machine/1"),
    ("ahbm-machine/1", "ahbm-workload/1", "schema", "change: give another file"),
    ("ahbm-machine/1", "[]", "schema", "got a list; allowed: ahbm-machine/1"),
    ("\nclock:", "\nclocks:", "clocks", "did you mean `clock`?"),
    ("\nclock:", "\nzebra:", "zebra", "change: remove it"),
    ("\nclock:", "\n1.5: 3\nclock:", "1.5", "got an unknown key"),
    ("\nclock:", "\nhbm:", "hbm", "got the key twice (lines 12 and 15)"),
    ("\nclock:", "\nclock: 3\nclocked:", "clock", "a mapping with the keys frequency_ghz"),
    ("\nclock:", "\nclock:\nclocked:", "clock", "got nothing; allowed: a mapping with the keys"),
    ("\nclock:", "\nclock: &a [*a]\nclocked:", "clock[0]", "an alias of a mapping or list"),
]  # fmt: skip
SYNTAX_EDITS = ["clock: [", "\tclock:", "clock: *a", "---\nclock:", "clock: \x07", "a: b: c", "'"]
WORKLOAD_EDITS = [
    ("layers: {value: 80", "layers: {value: 1.5", "layers", "a whole number 1 to 100000"),
    ("bfloat16", "bf16", "storage", "got 'bf16'; allowed: one of bfloat16, float16, float32"),
    ("query_heads: {value: 64", "query_heads: {value: 33", "query_heads", "multiple of `kv_heads`"),
    ("kv_heads: {value: 8", "kv_head: {value: 8", "kv_head", "did you mean `kv_heads`?"),
]  # fmt: skip
BENCH_EDITS = [
    ("machine: ahbm_4sip", "machine: ahbm_4si", "machine", "did you mean `ahbm_4sip`?"),
    ("workload: llama3_70b", "workload: none.yaml", "workload", "got 'none.yaml'"),
    ("users: 1", "users: 0", "panels[0].users", "a whole number 1 to 16777216; change: raise it"),
    ("users: 8", "user: 8", "panels[3].user", "did you mean `users`?"),
    ("users: 1", "users: {value: 1, source: x}", "panels[0].users", "got a mapping; allowed: a wh"),
    ("users: 1\n", "users: 1\n    knobs: 3\n", "panels[0].knobs", "got 3; allowed: knob names"),
    ("users: 1\n", "users: 1\n    knobs: {a: .nan}\n", "panels[0].knobs.a", "a finite number"),
    ("users: 1\n", "users: 1\n    layout: []\n", "panels[0].layout", "got a list; allowed: a non"),
    ("parity:", "parity: 3\nother:", "parity", "a mapping with the keys context_tokens"),
    ("panels:", "panels: []\nother:", "panels", "a list of one or more panels"),
    ("panels:", "panels: {}\nother:", "panels", "got a mapping; allowed: a list of one or more"),
]  # fmt: skip
BENCH_LINE_EDITS = [
    ("variants: [dot, opt1, opt3, opt3v, opt2]", "variants: [3]", "panels[0].variants[0]", "got 3"),
    ("cubes: [1, 2, 4, 8]", "cubes: [1, x]", "panels[0].cubes[1]", "got 'x'; allowed: a list"),
    ("cubes: [1, 2, 4, 8]", "cubes: 1", "panels[0].cubes", "got 1; allowed: a list of one or more"),
    ("cubes: [1, 2, 4, 8]", "cubes: []", "panels[0].cubes", "got a list; allowed: a list of one"),
    ("tile_tokens: 256", "tile_tokens: one", "panels[0].tile_tokens", "got 'one'; allowed: a who"),
    ("tile_tokens: 256", "tile_tokens: 0", "panels[0].tile_tokens", ", or one-shot"),
]  # fmt: skip


def refused(load: Callable[[Path], Any], path: Path, text: str | bytes) -> list[str]:
    """The problems of a bad file, each begun by its line number."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == "\n".join(caught.value.problems)
    for problem in caught.value.problems:
        assert re.match(rf"{re.escape(str(path))}:\d+: ", problem)
        assert all(part in problem for part in ("got ", "; allowed: ", "; change: "))
    return [problem.removeprefix(f"{path}:") for problem in caught.value.problems]


def check_edit(load: Callable[[Path], Any], path: Path, good: str, edit: tuple[str, ...]) -> None:
    """One edit of a good file is reported at its line, by its key, with what is allowed."""
    old, new, key, said = edit
    assert old in good
    line = good[: good.index(old)].count("\n") + 1 + old.startswith("\n")
    if new.startswith("users: 1\n"):
        line += 1
    problems = refused(load, path, good.replace(old, new, 1))
    found = [p for p in problems if said in p]
    assert [p for p in found if p.startswith(f"{line}: ") and f"`{key}" in p], problems


@pytest.mark.parametrize("edit", MACHINE_EDITS)
def test_bad_machine(tmp_path: Path, edit: tuple[str, ...]) -> None:
    check_edit(load_machine, tmp_path / "m.yaml", MACHINE, edit)


@pytest.mark.parametrize("edit", WORKLOAD_EDITS)
def test_bad_workload(tmp_path: Path, edit: tuple[str, ...]) -> None:
    check_edit(load_workload, tmp_path / "w.yaml", WORKLOAD, edit)


@pytest.mark.parametrize("edit", BENCH_EDITS + BENCH_LINE_EDITS)
def test_bad_bench(tmp_path: Path, edit: tuple[str, ...]) -> None:
    check_edit(load_bench, tmp_path / "b.yaml", BENCH, edit)


@pytest.mark.parametrize("new", SYNTAX_EDITS)
def test_unreadable_yaml(tmp_path: Path, new: str) -> None:
    at = MACHINE[: MACHINE.index("clock:")].count("\n") + 1
    text = MACHINE.replace("\nclock:", f"\n{new}", 1)
    (problem,) = refused(load_machine, tmp_path / "m.yaml", text)
    assert "got unreadable YAML (" in problem
    line = int(problem.partition(":")[0])
    # An open bracket or quote is noticed only where something does not fit into it.
    assert line in (at, at + 1) or (new in ("clock: [", "'") and line > at)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: got an empty file"),
        ("# only a comment\n", "1: got an empty file"),
        ("- 1\n", "1: got a list; allowed: a mapping"),
        ("only words", "1: got 'only words'; allowed: a mapping"),
        (b"name: a\nb: \xff\n", "2: got bytes that are no UTF-8"),
        ("[" * 20_000, "1: got values nested too deeply"),
        ("[" * 150, "unreadable YAML"),
    ],
)
def test_no_mapping_at_all(tmp_path: Path, text: str | bytes, said: str) -> None:
    (problem,) = refused(load_machine, tmp_path / "m.yaml", text)
    assert said in problem


@pytest.mark.parametrize("load", [load_machine, load_workload, load_bench])
def test_no_file(tmp_path: Path, load: Callable[[str | Path], Any]) -> None:
    for path, said in [
        (tmp_path / "none.yaml", "none.yaml:1: got no such file"),
        (tmp_path, f"{tmp_path}:1: got a directory"),
        ("a\0b.yaml", "got a file that cannot be read"),
        ("x" * 5000 + ".yaml", "got a file that cannot be read"),
        ("x" * 5000, "no file; allowed: "),
    ]:
        with pytest.raises(ConfigError, match=re.escape(said)):
            load(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(MACHINE)
    path.chmod(0)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_machine(path)


def test_alias_bomb_stays_small(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 1]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    problems = refused(load_machine, tmp_path / "m.yaml", "\n".join(lines))
    assert any("an alias of a mapping or list" in problem for problem in problems)


def test_all_problems_at_once_in_line_order(tmp_path: Path) -> None:
    text = MACHINE
    expected = []
    for old, new, key in [
        ("value: 0.80", "value: 1.8", "hbm.sustained_fraction"),
        ("value: 100,", "valu: 100,", "hbm.access_latency_ns.valu"),
        ("value: 25,", "value: .nan,", "dma.issue_cycles"),
        ("tile_k: {value: 64, ", "tile_k: 64 # {", "gemm.tile_k"),
        ("lanes: {value: 128,", "lanes: {value: 128} #", "math.lanes.source"),
        ("wait_cycles:", "load_cycles:", "issue.load_cycles"),  # twice, and wait_cycles is missing
    ]:
        assert old in text
        text = text.replace(old, new, 1)
        expected.append(key)
    problems = refused(load_machine, tmp_path / "m.yaml", f"{text}\nzebra: 1\n")
    keys = [re.findall("`([^`]*)`", problem)[0] for problem in problems]
    assert sorted(keys) == sorted([*expected, "issue.wait_cycles", "zebra"])
    lines = [int(problem.partition(":")[0]) for problem in problems]
    assert lines == sorted(lines)


def test_keys_that_are_no_names(tmp_path: Path) -> None:
    text = MACHINE.replace("lanes:", "lane:")
    for key in ('"\\ud800": 1', '"\\a": 1', "? [a]\n: 1", "? {a: b}\n: 1"):
        problems = refused(load_machine, tmp_path / "m.yaml", f"{text}\n{key}\n")
        assert len(problems) == 2  # the rest is checked all the same
        line = text.count("\n") + 2
        assert problems[1].startswith(f"{line}: `")
        assert "names as keys" in problems[1]


def test_a_misspelt_key_is_not_also_missing(tmp_path: Path) -> None:
    text = MACHINE.replace("access_latency_ns:", "acces_latency_ns:")
    assert len(refused(load_machine, tmp_path / "m.yaml", text)) == 1


def test_a_list_of_bad_items_is_not_also_too_short(tmp_path: Path) -> None:
    text = BENCH.replace("cubes: [1, 2, 4, 8]", "cubes: [x]", 1)
    assert len(refused(load_bench, tmp_path / "b.yaml", text)) == 1


def test_heads_are_compared_though_others_are_wrong(tmp_path: Path) -> None:
    text = WORKLOAD.replace("value: 64", "value: 33").replace("bfloat16", "bf16")
    problems = refused(
        load_workload,
        tmp_path / "w.yaml",
        text.replace("kv_heads: {value: 8", "kv_heads: {value: 2"),
    )
    assert len(problems) == 2
    assert "`query_heads`: got 33, not a multiple of `kv_heads` 2" in problems[0]
    assert "change: `query_heads` to 32 or 34, or `kv_heads` to a divisor of 33" in problems[0]


def test_unknown_name_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        load_machine("ahbm_4ssip")
    assert "ahbm_2sip, ahbm_4sip, " in str(caught.value)
    assert "did you mean `ahbm_4sip`?" in str(caught.value)
