"""The knobs of a run: their names, defaults and bounds, and the point that they describe."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ahbm_jax.errors import Infeasible, UsageError, nearest
from ahbm_jax.interpret.evaluate import Static, leaf_names
from ahbm_jax.kernel_names import Kernel, default_variant, resolve_kernel
from ahbm_jax.machine.costs import costs_ns
from ahbm_jax.machine.params import Machine, Workload, replace
from ahbm_jax.machine.placement import LAYOUTS, Placement
from ahbm_jax.machine.topology import CUBE_COLLECTIVES, PE_COLLECTIVES, rectangle
from ahbm_jax.tl.launch import RING_FEEDS, Launch, spreads_rows
from ahbm_jax.tl.program import FOLDED, ONE, PER_CUBE, heads_of, on_units

Number = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What a run varies beside the machine and the workload.

    Attributes:
      variant: variant of a shipped kernel (default: `opt3`, or its first).
      context: tokens in the KV cache (may be traced, as all numbers up to `window`).
      C: CUBEs of the group; they form the squarest rectangle in the mesh.
      P: PEs of each CUBE.
      tile: tokens per tile.
      cache_tokens: tokens that the cache is allocated for (default: `context`); `contiguous`
        places by it.
      start_cube: rotation of the placement over CUBEs.
      start_pe: rotation of the placement over PEs.
      users: requests that run through the group one after the other.
      sequences: requests that a device's units are divided over, all at once.
      query_length: query tokens T; a concrete 1 compiles to less than several do.
      query_start: position of the first query token (default: `context` - T: the last T).
      query_tile: query tokens that prefill kernels take at once (default 64 rows: 8 tokens, or 64
        where each rank has one head).
      window: tokens that a row sees, its own included (sliding window); default all.
      layout: placement of tokens.
      level2: reduce over PEs.
      level1: reduce over CUBEs.
      packed: (m, l, O) in one message.
      ring_chunk: KV tokens of a CUBE that go round the ring at once, a multiple of P (default P
        tiles).
      ring_feed: how they get to all PEs of a CUBE, see `Launch`.
      sinks: each head has a sink, a logit that takes part in the softmax.
      softcap: scores go through a soft-cap.
      group_shape: rows and columns of the CUBEs, instead of the squarest rectangle.
    """

    variant: str | None = None
    context: Number = 8192
    C: Number = None
    P: Number = None
    tile: Number = 256
    cache_tokens: Number = None
    start_cube: Number = 0
    start_pe: Number = 0
    users: Number = 1
    sequences: Number = 1
    query_length: Number = 1
    query_start: Number = None
    query_tile: Number = None
    window: Number = None
    layout: str = "contiguous"
    level2: str = "tree"
    level1: str = "mesh"
    packed: bool = False
    ring_chunk: Number = None
    ring_feed: str = RING_FEEDS[0]
    sinks: bool = False
    softcap: bool = False
    group_shape: tuple[int, int] | None = None


NUMBERS = (
    "context",
    "C",
    "P",
    "tile",
    "cache_tokens",
    "start_cube",
    "start_pe",
    "users",
    "sequences",
    "query_length",
    "query_start",
    "query_tile",
    "window",
    "ring_chunk",
)
CHOICES = {
    "layout": LAYOUTS,
    "level2": tuple(PE_COLLECTIVES),
    "level1": tuple(CUBE_COLLECTIVES),
    "packed": (False, True),
    "ring_feed": RING_FEEDS,
    "sinks": (False, True),
    "softcap": (False, True),
}
LARGEST = 2**24  # integers up to this are exact in float32
DEFAULT_CUBES = 8
QUERY_TILES = {FOLDED: 8, ONE: 64, PER_CUBE: 64}  # default, in tokens, by how heads are taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A kernel on a machine with every number settled: what the timing interpreter evaluates."""

    kernel: Kernel
    static: Static
    leaves: dict[str, Number]
    machine: Machine
    workload: Workload
    knobs: Knobs

    def arrays(self) -> list[jax.Array]:
        """The point's floats, each of shape [1], in the order the evaluation takes them."""
        dtype = jnp.result_type(float)
        return [
            jnp.asarray(self.leaves[name], dtype).reshape(1) for name in leaf_names(self.static)
        ]

    def request(self) -> dict[str, int | None]:
        """The sizes of the point, as results show them (concrete points only)."""
        names = ("context", "query_length", "query_start", "query_tile", "users", "P", "tile")
        sizes: dict[str, int | None] = {name: int(getattr(self.knobs, name)) for name in names}
        window, leaves = self.knobs.window, self.leaves
        sizes["window"] = None if window is None else int(window)
        return sizes | {"C": int(leaves["cube_rows"]) * int(leaves["cube_cols"])}

    def launch(self) -> Launch:
        """Launch arguments, as integers (concrete points only)."""
        sizes = {name: int(x) for name, x in self.leaves.items() if not isinstance(x, jax.Array)}
        static = self.static
        placement = Placement(
            layout=static.layout,
            cubes=sizes["cube_rows"] * sizes["cube_cols"],
            pes=sizes["pes"],
            cache_tokens=sizes["cache_tokens"],
            start_cube=sizes["start_cube"],
            start_pe=sizes["start_pe"],
        )
        return Launch(
            context_tokens=sizes["context_tokens"],
            query_tokens=sizes["query_tokens"],
            query_start=sizes["query_start"],
            query_block_tokens=sizes["query_block_tokens"],
            group=1 if heads_of(self.kernel) == PER_CUBE else sizes["group"],
            head_dim=sizes["head_dim"],
            value_dim=sizes["value_dim"],
            element_bytes=static.element_bytes,
            softmax_scale=sizes["head_dim"] ** -0.5,
            tile_tokens=sizes["tile_tokens"],
            window=sizes["window"] if static.windowed else None,
            softcap=1.0 if static.capped else None,
            sinks=static.sinks,
            cube_rows=sizes["cube_rows"],
            cube_cols=sizes["cube_cols"],
            placement=placement,
            level1=static.level1,
            level2=static.level2,
            packed=static.packed,
            ring_chunk_tokens=sizes["ring_chunk"],
            ring_feed=static.ring_feed,
            spreads_rows=static.spreads_rows,
            users=sizes["users"],
            sequences=sizes["sequences"],
            kv_heads=sizes["kv_heads"],
            units=sizes["units"],
            cache_bytes=sizes["cache_bytes"],
        )


def point(
    kernel: str | Kernel, machine: Machine, workload: Workload, knobs: dict[str, Any]
) -> Point:
    """Settle the knobs. Dotted names (`"hbm.access_latency_ns"`) replace the machine's numbers.

    Raises:
      UsageError: an unknown knob, or a concrete value out of its bounds.
    """
    from ahbm_jax.config.check import check_machine, check_workload

    machine = replace(machine, {name: x for name, x in knobs.items() if "." in name})
    check_machine(machine)
    check_workload(workload)
    settled = _settled(machine, {name: x for name, x in knobs.items() if "." not in name})
    if settled.variant is None:
        settled = dataclasses.replace(settled, variant=default_variant(kernel))
    function = resolve_kernel(kernel, settled.variant)
    if settled.query_tile is None:
        settled = dataclasses.replace(settled, query_tile=QUERY_TILES[heads_of(function)])
    alone = heads_of(function) == ONE  # each query head is a request of its own
    users = settled.users * workload.group if alone else settled.users
    _check_choices(settled)
    _check_numbers(settled, machine, workload)
    if heads_of(function) == PER_CUBE:
        _check_ring(settled, workload)
    rows, cols = _rectangle(settled, machine)
    _check_units(function, settled, machine)
    costs = costs_ns(machine)
    static = Static(
        machine=jax.tree.structure(machine),
        cost_names=tuple(costs),
        element_bytes=workload.storage_bytes,
        single=is_one(settled.query_length),
        windowed=settled.window is not None,
        sinks=settled.sinks,
        capped=settled.softcap,
        meshes=_meshes(machine, function, rows, cols, settled.P),
        layout=settled.layout,
        level1=settled.level1,
        level2=settled.level2,
        packed=settled.packed,
        ring_feed=settled.ring_feed,
        spreads_rows=spreads_rows(settled.query_length, settled.P),
        several=not is_one(users),
    )
    leaves = costs | {
        "math.lanes": machine.math.lanes,
        "gemm.stream_depth": machine.gemm.stream_depth_subtiles,
        "scratch.capacity": machine.scratch.capacity_bytes,
        "context_tokens": settled.context,
        "cache_tokens": settled.cache_tokens,
        "query_tokens": settled.query_length,
        "query_start": settled.query_start,
        "query_block_tokens": settled.query_tile,
        "window": 1 if settled.window is None else settled.window,
        "group": 1 if alone else workload.group,
        "head_dim": workload.head_dim,
        "value_dim": workload.head_dim if workload.value_dim is None else workload.value_dim,
        "tile_tokens": settled.tile,
        "cube_rows": rows,
        "cube_cols": cols,
        "pes": settled.P,
        "start_cube": settled.start_cube,
        "start_pe": settled.start_pe,
        "ring_chunk": settled.P * settled.tile
        if settled.ring_chunk is None
        else settled.ring_chunk,
        "users": users,
        "sequences": settled.sequences,
        "kv_heads": workload.kv_heads,
        "units": 1 if machine.device is None else machine.device.units,
        "cache_bytes": 0 if machine.device is None else machine.device.cache_bytes,
    }
    return Point(
        kernel=function,
        static=static,
        leaves=leaves,
        machine=machine,
        workload=workload,
        knobs=settled,
    )


def _meshes(
    machine: Machine, kernel: Kernel, rows: Number, cols: Number, pes: Number
) -> tuple[int, ...]:
    """Most rows and columns of CUBEs and of PEs that clocks are kept for.

    The machine's, so that one compiled function serves groups of all sizes; but of one rank its
    own, and the CUBEs alone of a kernel whose ranks work together all the time: that costs most.
    """
    grid = machine.grid
    if is_one(rows) and is_one(cols) and is_one(pes):
        return 1, 1, 1, 1
    cubes = grid.cube_rows, grid.cube_cols
    if heads_of(kernel) == PER_CUBE and is_concrete(rows) and np.ndim(rows) == 0:
        cubes = int(rows), int(cols)
    return *cubes, grid.pe_rows, grid.pe_cols


def _check_units(kernel: Kernel, knobs: Knobs, machine: Machine) -> None:
    """Refuse a kernel for a device's units elsewhere, and several sequences for another kernel."""
    if not on_units(kernel):
        if not is_one(knobs.sequences):
            raise UsageError(
                "`sequences` is for programs on a device's units; 1 is allowed here. Use `users` "
                "for several requests"
            )
    elif machine.device is None:
        raise UsageError(
            f"`machine` is `{machine.name}`, without a `device` section, which holds the "
            "units of this program; give a machine that has one"
        )


def scratch_overflow(machine: Machine, needed_bytes: float) -> Infeasible:
    """What to say of a point that needs more scratch than there is."""
    return Infeasible(
        "scratch (TCM) of one PE",
        needed_bytes,
        float(machine.scratch.capacity_bytes),
        "bytes",
        "lower `tile`, `query_tile`, `gemm.stream_depth_subtiles` or "
        "`scheduler.queue_depth_composites`, raise `scratch.capacity_bytes`, or spread over more "
        "ranks (`C`, `P`)",
    )


def _settled(machine: Machine, given: dict[str, Any]) -> Knobs:
    known = [f.name for f in dataclasses.fields(Knobs)]
    by_case = {name.lower(): name for name in known}
    named = {}
    for name, value in given.items():
        if name.lower() not in by_case:
            hint = nearest(name, known)
            allowed = ", ".join(known)
            raise UsageError(f"`{name}` is no knob{hint}; allowed: {allowed}, or a machine key")
        named[by_case[name.lower()]] = value
    knobs = Knobs(**named)
    grid = machine.grid
    one_token = knobs.context if not is_concrete(knobs.context) else max(int(knobs.context), 1)
    shape = knobs.group_shape
    last = knobs.context - knobs.query_length
    cubes = min(DEFAULT_CUBES, grid.cubes) if shape is None else shape[0] * shape[1]
    return dataclasses.replace(
        knobs,
        C=cubes if knobs.C is None else knobs.C,
        P=grid.pes if knobs.P is None else knobs.P,
        query_start=last if knobs.query_start is None else knobs.query_start,
        cache_tokens=one_token if knobs.cache_tokens is None else knobs.cache_tokens,
    )


def is_one(x: Any) -> bool:
    """Whether a number is known to be 1."""
    return is_concrete(x) and bool(np.all(np.asarray(x) == 1))


def is_concrete(x: Any) -> bool:
    """Whether a number's value is known now."""
    return not isinstance(x, Tracer)


def _check_choices(knobs: Knobs) -> None:
    for name, allowed in CHOICES.items():
        value = getattr(knobs, name)
        if value not in allowed:
            hint = nearest(str(value), [str(x) for x in allowed])
            names = ", ".join(str(x) for x in allowed)
            raise UsageError(f"`{name}` is {value!r}{hint}; allowed: {names}")


def _check_numbers(knobs: Knobs, machine: Machine, workload: Workload) -> None:
    for name in NUMBERS:
        value = getattr(knobs, name)
        if value is None or not is_concrete(value):
            continue
        values = np.asarray(value)
        if values.dtype.kind not in "iuf" or not np.all(np.isfinite(values)):
            raise UsageError(f"`{name}` is {value!r}; a finite number is allowed")
        if np.any(values != np.floor(values)) or np.any(values > LARGEST):
            raise UsageError(f"`{name}` is {value!r}; an integer up to {LARGEST:,} is allowed")
    longest = workload.max_context_tokens
    bounds: dict[str, tuple[int, int, str]] = {
        "context": (0, longest, f"`{workload.name}` is used up to {longest:,} tokens"),
        "P": (1, machine.grid.pes, f"a CUBE of `{machine.name}` has {machine.grid.pes} PEs"),
        "tile": (1, LARGEST, "tokens per tile"),
        "C": (1, machine.grid.cubes, f"a SIP of `{machine.name}` has {machine.grid.cubes} CUBEs"),
        "cache_tokens": (1, LARGEST, "tokens that the cache is allocated for"),
        "start_cube": (0, machine.grid.cubes - 1, "a CUBE of the group"),
        "start_pe": (0, machine.grid.pes - 1, "a PE of the CUBE"),
        "users": (1, LARGEST, "requests, one after the other"),
        "sequences": (1, LARGEST, "requests that a device's units are divided over"),
        "query_length": (1, LARGEST, "query tokens"),
        "query_start": (-LARGEST, LARGEST, "position of the first query token"),
        "query_tile": (1, LARGEST, "query tokens of a block"),
        "window": (1, LARGEST, "tokens that a row sees, its own included"),
        "ring_chunk": (1, LARGEST, "tokens of a CUBE that go round the ring at once"),
    }
    for name, (low, high, why) in bounds.items():
        value = getattr(knobs, name)
        if (
            value is not None
            and is_concrete(value)
            and (np.any(np.asarray(value) < low) or np.any(np.asarray(value) > high))
        ):
            raise UsageError(f"`{name}` is {value}; {low} to {high:,} is allowed: {why}")
    both = is_concrete(knobs.context) and is_concrete(knobs.cache_tokens)
    if both and np.any(np.asarray(knobs.context) > np.asarray(knobs.cache_tokens)):
        raise UsageError(
            f"`context` is {knobs.context}, over the cache of {knobs.cache_tokens} tokens; "
            "raise `cache_tokens` or lower `context`"
        )
    queries = (knobs.query_start, knobs.query_length, knobs.context)
    if all(map(is_concrete, queries)):
        start, length, context = map(np.asarray, queries)
        if np.any(start + length > np.maximum(context, length)):
            raise UsageError(
                f"`query_start` is {knobs.query_start} and `query_length` {knobs.query_length}: "
                f"the queries end past the `context` of {knobs.context} tokens; lower one of them"
            )


def _check_ring(knobs: Knobs, workload: Workload) -> None:
    """What a kernel with a query head on each CUBE asks of the group."""
    if is_concrete(knobs.C) and np.any(np.asarray(knobs.C) != workload.group):
        raise UsageError(
            f"`C` is {knobs.C} and `{workload.name}` has {workload.group} query heads per KV head; "
            f"the kernel gives each CUBE one of them: set `C` to {workload.group}"
        )
    chunk, pes = knobs.ring_chunk, knobs.P
    if chunk is not None and is_concrete(chunk) and is_concrete(pes) and np.any(chunk % pes):
        raise UsageError(f"`ring_chunk` is {chunk}; a multiple of `P` = {pes} tokens is allowed")


def _rectangle(knobs: Knobs, machine: Machine) -> tuple[Number, Number]:
    """Rows and columns of the group's CUBEs; 0 where a traced C has no rectangle."""
    grid = machine.grid
    if knobs.group_shape is not None:
        rows, cols = knobs.group_shape
        if not (1 <= rows <= grid.cube_rows and 1 <= cols <= grid.cube_cols):
            raise UsageError(
                f"`group_shape` is {rows} x {cols}; at most {grid.cube_rows} x {grid.cube_cols} "
                f"CUBEs of a SIP of `{machine.name}` are allowed"
            )
        if is_concrete(knobs.C) and rows * cols != knobs.C:
            raise UsageError(
                f"`group_shape` is {rows} x {cols} and `C` is {knobs.C}; leave one out"
            )
        return rows, cols
    shapes = [rectangle(c, grid.cube_rows, grid.cube_cols) for c in range(1, grid.cubes + 1)]
    table = np.array([(0, 0), *(shape or (0, 0) for shape in shapes)])
    if is_concrete(knobs.C) and np.ndim(knobs.C) == 0:
        rows, cols = table[int(knobs.C)]
        if rows == 0:
            allowed = ", ".join(str(c) for c, shape in enumerate(shapes, start=1) if shape)
            raise UsageError(
                f"`C` is {knobs.C}, which is no rectangle in the {grid.cube_rows} x "
                f"{grid.cube_cols} CUBE mesh of `{machine.name}`; allowed: {allowed}"
            )
        return int(rows), int(cols)
    number = jnp.asarray(knobs.C)
    whole = jnp.clip(number, 0, grid.cubes).astype(jnp.int32)
    inside = (number == whole) & (number <= grid.cubes)
    pair = jnp.where(inside, jnp.asarray(table)[whole].T, 0)
    return pair[0], pair[1]
