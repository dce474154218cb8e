"""What `ahbm machine show` prints: every key of a machine with its meaning, bounds and source."""

from __future__ import annotations

import os

from rich import box
from rich.table import Table
from rich.text import Text

from ahbm_jax.config import schema
from ahbm_jax.config.load import load_machine, sources
from ahbm_jax.machine.params import Machine

# The longest suffix of a key that is here says its unit.
_UNITS = {
    "_ghz": "GHz",
    "_gb_per_s": "GB/s",
    "_fraction": "of the peak",
    "_ns": "ns",
    "_cycles": "cycles",
    "_per_pe": "per PE",
    "_bytes": "bytes",
    "bytes_per_cycle": "bytes/cycle",
    "macs_per_cycle": "MAC/cycle",
    "lanes": "elements/cycle",
    "_subtiles": "sub-tiles",
    "_composites": "composites",
    "_messages": "messages",
    "_tokens": "tokens",
    "_sequences": "sequences",
    "_heads": "heads",
    "_group": "heads",
    "_head_dim": "elements",
    "units": "units",
    "_pj_per_byte": "pJ/byte",
    "_pj_per_mac": "pJ/MAC",
    "_pj_per_element": "pJ/element",
}


def unit(key: str) -> str:
    """The unit that a key's suffix names, or "" for a count, switch or name."""
    found = [suffix for suffix in _UNITS if key.endswith(suffix)]
    return _UNITS[max(found, key=len)] if found else ""


def machine_table(path_or_name: str | os.PathLike[str]) -> Table:
    """A table of every number and switch of a machine, one part a section.

    Args:
        path_or_name: path of a machine's YAML file, or the name of a shipped machine.

    Returns:
        A rich table: key, value, unit, and below each other meaning, bounds and source, so that
        it is readable on 80 columns.

    Raises:
        ConfigError: with every problem of the file.
    """
    machine, origin = load_machine(path_or_name), sources(path_or_name)
    table = Table(title=f"Machine {machine.name}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("key", no_wrap=True)
    table.add_column("value", no_wrap=True, justify="right")
    table.add_column("unit", no_wrap=True)
    table.add_column("meaning", ratio=1)
    previous = ""
    for key, source in origin.items():
        section, _, name = key.partition(".")
        if section != previous:
            table.add_section()
            table.add_row(Text(section, style="bold"))
        previous, leaf = section, schema.leaves(Machine)[key]
        # Text, because a source may hold what rich would read as markup.
        about = Text(f"{leaf.doc}\nallowed: {leaf.allowed}\nsource: {source}")
        table.add_row(f"  {name}", _value(machine, key), unit(key), about)
    return table


def _value(machine: Machine, key: str) -> str:
    section, _, name = key.partition(".")
    value = getattr(getattr(machine, section), name)
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if float(value).is_integer() else str(value)
