"""From numbers to latencies: the timing interpreter compiled once per kernel, batched and derived.

A *point* is a flat tuple of floats (costs, the machine's other numbers, sizes of the request). The
evaluation works on arrays with the batch axis last, whatever `jax.vmap` is asked for outside, and
has its own derivative rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from ahbm_jax.interpret.algebra import smooth as smoothed
from ahbm_jax.interpret.timing import PORTS, MeshUsedAgain, Timing, Totals
from ahbm_jax.interpret.timing_rules import RULES
from ahbm_jax.machine.params import replace
from ahbm_jax.machine.placement import Placement
from ahbm_jax.tl.launch import Launch
from ahbm_jax.tl.program import PER_CUBE, Kernel, heads_of, run_program

Array = jax.Array
CHUNK = 128  # points at once: the clocks of a chunk stay in cache
DERIVATIVE_CHUNK = 64

SIZES = (
    "context_tokens",
    "query_tokens",
    "query_start",
    "query_block_tokens",
    "window",
    "cache_tokens",
    "group",
    "head_dim",
    "value_dim",
    "tile_tokens",
    "cube_rows",
    "cube_cols",
    "pes",
    "start_cube",
    "start_pe",
    "ring_chunk",
    "users",
    "sequences",
    "kv_heads",
    "units",
    "cache_bytes",
    "decode_users",
)
RESULTS = ("ok", "bad_size", "no_rectangle", "over_cache", "scratch_overflow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """What a compiled evaluation is specialised to, beside the kernel."""

    machine: Any  # tree structure of the machine, which holds its static fields
    cost_names: tuple[str, ...]
    element_bytes: int
    single: bool  # one query token
    windowed: bool
    sinks: bool
    capped: bool  # the scores, by a soft-cap
    meshes: tuple[int, ...]  # most rows and columns of CUBEs and of PEs in use
    layout: str
    level1: str
    level2: str
    packed: bool
    ring_feed: str
    spreads_rows: bool
    several: bool  # requests one after the other
    mixed: bool  # some of which decode, before the others


MESHES = ("grid.cube_rows", "grid.cube_cols", "grid.pe_rows", "grid.pe_cols")
NUMBERS = ("math.lanes", "gemm.stream_depth", "scratch.capacity")


def leaf_names(static: Static) -> tuple[str, ...]:
    """Names of a point's floats, in order."""
    return (*static.cost_names, *NUMBERS, *SIZES)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A finished timing of a chunk of points: latencies and what else was counted, [..., batch]."""

    timing: Timing
    totals: Totals
    point: dict[str, Array]
    per_cube: bool  # each CUBE has a result of its own

    def ranks(self, x: Array) -> Array:
        """A value of every rank in use, `-inf` on the others."""
        return jnp.where(self.timing.lanes.used, x, -jnp.inf)

    def latency_ns(self) -> Array:
        """Time until every rank is done."""
        return self.totals.end_ns

    def cube_finish_ns(self) -> dict[str, Array]:
        """Time until each CUBE is done, of kernels that leave a result on each."""
        if not self.per_cube:
            return {}
        finish = jnp.max(self.ranks(self.timing.result()), axis=1)
        return {f"cube_finish_ns.{cube}": x for cube, x in enumerate(finish)}

    def scratch_peak_bytes(self) -> Array:
        """Most scratch that a rank needs."""
        return self.totals.scratch_peak_bytes

    def result_code(self) -> Array:
        """Index into `RESULTS`, the first that applies."""
        point = {name: x[0, 0] for name, x in self.point.items()}
        grid = self.timing.machine.grid
        rows, cols, pes = point["cube_rows"], point["cube_cols"], point["pes"]
        tile, context = point["tile_tokens"], point["context_tokens"]
        sizes_bad = (tile < 1) | (context < 0) | (pes < 1) | (pes > grid.pes)
        for name in ("query_tokens", "query_block_tokens", "window"):
            sizes_bad = sizes_bad | (point[name] < 1)
        checks = [
            sizes_bad,
            (rows < 1) | (cols < 1) | (rows > grid.cube_rows) | (cols > grid.cube_cols),
            context > point["cache_tokens"],
            self.scratch_peak_bytes() > point["scratch.capacity"],
        ]
        code = jnp.zeros_like(context)
        for number, failed in reversed(list(enumerate(checks, start=1))):
            code = jnp.where(failed, float(number), code)
        return code

    def report(self) -> dict[str, Array]:
        """Everything that a result holds."""
        return (
            self.counts()
            | self.cube_finish_ns()
            | {
                "latency_ns": self.latency_ns(),
                "scratch_peak_bytes": self.scratch_peak_bytes(),
                "result_code": self.result_code(),
            }
        )

    def counts(self) -> dict[str, Array]:
        """Counters summed over the group's ranks, and the busiest rank's engine times.

        Of its ports (`most_busy_port`) that of the busiest one.
        """
        used = self.timing.lanes.used
        total = {
            name: jnp.sum(jnp.where(used, x, 0.0), axis=(0, 1))
            for name, x in self.timing.counts.items()
        }
        most = {
            f"most_{name}": jnp.max(self.ranks(x), axis=(0, 1))
            for name, x in self.timing.counts.items()
        }
        ports = [f"busy_{port}" for port in PORTS]
        total["busy_port"] = functools.reduce(jnp.add, [total.pop(port) for port in ports])
        busiest = [most.pop(f"most_{port}") for port in ports]
        most["most_busy_port"] = functools.reduce(jnp.maximum, busiest)
        return total | most


def evaluate(
    kernel: Kernel, static: Static, point: dict[str, Array], *, counting: bool, loops: Any = None
) -> Evaluation:
    """Time `kernel` at points given as [1, 1, batch] arrays; a list `loops` gets loops' maps."""
    machine = jax.tree.unflatten(static.machine, [0.0] * static.machine.num_leaves)
    machine = replace(machine, dict(zip(MESHES, static.meshes, strict=True)))
    sizes = {name: point[name] for name in SIZES}
    placement = Placement(
        layout=static.layout,
        cubes=sizes["cube_rows"] * sizes["cube_cols"],
        pes=sizes["pes"],
        cache_tokens=sizes["cache_tokens"],
        start_cube=sizes["start_cube"],
        start_pe=sizes["start_pe"],
    )
    launch = Launch(
        context_tokens=sizes["context_tokens"],
        query_tokens=1 if static.single else sizes["query_tokens"],
        query_start=sizes["query_start"],
        query_block_tokens=sizes["query_block_tokens"],
        group=1 if heads_of(kernel) == PER_CUBE else sizes["group"],
        head_dim=sizes["head_dim"],
        value_dim=sizes["value_dim"],
        element_bytes=static.element_bytes,
        softmax_scale=1.0,  # times do not depend on it, nor on where the soft-cap is
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
        users=sizes["users"] if static.several else 1,
        sequences=sizes["sequences"],
        kv_heads=sizes["kv_heads"],
        units=sizes["units"],
        cache_bytes=sizes["cache_bytes"],
        decode_users=sizes["decode_users"] if static.mixed else 0,
    )
    costs, numbers = ({n: point[n] for n in names} for names in (static.cost_names, NUMBERS))
    timed = functools.partial(
        Timing,
        machine,
        costs,
        numbers,
        launch,
        batch=max(x.shape[-1] for x in point.values()),
        rules=RULES,
        counting=counting,
    )
    try:
        timing = _run(timed(), kernel, loops)
    except MeshUsedAgain:
        timing = _run(timed(careful=True), kernel, loops)
    totals = timing.totals()
    timing.position("cube")
    return Evaluation(timing, totals, point, heads_of(kernel) == PER_CUBE)


def _run(timing: Timing, kernel: Kernel, loops: list[Any] | None) -> Timing:
    if loops is not None:
        loops.clear()
    timing.loops = loops
    run_program(timing, kernel)
    return timing


def _chunked(f: Callable[[tuple[Array, ...]], Any], leaves: tuple[Array, ...], chunk: int) -> Any:
    """`f` on leaves [1, 1, n], chunk by chunk; `f` returns arrays with the batch last."""
    size = max(leaf.shape[0] for leaf in leaves)
    place = [leaf.reshape(1, 1, -1) for leaf in leaves]
    if size <= chunk:
        return f(tuple(place))
    count = -(-size // chunk)
    wide = [leaf.shape[0] > 1 for leaf in leaves]
    padded = [
        jnp.pad(leaf, (0, count * chunk - size), mode="edge").reshape(count, 1, 1, chunk)
        for leaf, w in zip(leaves, wide, strict=True)
        if w
    ]

    def one(parts: list[Array]) -> Any:
        parts = list(parts)
        return f(tuple(parts.pop(0) if w else p for p, w in zip(place, wide, strict=True)))

    out = jax.lax.map(one, padded)
    return jax.tree.map(
        lambda x: jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)[..., :size], out
    )


def _batch_last(f: Callable[[tuple[Array, ...]], Any], chunk: int) -> Callable[..., Any]:
    """A function of leaves [n] (or [1], shared) that keeps the batch last under any `vmap`.

    Its results have the batch as their last axis.
    """

    @custom_vmap
    def batched(*leaves: Array) -> Any:
        return _chunked(f, leaves, chunk)

    @batched.def_vmap
    def rule(axis_size: int, in_batched: list[bool], *leaves: Array) -> tuple[Any, Any]:
        inner = max(leaf.shape[-1] for leaf in leaves)
        flat = []
        for leaf, mapped in zip(leaves, in_batched, strict=True):
            if not mapped and leaf.shape[-1] == 1:
                flat.append(leaf)
            else:
                full = leaf if mapped else leaf[None]
                flat.append(jnp.broadcast_to(full, (axis_size, inner)).reshape(-1))
        out = jax.tree.map(
            lambda x: jnp.moveaxis(x.reshape(*x.shape[:-1], axis_size, inner), -2, 0),
            _spread(batched(*flat), axis_size * inner),
        )
        return out, jax.tree.map(lambda _: True, out)

    return batched


def _spread(tree: Any, size: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*x.shape[:-1], size)), tree)


def _spread_like(x: Array, leaves: tuple[Array, ...]) -> Array:
    return jnp.broadcast_to(x, (*x.shape[:-1], max(leaf.shape[-1] for leaf in leaves)))


@functools.lru_cache(maxsize=256)
def latency_function(
    kernel: Kernel, static: Static, *, smooth: bool = False
) -> Callable[..., Array]:
    """Latency of leaves [n] each (or [1], shared) as [n]; infinite where infeasible.

    With `smooth` there is one leaf more, last: the temperature in ns of the smooth maximum.

    Works under jit, vmap and (forward or reverse) differentiation. The derivative is that of the
    critical path; where several paths are critical it is that of one of them.
    """
    names = leaf_names(static)

    def value(leaves: tuple[Array, ...]) -> Array:
        point = dict(zip(names, leaves, strict=False))
        with smoothed(leaves[-1]) if smooth else nullcontext():
            evaluation = evaluate(kernel, static, point, counting=False)
            latency = jnp.where(evaluation.result_code() > 0, jnp.inf, evaluation.latency_ns())
        return _spread_like(latency, leaves)

    @functools.cache
    def derivative(which: tuple[int, ...]) -> Callable[..., Array]:
        """By each of these leaves, [which, n]."""

        def partials(leaves: tuple[Array, ...]) -> Array:
            moved = tuple(leaves[i] for i in which)

            def of_moved(*moved: Array) -> Array:
                at = dict(zip(which, moved, strict=True))
                return value(tuple(at.get(i, leaf) for i, leaf in enumerate(leaves)))

            def along(direction: Array) -> Array:
                tangents = [
                    jnp.broadcast_to(d, leaf.shape)
                    for d, leaf in zip(direction, moved, strict=True)
                ]
                return jax.jvp(of_moved, moved, tuple(tangents))[1]

            return jax.vmap(along)(jnp.eye(len(moved), dtype=leaves[0].dtype))

        return _batch_last(partials, DERIVATIVE_CHUNK)

    forward = _batch_last(value, CHUNK)

    @jax.custom_jvp
    def latency(*leaves: Array) -> Array:
        return forward(*leaves)

    def rule(leaves: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
        out = latency(*leaves)
        # What does not move has no tangent, which is less work for all others.
        which = tuple(i for i, t in enumerate(tangents) if not isinstance(t, SymbolicZero))
        slope = jnp.zeros_like(out)
        for i, row in zip(which, derivative(which)(*leaves), strict=True):
            slope = slope + row * tangents[i]
        return out, slope

    latency.defjvp(rule, symbolic_zeros=True)
    return jax.jit(latency)


@functools.lru_cache(maxsize=256)
def report_function(kernel: Kernel, static: Static) -> Callable[..., dict[str, Array]]:
    """Everything that a result holds, of leaves [n] each (or [1], shared), as arrays [n]."""
    names = leaf_names(static)

    def report(leaves: tuple[Array, ...]) -> dict[str, Array]:
        point = dict(zip(names, leaves, strict=True))
        evaluation = evaluate(kernel, static, point, counting=True)
        return {name: _spread_like(x, leaves) for name, x in evaluation.report().items()}

    return jax.jit(_batch_last(report, CHUNK))
