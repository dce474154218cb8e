"""A body that the timing interpreter runs again and again: tiles, reduce steps, requests.

The interpreter's state and the clocks of what the body carries are one flat list of arrays. Which
of them an iteration changes is found by tracing it once; the others stay out of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ahbm_jax.interpret.maxplus import Step, augmented_matrix, iterate
from ahbm_jax.interpret.progression import Kinds, Span, progress
from ahbm_jax.tl.handle import Handle

if TYPE_CHECKING:
    from ahbm_jax.interpret.timing import Timing

CLOCKS = ("clocks", "scopes", "carry")  # kinds of leaves that are times
PROBES = 2  # traces at most to learn what changes, the second from what the first left behind
Array = jax.Array
Body = Callable[[Any, Any], Any]


def is_handle(x: Any) -> bool:
    """Whether a pytree node is a handle."""
    return isinstance(x, Handle)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMap:
    """What one iteration of a loop of tiles does to the clocks that it moves.

    Attributes:
      names: of the clocks, one for each coordinate but the last.
      matrix: [to, from, lanes, lanes, batch]; the last coordinate is what no iteration changes.
      start: clocks before the first iteration, [clocks, lanes, lanes, batch].
      first: clocks after it. The first iteration may differ from `matrix`: nothing pends yet.
      trips: equal iterations, [lanes, lanes, batch].
      order: fill-order position of the ranks that each lane stands for, as `trips`.
    """

    names: tuple[str, ...] = field(metadata={"static": True})
    matrix: Array
    start: Array
    first: Array
    trips: Array
    order: Array


class Iteration:
    """`carry = body(item, carry)`, over and over, from the interpreter's present state."""

    def __init__(self, timing: Timing, body: Body, carry: Any) -> None:
        self.timing, self.body = timing, body
        self.handles, self.tree = jax.tree.flatten(carry, is_leaf=is_handle)
        self.level = timing.level
        self.pending_in = timing.pending_in
        clocks = [timing.clock_of(handle) for handle in self.handles]
        start = {"state": timing.state(), "carry": clocks}
        paths, self.structure = jax.tree_util.tree_flatten_with_path(start)
        self.leaves: list[Array] = [leaf for _, leaf in paths]
        kinds = [path[1].key if path[0].key == "state" else "carry" for path, _ in paths]
        self.kinds: list[str] = [str(kind) for kind in kinds]
        self.names = [jax.tree_util.keystr(path[-1:], simple=True) for path, _ in paths]

    def turn(self, item: Any, leaves: list[Array]) -> list[Array]:
        """The state after one iteration from `leaves`."""
        timing = self.timing
        start = jax.tree.unflatten(self.structure, leaves)
        timing.restore(start["state"])
        timing.level, timing.pending_in = self.level + 1, self.pending_in
        carried = [
            replace(h, payload=timing.made(clock, drains=h.payload.drains))
            for h, clock in zip(self.handles, start["carry"], strict=True)
        ]
        result = self.body(item, jax.tree.unflatten(self.tree, carried))
        self.results = jax.tree.leaves(result, is_leaf=is_handle)
        timing.level = self.level
        clocks = [
            old if new.payload.clock is None else timing.clock_of(new)
            for old, new in zip(start["carry"], self.results, strict=True)
        ]
        return jax.tree.leaves({"state": timing.state(), "carry": clocks})

    def probe(self, item: Any) -> list[bool]:
        """Which leaves an iteration on `item` changes.

        Also learns what an iteration leaves behind, so that the first starts as the others do:
        accumulators that drain, and the scopes of a pending ex_composite.
        """
        flags: list[bool] = []
        learnt = True

        def trace(leaves: list[Array]) -> None:
            nonlocal learnt
            after, learnt = self.try_turn(item, leaves)
            flags[:] = [a is not b for a, b in zip(after, leaves, strict=True)]

        outer, self.timing.probing = self.timing.probing, True
        for _ in range(PROBES):
            # A new function each time: the same one is not retraced.
            jax.eval_shape(lambda leaves: trace(leaves), self.leaves)
            self.timing.restore(jax.tree.unflatten(self.structure, self.leaves)["state"])
            if not learnt:
                break
        self.timing.probing = outer
        return flags

    def try_turn(self, item: Any, leaves: list[Array]) -> tuple[list[Array], bool]:
        """As `turn`; also learns what it leaves behind, and says whether that was news."""
        before = [h.payload.drains for h in self.handles], self.pending_in, self.timing.pends
        after = self.turn(item, leaves)
        self.handles = [
            replace(h, payload=replace(h.payload, drains=h.payload.drains | r.payload.drains))
            for h, r in zip(self.handles, self.results, strict=True)
        ]
        self.pending_in = self.timing.pending_in
        learnt = [h.payload.drains for h in self.handles], self.pending_in, self.timing.pends
        return after, before != learnt

    def skim(self, item: Any) -> None:
        """As many iterations as a probe of a loop around this one needs."""
        for _ in range(PROBES):
            self.leaves, learnt = self.try_turn(item, self.leaves)
            if not learnt:
                break

    def scan(self, item_of: Callable[[Any], Any], xs: Any, length: int, active: Any = None) -> None:
        """One iteration for each of `xs` on `item_of(x)`, kept where `active(item)` holds."""
        first = item_of(jax.tree.map(lambda x: x[0], xs))
        if self.timing.probing:
            self.skim(first)
            return
        flags = self.probe(first)

        def one(moving: list[Array], x: Any) -> tuple[list[Array], None]:
            item = item_of(x)
            after = self.turn(item, self._merge(moving, flags))
            out = self._spread(_pick(after, flags))
            if active is not None:
                holds = active(item)
                out = [jnp.where(holds, a, b) for a, b in zip(out, moving, strict=True)]
            return out, None

        moving, _ = jax.lax.scan(one, self._spread(_pick(self.leaves, flags)), xs, length=length)
        self.leaves = self._merge(moving, flags)

    def walk(self, item_of: Callable[[Any], Any], start: Array, stop: Array) -> None:
        """One iteration for each number from `start` to `stop`, which may differ by point."""
        if self.timing.probing:
            self.skim(item_of(start))
            return
        flags = self.probe(item_of(start))

        def one(carry: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
            index, moving = carry
            out = self.turn(item_of(index), self._merge(moving, flags))
            kept = [
                jnp.where(index < stop, a, b)
                for a, b in zip(self._spread(_pick(out, flags)), moving, strict=True)
            ]
            return index + 1, kept

        begin = (start, self._spread(_pick(self.leaves, flags)))
        _, moving = jax.lax.while_loop(lambda carry: jnp.any(carry[0] < stop), one, begin)
        self.leaves = self._merge(moving, flags)

    def progress(self, item_of: Callable[[Any], Any], span: Span) -> Array:
        """As `walk`, where inner loops grow by as much in each period of items.

        Returns where more items of each kind would only add as much again: see `progress`.
        """
        timing = self.timing
        if timing.probing:
            self.skim(item_of(span.start))
            return jnp.ones_like(span.start, bool)
        flags = self.probe(item_of(span.start))
        kinds = _pick(self.kinds, flags)
        used = jnp.broadcast_to(timing.lanes.used, timing.shape)

        def step(index: Array, moving: list[Array], base: Array) -> tuple[list[Array], Array]:
            constants = [
                leaf - base if kind in CLOCKS else leaf
                for leaf, kind in zip(self.leaves, self.kinds, strict=True)
            ]
            outside, timing.regular = timing.regular, []
            with timing.shifted(-base):
                out = self.turn(item_of(index), _merge(constants, moving, flags))
            regular = jnp.ones(timing.shape, bool)
            for one in timing.regular:
                regular = regular & (one | ~used)
            timing.regular = outside
            return _only(self._spread(_pick(out, flags)), kinds, used), regular

        moving = _only(self._spread(_pick(self.leaves, flags)), kinds, used)
        clocks = [kind in CLOCKS for kind in kinds]
        counts = [kind == "counts" for kind in kinds]
        late = [name == f"scope{len(timing.scopes)}.1" for name in _pick(self.names, flags)]
        of_leaves = Kinds(clocks=clocks, late=late, counts=counts)
        moving, steady = progress(step, moving, span, of_leaves)
        self.leaves = self._merge(moving, flags)
        return steady

    def power(self, item: Any, n: Array) -> Array:
        """`n` iterations on equal items, by the algebra of their max-plus map.

        Returns where more of them would only add as much again, for ever: see `iterate`.
        """
        timing = self.timing
        if timing.probing:
            self.skim(item)
            return jnp.ones(timing.shape, bool)
        flags = self.probe(item)
        moves = [f and k in CLOCKS for f, k in zip(flags, self.kinds, strict=True)]
        pends = [f and k == "pending" for f, k in zip(flags, self.kinds, strict=True)]
        counted = self._counted(item, n)

        def step(x: tuple, aux: tuple, offset: Any) -> tuple[tuple, tuple]:
            constants = [
                leaf + offset if kind in CLOCKS else leaf
                for leaf, kind in zip(self.leaves, self.kinds, strict=True)
            ]
            with timing.shifted(offset):
                after = self.turn(item, _merge(_merge(constants, x, moves), aux, pends))
            return tuple(self._spread(_pick(after, moves))), tuple(
                self._spread(_pick(after, pends))
            )

        x = tuple(self._spread(_pick(self.leaves, moves)))
        aux = tuple(self._spread(_pick(self.leaves, pends)))
        if timing.loops is not None and self.level == 0:
            timing.loops.append(self._map(step, x, aux, n, moves))
        x, aux, regular = iterate(step, x, aux, n)
        self.leaves = _merge(_merge(counted, x, moves), aux, pends)
        return regular

    def _map(self, step: Step, x: tuple, aux: tuple, n: Array, moves: list[bool]) -> LoopMap:
        timing = self.timing
        first, pending = step(x, aux, 0.0)
        named = zip(self.kinds, self.names, moves, strict=True)
        return LoopMap(
            names=tuple(n if k == "clocks" else f"{k} {n}" for k, n, moved in named if moved),
            matrix=augmented_matrix(step, x, pending),
            start=jnp.stack(x),
            first=jnp.stack(first),
            trips=jnp.broadcast_to(n, timing.shape),
            order=jnp.broadcast_to(timing.lanes.orders[timing.space], timing.shape),
        )

    def finish(self) -> Any:
        """Leave the interpreter in the state reached; returns what is carried out."""
        timing = self.timing
        end = jax.tree.unflatten(self.structure, self.leaves)
        timing.restore(end["state"])
        timing.pending_in = self.pending_in
        handles = [
            replace(h, payload=timing.made(clock, drains=h.payload.drains))
            for h, clock in zip(self.handles, end["carry"], strict=True)
        ]
        return jax.tree.unflatten(self.tree, handles)

    def _counted(self, item: Any, n: Array) -> list[Array]:
        """The leaves with `n` equal iterations counted, and scratch as they leave it."""
        after = jax.tree.unflatten(self.structure, self.turn(item, self.leaves))["state"]
        whole = jax.tree.unflatten(self.structure, self.leaves)
        start = whole["state"]
        whole["state"] = dict(start) | {
            "counts": jax.tree.map(lambda a, b: a + n * (b - a), start["counts"], after["counts"]),
            "scratch": _piled(start["scratch"], after["scratch"], n),
        }
        return jax.tree.leaves(whole)

    def _spread(self, leaves: list[Array]) -> list[Array]:
        shape = self.timing.shape
        return [jnp.broadcast_to(leaf, shape) for leaf in leaves]

    def _merge(self, moving: Any, flags: list[bool]) -> list[Array]:
        return _merge(self.leaves, moving, flags)


def _piled(start: dict[str, Array], after: dict[str, Array], n: Array) -> dict[str, Array]:
    """Scratch after `n` iterations: what an iteration does not free piles up."""
    grown = after["used"] - start["used"]
    last = after["peak"] + jnp.maximum(n - 1.0, 0.0) * grown
    peak = jnp.where(n > 0, jnp.maximum(last, start["peak"]), start["peak"])
    windows = jnp.where(n > 0, after["windows"], start["windows"])
    return {"used": start["used"] + n * grown, "peak": peak, "windows": windows}


def _only(leaves: list[Array], kinds: list[str], used: Array) -> list[Array]:
    """Clocks of the lanes in use, `-inf` in the others."""
    return [
        jnp.where(used, x, -jnp.inf) if kind in CLOCKS else x
        for x, kind in zip(leaves, kinds, strict=True)
    ]


def _pick(leaves: list[Any], flags: list[bool]) -> list[Any]:
    return [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]


def _merge(leaves: list[Array], moving: Any, flags: list[bool]) -> list[Array]:
    moved = iter(moving)
    return [next(moved) if flag else leaf for leaf, flag in zip(leaves, flags, strict=True)]
