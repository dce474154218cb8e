"""The table of a machine shows every key with its value, unit, bounds and source."""

from __future__ import annotations

import io

from rich.console import Console

from ahbm_jax.config import schema
from ahbm_jax.config.load import sources
from ahbm_jax.config.show import machine_table, unit
from ahbm_jax.machine.params import Machine


def test_every_key_is_shown() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(machine_table("ahbm_4sip"))
    text = console.export_text()
    for key, source in sources("ahbm_4sip").items():
        leaf = schema.leaves(Machine)[key]
        assert f"  {key.partition('.')[2]} " in text
        assert leaf.doc in text
        assert f"allowed: {leaf.allowed}" in text
        assert f"source: {source}" in text
    row = next(line for line in text.splitlines() if "pseudo_channel_gb_per_s" in line)
    assert row.split()[1:3] == ["32", "GB/s"]
    assert any(line.split()[:2] == ["sustained_fraction", "0.8"] for line in text.splitlines())
    assert any(line.split()[:2] == ["blocking", "true"] for line in text.splitlines())


def test_fits_a_narrow_terminal() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(machine_table("one_pe"))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "queue_depth_composites" in text


def test_units_come_from_the_keys() -> None:
    assert unit("pe_link.bytes_per_cycle") == "bytes/cycle"
    assert unit("scratch.capacity_bytes") == "bytes"
    assert unit("hbm.access_latency_ns") == "ns"
    without = {key.rpartition(".")[2] for key in schema.leaves(Machine) if not unit(key)}
    assert without == {
        *("name", "sips", "cube_rows", "cube_cols", "pe_rows", "pe_cols"),
        *("tile_m", "tile_k", "tile_n", "operand_reuse", "blocking"),
    }
    assert unit("max_context_tokens") == "tokens"
