"""Formats of measurements: their columns, and the sizes of a launch that a row was measured at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
Columns = dict[str, Array]
COUNT, NUMBER, TEXT, LEVEL = "count", "number", "text", "level"
ELEMENT_BYTES = 2  # bfloat16: what all formats measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What the columns of a table of measurements are.

    Attributes:
      doc: what a row is.
      columns: kind of each column that must be there: a `count` is a whole number of 1 or more, a
        `number` is above 0, a `level` a number or nothing, a `text` any.
      key: columns of which no two rows hold the same values.
      target: column of the measured latency.
      target_ns: nanoseconds of its unit, given the columns and the machine's clock (GHz).
      sizes: sizes of the launch (`ahbm_jax.interpret.evaluate.SIZES`) from the columns.
      work: two amounts of work of a row, to which a roofline's or alpha-beta's times are
        proportional: (operations, bytes), or (commands, bytes).
      overlaps: whether that baseline takes the longer of the two times, or their sum.
      axes: columns by which residuals are looked at.
    """

    doc: str
    columns: dict[str, str]
    key: tuple[str, ...]
    target: str
    target_ns: Callable[[float], float]
    sizes: Callable[[Columns], Columns]
    work: Callable[[Columns], tuple[Array, Array]]
    overlaps: bool
    axes: tuple[str, ...]


def _attention_sizes(c: Columns) -> Columns:
    return {
        "sequences": c["batch"],
        "query_tokens": c["q_len"],
        "context_tokens": c["kv_len"],
        "cache_tokens": c["kv_len"],
        "query_start": c["kv_len"] - c["q_len"],
        "kv_heads": c["n_kv_heads"],
        "group": c["n_q_heads"] / c["n_kv_heads"],
        "head_dim": c["head_dim"],
        "value_dim": c["head_dim"],
    }


def _attention_work(c: Columns) -> tuple[Array, Array]:
    """Multiply-accumulates of causal attention, and bytes of q, k, v and the output."""
    seen = c["q_len"] * (c["kv_len"] - (c["q_len"] - 1) / 2)  # pairs of a query and a key
    macs = 2 * c["batch"] * c["n_q_heads"] * c["head_dim"] * seen
    tokens = c["kv_len"] * c["n_kv_heads"] + c["q_len"] * c["n_q_heads"]
    return macs, 2 * ELEMENT_BYTES * c["batch"] * c["head_dim"] * tokens


def _bytes_sizes(count: Array, size: Array) -> Columns:
    tokens, one = size / ELEMENT_BYTES, np.ones_like(size)
    sizes = {"sequences": count, "context_tokens": tokens, "cache_tokens": tokens}
    return sizes | {"head_dim": one, "value_dim": one, "group": one}


def _command_sizes(c: Columns) -> Columns:
    sizes = _bytes_sizes(c["count"], c["cols"] * ELEMENT_BYTES)
    return sizes | {"head_dim": c["inner"], "value_dim": c["inner"], "group": c["rows"]}


def _microseconds(clock_ghz: float) -> float:
    return 1e3


def _nanoseconds(clock_ghz: float) -> float:
    return 1.0


def _cycles(clock_ghz: float) -> float:
    return 1.0 / clock_ghz


FORMATS = {
    "attention": Format(
        doc="latency of attention of a batch of sequences, causal, in bfloat16",
        columns={
            "phase": TEXT,
            "batch": COUNT,
            "q_len": COUNT,
            "kv_len": COUNT,
            "n_q_heads": COUNT,
            "n_kv_heads": COUNT,
            "head_dim": COUNT,
            "latency_us": NUMBER,
        },
        key=("phase", "batch", "q_len", "kv_len", "n_q_heads", "n_kv_heads", "head_dim"),
        target="latency_us",
        target_ns=_microseconds,
        sizes=_attention_sizes,
        work=_attention_work,
        overlaps=True,
        axes=("kv_len", "q_len", "batch", "n_kv_heads", "n_q_heads"),
    ),
    "transactions": Format(
        doc="completion of a number of transactions of one size over a network on chip",
        columns={
            "arch": TEXT,
            "pattern": TEXT,
            "memory": TEXT,
            "num_transactions": COUNT,
            "num_peers": LEVEL,
            "same_axis": LEVEL,
            "transaction_bytes": COUNT,
            "latency_cycles": NUMBER,
        },
        key=(
            "arch",
            "pattern",
            "memory",
            "num_transactions",
            "num_peers",
            "same_axis",
            "transaction_bytes",
        ),
        target="latency_cycles",
        target_ns=_cycles,
        sizes=lambda c: _bytes_sizes(c["num_transactions"], c["transaction_bytes"]),
        work=lambda c: (c["num_transactions"], c["num_transactions"] * c["transaction_bytes"]),
        overlaps=False,
        axes=("num_transactions", "transaction_bytes", "same_axis", "num_peers"),
    ),
    "dispatch": Format(
        doc="time to dispatch a program of kernel binaries of one size",
        columns={
            "arch": TEXT,
            "config": TEXT,
            "num_kernel_binaries": COUNT,
            "kernel_bytes_each": COUNT,
            "dispatch_ns": NUMBER,
        },
        key=("arch", "config", "num_kernel_binaries", "kernel_bytes_each"),
        target="dispatch_ns",
        target_ns=_nanoseconds,
        sizes=lambda c: _bytes_sizes(c["num_kernel_binaries"], c["kernel_bytes_each"]),
        work=lambda c: (
            c["num_kernel_binaries"],
            c["num_kernel_binaries"] * c["kernel_bytes_each"],
        ),
        overlaps=False,
        axes=("num_kernel_binaries", "kernel_bytes_each", "config"),
    ),
    "commands": Format(
        doc="an operation log: `count` commands of one kind, [rows, inner] by [inner, cols]",
        columns={
            "op": TEXT,
            "count": COUNT,
            "rows": COUNT,
            "inner": COUNT,
            "cols": COUNT,
            "latency_ns": NUMBER,
        },
        key=("op", "count", "rows", "inner", "cols"),
        target="latency_ns",
        target_ns=_nanoseconds,
        sizes=_command_sizes,
        work=lambda c: (
            c["count"] * c["rows"] * c["inner"] * c["cols"],
            c["count"] * c["inner"] * c["cols"] * ELEMENT_BYTES,
        ),
        overlaps=False,
        axes=("count", "rows", "inner", "cols"),
    ),
}
