"""A machine and a workload as frozen pytrees, in the units of their YAML keys.

Every number field is a pytree leaf, so that any of them can be traced, mapped over or
differentiated; grid shapes, queue depths and switches are static. The field names, bounds and
descriptions here are the only list of what a machine file may hold: `ahbm_jax.config` derives its
schema from them, and `ahbm_jax.machine.costs` is the only place that converts units.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")
Number = Any  # a Python number or a JAX scalar: leaves may be traced


def number(doc: str, low: float, high: float, *, above_low: bool = False) -> Any:
    """A leaf: a number in `[low, high]` (`(low, high]` if `above_low`), documented once, here."""
    return field(metadata={"doc": doc, "low": low, "high": high, "above_low": above_low})


def static(
    doc: str,
    low: int | None = None,
    high: int | None = None,
    *,
    optional: bool = False,
    **extra: Any,
) -> Any:
    """A static field: an integer in `[low, high]`, a switch or a name; None if left out."""
    metadata = {"doc": doc, "low": low, "high": high, "static": True, **extra}
    return field(metadata=metadata, default=None) if optional else field(metadata=metadata)


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(number, static, field)
)
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass whose static fields are metadata of the pytree."""
    made: Any = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    fields = dataclasses.fields(made)
    return jax.tree_util.register_dataclass(
        made,
        data_fields=[f.name for f in fields if not f.metadata.get("static")],
        meta_fields=[f.name for f in fields if f.metadata.get("static")],
    )


@pytree
class Grid:
    """How many SIPs, the CUBE mesh of one SIP and the PE mesh of one CUBE."""

    sips: int = static("SIPs (chips) in the machine", 1, 1024)
    cube_rows: int = static("rows of the CUBE mesh of one SIP", 1, 8)
    cube_cols: int = static("columns of the CUBE mesh of one SIP", 1, 8)
    pe_rows: int = static("rows of the PE mesh of one CUBE", 1, 2)
    pe_cols: int = static("columns of the PE mesh of one CUBE", 1, 16)

    @property
    def cubes(self) -> int:
        """CUBEs of one SIP."""
        return self.cube_rows * self.cube_cols

    @property
    def pes(self) -> int:
        """PEs of one CUBE."""
        return self.pe_rows * self.pe_cols

    def extent(self, mesh: str) -> tuple[int, int]:
        """Rows and columns of mesh `"pe"` or `"cube"`."""
        if mesh == "pe":
            return self.pe_rows, self.pe_cols
        return self.cube_rows, self.cube_cols


@pytree
class Clock:
    """The clock that every `_cycles` key counts."""

    frequency_ghz: Number = number("clock of every PE engine and link", 0.0, 100.0, above_low=True)


@pytree
class Hbm:
    """The HBM pseudo-channels that one PE owns."""

    pseudo_channels_per_pe: Number = number("pseudo-channels owned by one PE", 1, 1024)
    pseudo_channel_gb_per_s: Number = number(
        "peak of one pseudo-channel (1 GB/s = 1 byte/ns)", 0.0, 1e5, above_low=True
    )
    sustained_fraction: Number = number(
        "share of the peak that streams sustain", 0.0, 1.0, above_low=True
    )
    access_latency_ns: Number = number("latency of an HBM access, pipelined", 0.0, 1e6)


@pytree
class Dma:
    """The DMA engine of one PE."""

    startup_cycles: Number = number("latency of a DMA command, pipelined", 0.0, 1e6)
    issue_cycles: Number = number("occupancy of the engine per command beside its bytes", 0.0, 1e6)


@pytree
class Gemm:
    """The GEMM engine and the sub-tiles that the scheduler cuts a composite into."""

    tile_m: int = static("rows of `a` in one sub-tile", 1, 4096)
    tile_k: int = static("contraction length of one sub-tile", 1, 4096)
    tile_n: int = static("columns of `b` in one sub-tile", 1, 4096)
    macs_per_cycle: Number = number("multiply-accumulates per cycle", 0.0, 1e9, above_low=True)
    writeout_cycles: Number = number("latency from GEMM to scratch, pipelined", 0.0, 1e6)
    epilogue_cycles: Number = number("added latency of one epilogue stage, pipelined", 0.0, 1e6)
    stream_depth_subtiles: Number = number("sub-tiles that DMA may run ahead of GEMM", 1, 65536)
    operand_reuse: bool = static("fetch a `b` sub-tile once for all tiles of M")


@pytree
class Math:
    """The MATH (vector) engine."""

    lanes: Number = number("elements per cycle", 1, 1e6)
    exp_cycles: Number = number("cycles per pass of an exponential (others take 1)", 1, 1e4)
    blocking: bool = static("MATH operations hold the CPU until they finish")


@pytree
class Scheduler:
    """The scheduler that turns a composite into sub-tile commands."""

    latency_cycles: Number = number("from descriptor to first sub-tile command", 0.0, 1e6)
    queue_depth_composites: int = static("composites in flight before the CPU stalls", 1, 64)


@pytree
class Scratch:
    """TCM scratch of one PE."""

    capacity_bytes: Number = number("TCM scratch of one PE", 1, 1e12)


@pytree
class Link:
    """A send port with its link: PE to PE inside a CUBE, or CUBE to CUBE inside a SIP."""

    overhead_cycles: Number = number("port busy per message beside its bytes", 0.0, 1e6)
    bytes_per_cycle: Number = number("link width", 0.0, 1e6, above_low=True)
    fixed_cycles: Number = number("latency of a message beside its hops", 0.0, 1e6)
    hop_cycles: Number = number("latency of one hop", 0.0, 1e6)
    queue_depth_messages: int = static("messages a direction holds before it pushes back", 1, 64)


@pytree
class Issue:
    """CPU occupancy per command, by kind (ADR-0064)."""

    load_cycles: Number = number("`tl.load`", 0.0, 1e6)
    store_cycles: Number = number("`tl.store`", 0.0, 1e6)
    composite_cycles: Number = number("`tl.composite`", 0.0, 1e6)
    ex_composite_cycles: Number = number("`tl.ex_composite`", 0.0, 1e6)
    dot_cycles: Number = number("`tl.dot`", 0.0, 1e6)
    math_cycles: Number = number("one MATH operation", 0.0, 1e6)
    send_cycles: Number = number("`tl.send`", 0.0, 1e6)
    recv_cycles: Number = number("`tl.recv`", 0.0, 1e6)
    recv_async_cycles: Number = number("`tl.recv_async`", 0.0, 1e6)
    wait_cycles: Number = number("`tl.wait`", 0.0, 1e6)
    loop_cycles: Number = number("one iteration of a loop", 0.0, 1e6)


@pytree
class Energy:
    """Energy per unit of work; a machine without this section reports no energy."""

    hbm_pj_per_byte: Number = number("HBM access", 0.0, 1e6)
    gemm_pj_per_mac: Number = number("one multiply-accumulate", 0.0, 1e6)
    math_pj_per_element: Number = number("one element through MATH", 0.0, 1e6)
    link_pj_per_byte: Number = number("one byte over one hop", 0.0, 1e6)


@pytree
class Device:
    """Identical units that programs are divided over, behind one cache: a GPU's SMs, say.

    The machine's one PE then stands for the unit that has most to do: its `hbm` is that unit's
    share of the device's bandwidth.
    """

    units: Number = number("identical units that a program is divided over", 1, 1e6)
    launch_cycles: Number = number("from a program's launch to its first command", 0.0, 1e9)
    join_cycles: Number = number(
        "from the last unit's end to the start of what needs them all", 0.0, 1e9
    )
    cache_bytes: Number = number("cache that all units share", 0.0, 1e12)
    cache_gb_per_s: Number = number(
        "one unit's share of that cache's bandwidth (1 GB/s = 1 byte/ns)", 0.0, 1e6, above_low=True
    )


@pytree
class Validity:
    """Sizes of the measurements that a fitted machine's numbers are from."""

    least_sequences: Number = number("least sequences, or commands, of a launch", 0.0, 2.0**40)
    most_sequences: Number = number("most sequences, or commands, of a launch", 0.0, 2.0**40)
    least_context_tokens: Number = number("least tokens of the context", 0.0, 2.0**40)
    most_context_tokens: Number = number("most tokens of the context", 0.0, 2.0**40)
    least_query_tokens: Number = number("least query tokens", 0.0, 2.0**40)
    most_query_tokens: Number = number("most query tokens", 0.0, 2.0**40)
    least_kv_heads: Number = number("least KV heads", 0.0, 2.0**40)
    most_kv_heads: Number = number("most KV heads", 0.0, 2.0**40)
    least_group: Number = number("least query heads of a KV head", 0.0, 2.0**40)
    most_group: Number = number("most query heads of a KV head", 0.0, 2.0**40)
    least_head_dim: Number = number("least head dimension", 0.0, 2.0**40)
    most_head_dim: Number = number("most head dimension", 0.0, 2.0**40)


@pytree
class Machine:
    """One AHBM machine. `ahbm_jax.load_machine` reads it from YAML."""

    name: str = static("name of the machine")
    grid: Grid
    clock: Clock
    hbm: Hbm
    dma: Dma
    gemm: Gemm
    math: Math
    scheduler: Scheduler
    scratch: Scratch
    pe_link: Link
    cube_link: Link
    issue: Issue
    energy: Energy | None
    device: Device | None
    validity: Validity | None


STORAGE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@pytree
class Workload:
    """The attention of one model. `ahbm_jax.load_workload` reads it from YAML."""

    name: str = static("name of the model")
    layers: int = static("decoder layers", 1, 100_000)
    query_heads: int = static("query heads H", 1, 65536)
    kv_heads: int = static("KV heads K; divides the query heads", 1, 65536)
    head_dim: int = static("head dimension D", 1, 65536)
    storage: str = static("type of q, k and v in HBM", choices=tuple(STORAGE_BYTES))
    max_context_tokens: int = static("longest context the model is used at", 1, 2**24)
    value_dim: int | None = static(
        "head dimension of V, where it is not D", 1, 65536, optional=True
    )

    @property
    def group(self) -> int:
        """Query heads that share one KV head (G)."""
        return self.query_heads // self.kv_heads

    @property
    def storage_bytes(self) -> int:
        """Bytes of one stored element."""
        return STORAGE_BYTES[self.storage]


def replace(tree: Any, values: dict[str, Any]) -> Any:
    """`tree` with the fields named by dotted keys (`"hbm.access_latency_ns"`) replaced.

    Values may be traced. Raises `ValueError` for a key that names no field.
    """
    for key, value in values.items():
        tree = _replace_one(tree, key, key.split("."), value)
    return tree


def _replace_one(tree: Any, key: str, path: list[str], value: Any) -> Any:
    known = field_names(tree) if hasattr(tree, "__dataclass_fields__") else []
    if path[0] not in known:
        raise ValueError(f"`{key}` names no field; here one of {', '.join(known)} is allowed")
    inner = value if len(path) == 1 else _replace_one(getattr(tree, path[0]), key, path[1:], value)
    return dataclasses.replace(tree, **{path[0]: inner})


def field_names(tree: Any) -> list[str]:
    """Names of the fields of a machine, one of its sections, or a workload."""
    return [f.name for f in dataclasses.fields(tree)]
