"""The timing interpreter's rule of each operation (docs/timing-contract.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ahbm_jax.interpret.algebra import maximum
from ahbm_jax.interpret.pipeline import streamed
from ahbm_jax.interpret.readiness import PendingScopes, Ready, TracedStep
from ahbm_jax.interpret.timing import PENDING, MeshUsedAgain, Timing
from ahbm_jax.machine.number import where
from ahbm_jax.machine.topology import Route
from ahbm_jax.tl.command import Command
from ahbm_jax.tl.gemm_plan import GemmPlan, gemm_plan, subtile_bytes
from ahbm_jax.tl.handle import Number, Ref
from ahbm_jax.tl.ops import EXPONENTIALS, MATH_OPS

Array = jax.Array


def _plan(t: Timing, m: Number, k: Number, n: Number) -> GemmPlan:
    """Sub-tiles of a GEMM, counted."""
    plan = gemm_plan(t.machine.gemm, m, k, n)
    t.count("macs", m * k * n)
    t.count("busy_gemm", plan.subtiles * t.costs["gemm.subtile"])
    return plan


def _stream_costs(t: Timing, plan: GemmPlan, ref: Ref) -> dict[str, Array]:
    """Per-sub-tile costs of streaming `ref`, whose reads are counted."""
    moved = plan.fetches * ref.bytes
    fetch = t.costs["dma.issue"] + moved / plan.streams * _byte(t, ref)
    t.count("dma_reads", plan.streams)
    t.count("dma_read_bytes", moved)
    t.count("busy_dma", plan.streams * fetch)
    return {
        "n": plan.streams,
        "fetch": fetch,
        "latency": t.costs["dma.startup"] + t.costs["hbm.latency"],
        "multiply": plan.gemms_per_stream * t.costs["gemm.subtile"],
    }


def _load(t: Timing, command: Command) -> Ready:
    """DMA for issue + bytes; ready after startup and HBM latency."""
    ref = command.operands[0]
    t.count("dma_reads", 1.0)
    t.count("dma_read_bytes", ref.bytes)
    return t.made(_dma(t, t.issue(command), ref.bytes, ref))


def _byte(t: Timing, ref: Ref) -> Array:
    """Time of a byte from HBM, or in part from the cache of a device."""
    hbm = t.costs["hbm.byte"]
    if not isinstance(ref.active, int):  # few units have more of HBM each, by way of the cache
        hbm = maximum(hbm * ref.active, t.costs["cache.byte"])
    if isinstance(ref.cached, int) and ref.cached == 0:
        return hbm
    return ref.cached * t.costs["cache.byte"] + (1 - ref.cached) * hbm


def _dma(t: Timing, issued: Array, size: Number, ref: Ref) -> Array:
    busy = t.costs["dma.issue"] + size * _byte(t, ref)
    t.count("busy_dma", busy)
    t.clocks["dma"] = t.advance("dma", issued) + busy
    done = t.clocks["dma"] + t.costs["dma.startup"] + t.costs["hbm.latency"]
    t.in_flight(done)
    return done


def _store(t: Timing, command: Command) -> None:
    """As a load, once the value is ready."""
    rows, cols = command.shape
    target = command.details["target"]
    size = rows * cols * target.tensor.element_bytes
    t.count("dma_writes", 1.0)
    t.count("dma_write_bytes", size)
    t.advance("stores", _dma(t, t.issue(command, *t.await_operands(command)), size, target))


def _math(t: Timing, command: Command) -> Ready:
    """Whole passes over the elements; the CPU is held until the end (or the start)."""
    issued = t.issue(command, *t.await_operands(command))
    start = t.advance("math", issued)
    end = t.clocks["math"] = start + _passes(t, command.elements, command.op in EXPONENTIALS)
    if t.machine.math.blocking:
        t.clocks["cpu"] = end
        return t.made(None)
    t.advance("cpu", start)
    t.in_flight(end)
    return t.made(end)


def _passes(t: Timing, elements: Number, exponential: bool = False, times: float = 1.0) -> Array:
    """MATH time of `times` operations on `elements` each."""
    cost = t.costs["math.exp_pass" if exponential else "math.pass"]
    busy = times * jnp.ceil(elements / t.numbers["math.lanes"]) * cost
    t.count("math_elements", times * elements)
    t.count("busy_math", busy)
    return busy


def _dot(t: Timing, command: Command) -> Ready:
    """All sub-tiles on GEMM; the CPU is held until the end."""
    a, b = command.handles
    plan = _plan(t, a.shape[0], a.shape[1], b.shape[1])
    start = t.advance("gemm", t.issue(command, *t.await_operands(command)))
    t.clocks["gemm"] = start + plan.subtiles * t.costs["gemm.subtile"]
    t.advance("cpu", t.clocks["gemm"] + t.costs["gemm.writeout"])
    return t.made(None)


def _composite(t: Timing, command: Command) -> Ready:
    """Scheduler, then sub-tiles streamed through DMA and GEMM; a pending P V enters after it."""
    a, b = command.operands
    operands = t.await_operands(command)
    descriptor = t.enqueue(command)
    plan = _plan(t, a.shape[0], a.shape[1], b.shape[1])
    if command.out is not None and not t.machine.math.blocking:
        operands.append(t.clocks["math"])
    gemm = t.advance("gemm", descriptor, *operands)
    if isinstance(b, Ref):
        window = t.numbers["gemm.stream_depth"] * subtile_bytes(
            t.machine.gemm, b.tensor.element_bytes
        )
        t.windows = t.machine.scheduler.queue_depth_composites * window
        costs = _stream_costs(t, plan, b)
        dma = t.advance("dma", descriptor)
        depth = t.numbers["gemm.stream_depth"]
        t.clocks["dma"], t.clocks["gemm"] = streamed(dma, gemm, depth=depth, **costs)
    else:
        t.clocks["gemm"] = gemm + plan.subtiles * t.costs["gemm.subtile"]
    stages = len(command.details["epilogue"]) * t.costs["gemm.epilogue"]
    done = t.clocks["gemm"] + t.costs["gemm.writeout"] + stages
    t.in_flight(done)
    t.advance("composites", done)
    t.advance("queue0", done)
    if t.machine.scheduler.queue_depth_composites > 1:
        t.flush(place=1)
    return t.made(done)


def _ex_composite(t: Timing, command: Command) -> tuple[Ready, ...]:
    """V's DMA at once, softmax on MATH, P V pending."""
    s, v, *acc = command.operands
    rows, cols = s.shape
    t.pends = True
    t.flush()
    scores = t.ready(s)
    descriptor = t.enqueue(command)
    plan = _plan(t, rows, cols, v.shape[1])
    costs = _stream_costs(t, plan, v)
    start = t.advance("dma", descriptor, t.clocks["acc1"])
    t.clocks["dma"] = start + costs["n"] * costs["fetch"]
    ready = [t.ready(replace(h, payload=replace(h.payload, drains=False))) for h in acc]
    passes = _softmax_passes(t, rows, cols)
    softmax = t.advance("math", descriptor, scores, ready[0], ready[1]) + passes
    rescale = _passes(t, rows * v.shape[1])
    t.clocks["math"] = _latest(softmax, t.clocks["acc0"], ready[2]) + rescale
    t.clocks["pending_p"], t.clocks["pending_v"] = t.clocks["math"], start
    steps = (costs["n"] - 1.0) * maximum(costs["fetch"], costs["multiply"])
    span = costs["fetch"] + costs["latency"] + costs["multiply"] + steps
    sizes = (jnp.ones_like(t.zero), span, costs["n"] * costs["multiply"])
    t.pending = dict(zip(PENDING, sizes, strict=True))
    t.pending_in = PendingScopes(len(t.scopes), ())
    t.clocks["acc1"], t.clocks["acc0"] = t.clocks["acc0"], t.never
    return tuple(t.made(None, drains=True) for _ in acc)


def _latest(first: Array, *others: Array | None) -> Array:
    for other in others:
        if other is not None:
            first = maximum(first, other)
    return first


def _softmax_passes(t: Timing, rows: Number, cols: Number) -> Array:
    """MATH time of the softmax steps: max, subtract, exp, sum; then five on row statistics."""
    wide = _passes(t, rows * cols, times=3.0) + _passes(t, rows * cols, exponential=True)
    narrow = _passes(t, rows, times=4.0) + _passes(t, rows, exponential=True)
    return wide + narrow


def _routes(t: Timing, command: Command, *, outgoing: bool) -> list[tuple[Any, Route]]:
    """Each route that messages of a command may take, behind whether they do."""
    step, mesh = command.details["step"], command.details["mesh"]
    return [(on, route) for route, on in step.routes(t.position(mesh), outgoing=outgoing)]


def _directions(routes: list[tuple[Any, Route]]) -> list[tuple[Any, str]]:
    """Each direction that messages may first take, behind whether they do."""
    taken: dict[str, Any] = {}
    for on, route in routes:
        taken[route.direction] = taken[route.direction] | on if route.direction in taken else on
    return [(on, direction) for direction, on in taken.items()]


def _chosen(values: Iterable[tuple[Any, Any]]) -> Any:
    """The value whose condition holds: one does, or none matters."""
    (_, out), *others = values
    for holds, value in others:
        out = where(holds, value, out)
    return out


def _send(t: Timing, command: Command) -> None:
    """Port for overhead + bytes; arrives after fixed latency and hops."""
    step, mesh = command.details["step"], command.details["mesh"]
    issued = t.issue(command, *t.await_operands(command))
    size = sum(handle.bytes for handle in command.handles)
    link = f"{mesh}_link"
    busy = t.costs[f"{link}.overhead"]
    busy = busy + size * t.costs[f"{link}.byte"] * command.details["sharers"]
    routes = _routes(t, command, outgoing=True)
    left = _leave(t, _directions(routes), mesh, issued, busy)
    for on, direction in _directions(routes):
        t.count(f"busy_port.{mesh}.{direction}", where(on, busy, 0.0))
    t.count("sends", 1.0)
    t.count("sent_bytes", size)
    t.in_flight(left)
    hops = _chosen((on, float(route.distance)) for on, route in routes)
    arrival = left + t.costs[f"{link}.fixed"] + hops * t.costs[f"{link}.hop"]
    t.messages += 1
    t.meshes_used.add(mesh)
    t.mailbox.append(((mesh, step), jnp.broadcast_to(arrival, t.shape)))


def _leave(
    t: Timing, directions: list[tuple[Any, str]], mesh: str, issued: Array, busy: Array
) -> Array:
    """When a message has left the port of its direction."""
    if t.sends_once:
        name = f"port.{mesh}.N"  # a rank's only port, whichever it is
        t.clocks[name] = maximum(issued, t.clocks[name]) + busy
        return t.clocks[name]
    if mesh in t.meshes_sent_once:
        raise MeshUsedAgain
    depth = getattr(t.machine, f"{mesh}_link").queue_depth_messages
    free = _chosen((on, t.clocks[f"port.{mesh}.{d}"]) for on, d in directions)
    room = _chosen((on, t.clocks[f"taken.{mesh}.{d}.{depth - 1}"]) for on, d in directions)
    left = maximum(maximum(issued, free), room) + busy
    for on, direction in directions:
        name = f"{mesh}.{direction}"
        t.clocks[f"port.{name}"] = where(on, left, t.clocks[f"port.{name}"])
        places = [f"taken.{name}.{i}" for i in range(depth)]
        shifted = [t.never, *(t.clocks[place] for place in places[:-1])]
        for place, value in zip(places, shifted, strict=True):
            t.clocks[place] = where(on, value, t.clocks[place])
    return left


def _arrival(t: Timing, command: Command) -> Array:
    key = (command.details["mesh"], command.details["step"])
    t.count("recvs", 1.0)
    index = next(i for i, (sent_in, _) in enumerate(t.mailbox) if sent_in == key)
    _, sent = t.mailbox.pop(index)
    return _moved(t, command, sent)


def _moved(t: Timing, command: Command, sent: Array) -> Array:
    """What senders have, at those they send to."""
    step, mesh = command.details["step"], command.details["mesh"]
    if isinstance(step, TracedStep):  # all of them by the same route
        offsets = [route.offset for route in step.route_list]
        return t.lanes.shift_by_one_of(sent, mesh, offsets, step.which)
    routes = _routes(t, command, outgoing=False)
    return _chosen((on, t.lanes.shift(sent, mesh, route.offset)) for on, route in routes)


def _take(t: Timing, command: Command, time: Array) -> None:
    """Tell the sender when its message was taken."""
    if t.sends_once:
        return
    mesh = command.details["mesh"]
    for predicate in t.predicates:
        time = jnp.where(predicate, time, -jnp.inf)
    time = jnp.broadcast_to(time, t.shape)
    for on, route in _routes(t, command, outgoing=False):
        rows, cols = route.offset
        back = t.lanes.shift(where(on, time, t.never), mesh, (-rows, -cols))
        update = (f"taken.{mesh}.{route.direction}.0", back)
        if t.predicates:
            t.taken_updates.append(update)
        else:
            t.advance(*update)


def _recv(t: Timing, command: Command) -> tuple[Ready, ...]:
    """Hold the CPU until the message is there."""
    time = t.advance("cpu", _arrival(t, command))
    _take(t, command, time)
    t.issue(command)
    return tuple(t.made(None) for _ in command.handles)


def _recv_async(t: Timing, command: Command) -> tuple[Ready, ...]:
    """The message is there when it arrives."""
    time = maximum(t.issue(command), _arrival(t, command))
    t.in_flight(time)
    _take(t, command, time)
    return tuple(t.made(time) for _ in command.handles)


def _wait(t: Timing, command: Command) -> None:
    """Hold the CPU until the handle is ready, or all composites are."""
    t.flush()
    waits = t.await_operands(command) if command.handles else [t.clocks["composites"]]
    t.issue(command, *waits)


def _start(t: Timing, command: Command) -> None:
    """The CPU waits for the launch."""
    t.issue(command)


def _join(t: Timing, command: Command) -> None:
    """Hold the CPU until all stores are complete, then for the join."""
    t.issue(command, t.clocks["stores"])


RULES: dict[str, Callable[[Timing, Command], Any]] = {
    "load": _load,
    "store": _store,
    "composite": _composite,
    "dot": _dot,
    "ex_composite": _ex_composite,
    **dict.fromkeys(MATH_OPS, _math),
    "send": _send,
    "recv": _recv,
    "recv_async": _recv_async,
    "wait": _wait,
    "start": _start,
    "join": _join,
}
