"""Compiled evaluations: of many points at once, on all devices of this process."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ahbm_jax.interpret.evaluate import CHUNK, Static, evaluate, latency_function, leaf_names
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.machine.params import Energy
from ahbm_jax.result import FAST_TO_RUN, QUICK_TO_COMPILE
from ahbm_jax.sweeps.variables import ELASTICITY, VARIABLES, Facts

Array = jax.Array
Values = dict[str, Array]
Program = Callable[[tuple[Array, ...], tuple[Array, ...]], Values]
POINTS = "points"
# Up to here a program that is quick to compile is done first, though it runs 10 x as long.
QUICK_POINTS = 16384
QUICK_CHUNK = 64


def padded_size(points: int, *, quick: bool) -> int:
    """Points that a program is compiled for: few sizes, each whole chunks on every device."""
    least = 2 * (QUICK_CHUNK if quick else CHUNK) * jax.local_device_count()
    parts = -(-points // least)
    step = 2 ** max(0, parts.bit_length() - 4)  # at most an eighth more than asked for
    return least * step * -(-parts // step)


def spread() -> NamedSharding:
    """Points over the devices of this process."""
    devices = jax.local_devices()
    mesh = jax.make_mesh((len(devices),), (POINTS,), devices=devices, axis_types=(AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec(POINTS))


def compiled(
    kernel: Kernel,
    static: Static,
    variables: tuple[str, ...],
    energies: int,
    size: int,
    *,
    quick: bool,
) -> Program:
    """Compile the evaluation of `size` points; the same for every sweep of a kernel's variant.

    Every leaf is an array [size], also one that does not vary, so that what does is no part of the
    program and the persistent cache serves any sweep.
    """
    sharding = spread()
    sharded = jax.shard_map(
        functools.partial(_evaluate, kernel, static, variables, QUICK_CHUNK if quick else CHUNK),
        mesh=sharding.mesh,
        in_specs=sharding.spec,
        out_specs=PartitionSpec(None, POINTS),
        check_vma=False,
    )
    one = jax.ShapeDtypeStruct((size,), jnp.result_type(float), sharding=sharding)
    lowered = jax.jit(sharded).lower((one,) * len(leaf_names(static)), (one,) * energies)
    on_cpu = jax.default_backend() == "cpu"
    options: dict[str, Any] = dict(QUICK_TO_COMPILE if quick else FAST_TO_RUN)
    return lowered.compile(compiler_options=options if on_cpu else None)


def _evaluate(
    kernel: Kernel,
    static: Static,
    variables: tuple[str, ...],
    chunk: int,
    leaves: tuple[Array, ...],
    energies: tuple[Array, ...],
) -> Values:
    """Variables [k, n] of leaves [n], `chunk` points at a time."""
    columns = dict(zip(leaf_names(static), leaves, strict=True))
    counting = any(VARIABLES[name].counting for name in variables)

    def report_of(point: dict[str, Array]) -> dict[str, Array]:
        evaluation = evaluate(kernel, static, point, counting=counting)
        report = {
            "latency_ns": evaluation.latency_ns(),
            "scratch_peak_bytes": evaluation.scratch_peak_bytes(),
            "result_code": evaluation.result_code(),
        } | (evaluation.counts() if counting else {})
        return {name: jnp.broadcast_to(x, chunk) for name, x in report.items()}

    parts = {name: leaf.reshape(-1, 1, 1, chunk) for name, leaf in columns.items()}
    report = {name: x.reshape(-1) for name, x in jax.lax.map(report_of, parts).items()}
    shares = _elasticity(kernel, static, leaves) if ELASTICITY in variables else None
    facts = Facts(report, columns, _energy(energies), shares)
    return {
        name: jnp.atleast_2d(VARIABLES[name].of(facts)).astype(VARIABLES[name].dtype)
        for name in variables
    }


def _energy(energies: tuple[Array, ...]) -> Energy | None:
    names = [field.name for field in dataclasses.fields(Energy)]
    return Energy(**dict(zip(names, energies, strict=True))) if energies else None


def _elasticity(kernel: Kernel, static: Static, leaves: tuple[Array, ...]) -> Array:
    """d log latency / d log cost, [costs, n]."""
    costs = len(static.cost_names)

    def of_costs(*moved: Array) -> Array:
        return latency_function(kernel, static)(*moved, *leaves[costs:])

    latency, back = jax.vjp(of_costs, *leaves[:costs])
    return jnp.stack(back(jnp.ones_like(latency))) * jnp.stack(leaves[:costs]) / latency[None]
