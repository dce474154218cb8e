"""Shipped files load; values keep the units of their keys; names and paths are found."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ahbm_jax.config import schema, shipped
from ahbm_jax.config.document import parse
from ahbm_jax.config.load import (
    check_machine,
    check_workload,
    load_bench,
    load_machine,
    load_workload,
    sources,
)
from ahbm_jax.errors import ConfigError
from ahbm_jax.machine.params import Machine, Workload

MACHINE = (shipped.root() / "machines" / "ahbm_4sip.yaml").read_text()
RECORDS = [("machines", Machine, load_machine), ("workloads", Workload, load_workload)]
FILES = [(kind, name, *rest) for kind, *rest in RECORDS for name in shipped.names(kind)]


def at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree[part] if isinstance(tree, dict) else getattr(tree, part)
    return tree


@pytest.mark.parametrize(("kind", "name", "record", "load"), FILES)
def test_shipped_file(kind: str, name: str, record: type, load: Any) -> None:
    loaded, raw, origin = load(name), parse(shipped.resolve(kind, name)).data, sources(name)
    assert loaded.name == name
    for key, leaf in schema.leaves(record).items():
        section = key.partition(".")[0]
        if section in schema.sections(record) and section not in raw:
            assert schema.optional(record, section)
            assert at(loaded, section) is None
        elif leaf.named:
            assert at(loaded, key) == at(raw, key)
        elif leaf.optional and key not in raw:
            assert at(loaded, key) is None
        else:
            # The number in the file is the number in the tree: no unit changes on the way.
            assert at(loaded, key) == at(raw, f"{key}.value")
            assert origin[key] == at(raw, f"{key}.source")
            assert len(origin[key].split()) >= 2
            assert type(at(loaded, key)) in (float, int, bool)


def test_leaves_are_floats_and_statics_integers() -> None:
    machine = load_machine("ahbm_4sip")
    assert type(machine.math.lanes) is float  # `lanes: 128` in the file
    assert type(machine.grid.sips) is int
    assert type(machine.gemm.operand_reuse) is bool
    assert machine == load_machine(shipped.root() / "machines" / "ahbm_4sip.yaml")


def test_shipped_bench() -> None:
    bench = load_bench("milestone-gqa-llama70b")
    kernels = {
        "decode": ("decode", "mesh_mlo", "mesh_mlo_2d"),
        "prefill": ("prefill", "prefill_ring", "mesh_kv"),
    }
    assert [(panel.name, panel.kernel, panel.users) for panel in bench.panels] == [
        (f"{name}_{what}", kernel, users)
        for what, of_panel in kernels.items()
        for name, users in (("single_user", 1), ("multi_user", 8))
        for kernel in of_panel
    ]
    for panel in bench.panels:
        if panel.kernel == "decode":
            assert panel.variants == ("dot", "opt1", "opt3", "opt3v", "opt2")
            assert panel.cubes == (1, 2, 4, 8)
        assert panel.contexts_tokens == (1024, 8192, 131072, 1048576)
        assert panel.knobs.get("query_length", 1) == (512 if "prefill" in panel.name else 1)
        assert max(panel.contexts_tokens) <= load_workload(bench.workload).max_context_tokens
        assert panel.pes == load_machine(bench.machine).grid.pes
    assert bench.parity.context_tokens == 1024
    with pytest.raises(dataclasses.FrozenInstanceError):
        bench.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_groups_that_are_shipped() -> None:
    groups = {load_workload(name).group for name in shipped.names("workloads")}
    assert groups >= {4, 5, 8, 12, 16}


def test_numbers_in_yaml_words(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    text = MACHINE.replace("value: 1048576", "value: 1e6").replace("value: 4096", "value: 0x1000")
    path.write_text(text.replace("tile_m: {value: 32", "tile_m: {value: 3.2e1"))
    machine = load_machine(path)
    assert machine.scratch.capacity_bytes == 1e6
    assert machine.gemm.macs_per_cycle == 4096
    assert (machine.gemm.tile_m, type(machine.gemm.tile_m)) == (32, int)


def test_yaml_that_its_reader_warns_of(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    text = MACHINE.replace("value: 1.0,", "value: &a 1.0,").replace("value: 0.80", "value: &a 0.80")
    path.write_text("%YAML 1.1\n---\n" + text.replace("value: 4096", "value: 1e6"))
    machine = load_machine(path)  # warnings are errors here
    assert (machine.gemm.macs_per_cycle, machine.hbm.sustained_fraction) == (1e6, 0.8)


def test_energy_is_optional_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    keys = [key for key in schema.leaves(Machine) if key.startswith("energy.")]
    section = "".join(f"  {key[7:]}: {{value: 2.5, source: test}}\n" for key in keys)
    path.write_text(f"{MACHINE}\nenergy:\n{section}")
    energy = load_machine(path).energy
    assert energy is not None
    assert dataclasses.astuple(energy) == (2.5,) * len(keys)
    assert sources(path)["energy.hbm_pj_per_byte"] == "test"


def test_bench_finds_files_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = (shipped.root() / "benches" / "milestone-gqa-llama70b.yaml").read_text()
    (tmp_path / "own.yaml").write_text(MACHINE)
    (tmp_path / "b.yaml").write_text(
        bench.replace("ahbm_4sip", "own.yaml").replace("tile_tokens: 256", "tile_tokens: one-shot")
    )
    monkeypatch.chdir("/")
    loaded = load_bench(tmp_path / "b.yaml")
    assert load_machine(loaded.machine).name == "ahbm_4sip"
    assert loaded.panels[0].tile_tokens == "one-shot"


def test_name_of_a_file_without_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text(MACHINE.replace("value: 25,", "value: 26,"))
    monkeypatch.chdir(tmp_path)
    assert load_machine("mine").dma.issue_cycles == 26


def test_installed_configs_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "ahbm_jax"
    monkeypatch.setattr(shipped, "__file__", str(package / "config" / "shipped.py"))
    for folder, name in [("configs", "in_checkout"), ("ahbm_jax/_configs", "in_wheel")]:
        (tmp_path / folder / "machines").mkdir(parents=True)
        (tmp_path / folder / "machines" / f"{name}.yaml").write_text(MACHINE)
        assert shipped.names("machines") == [name]
    load_machine("in_wheel")
    with pytest.raises(ConfigError, match="allowed: in_wheel"):
        load_machine("in_checkout")


@pytest.mark.parametrize(("kind", "name", "record", "load"), FILES)
def test_what_loads_also_checks(kind: str, name: str, record: type, load: Any) -> None:
    (check_machine if record is Machine else check_workload)(load(name))


def test_importing_the_package_is_cheap() -> None:
    code = (
        "import sys, ahbm_jax.config; print({'jax', 'pydantic', 'ruamel.yaml'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"
