"""What static arbitration of links gets wrong: errors and verdicts against first come, first served.

Prints the tables of docs/model-error.md as Markdown; progress goes to standard error. Needs an hour
or two; `errors`, `orders` or `verdicts` prints that part alone.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from functools import partial as partial_of
from typing import Any

import numpy as np

import ahbm_jax
from ahbm_jax.events.simulation import execute
from ahbm_jax.interpret.record import record
from ahbm_jax.knobs import point
from ahbm_jax.machine.params import Machine, replace
from ahbm_jax.tl import Context, Handle, Step, Tensor
from kernels.gqa_decode import SWEEPS
from kernels.online_softmax import Partial, merge, normalised

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
WORKLOAD = ahbm_jax.load_workload("llama3_70b")
TIE = 1e-9  # relative
WIDE = {"grid.pe_cols": 8}
Latencies = tuple[float, float]  # static, first come


# Lanes first: the other order of the two-level reduce --------------------------------------------


def lanes_first_kernel(variant: str) -> Callable[..., Partial]:
    """Decode in which lane p of every CUBE reduces over CUBEs, and the root CUBE's PEs then do."""

    def kernel(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> Partial:
        partial = SWEEPS[variant](tl, tl.load(q), k, v)
        partial = exchange(tl, "cube", partial, True, tl.launch.placement.pes)
        here = tl.is_root("cube")
        partial = exchange(tl, "pe", partial, here, 1)
        tl.when(here & tl.is_root("pe"), lambda: tl.store(output, normalised(tl, partial)))
        return partial

    return kernel


def exchange(tl: Context, mesh: str, partial: Partial, acts: Any, sharers: Any) -> Partial:
    """As `kernels.reduce.reduce_on`, on ranks that act, `sharers` of which use a link at once."""

    def fold_in_step(step: Step, mine: Partial) -> Partial:
        here = tl.position(mesh)
        sends, receives = step.sends(here) & acts, step.receives(here) & acts
        messages = [mine] if tl.launch.packed else [(part,) for part in mine]
        received = []
        for message in messages:
            tl.when(sends, partial_of(tl.send, step, mesh, message, sharers=sharers))
            received.append(tl.when(receives, partial_of(tl.recv, step, mesh, message)))

        def fold_in(m: Handle, l: Handle, o: Handle) -> Partial:
            theirs = [part for message in received for part in message]
            return merge(tl, (m, l, o), (theirs[0], theirs[1], theirs[2]))

        return tl.when(receives, fold_in, *mine)

    return tl.steps(mesh, fold_in_step, partial)


LANES_FIRST = {variant: lanes_first_kernel(variant) for variant in SWEEPS}
lanes_first = LANES_FIRST["opt3"]


# Simulation --------------------------------------------------------------------------------------


def latencies(
    kernel: Any, machine: Machine, knobs: dict[str, Any], links: list[dict[str, float]]
) -> list[Latencies]:
    """Latency under both arbitrations, for several changes of the machine's links."""
    settled = point(kernel, machine, WORKLOAD, knobs)
    launch = settled.launch()
    records = record(settled.kernel, settled.machine, launch)
    out = []
    for changes in links:
        changed = replace(settled.machine, changes)
        ns = [
            execute(changed, records, cube_columns=launch.cube_cols, arbitration=a).latency_ns
            for a in ("static", "first_come")
        ]
        out.append((ns[0], ns[1]))
    return out


def widths(pe: float, cube: float) -> dict[str, float]:
    """Widths of links in bytes per cycle."""
    return {"pe_link.bytes_per_cycle": pe, "cube_link.bytes_per_cycle": cube}


def progress(text: str) -> None:
    """Say how far it is."""
    print(text, file=sys.stderr, flush=True)


def table(head: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table."""
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(row) + " |")
    print(flush=True)


# Errors of decode --------------------------------------------------------------------------------


def drawn(rng: np.random.Generator, wide: bool) -> dict[str, Any]:
    """Random knobs of decode."""
    cubes, pes = int(rng.choice([1, 2, 4, 8, 16])), 16 if wide else int(rng.integers(1, 9))
    context = int(2 ** rng.uniform(8, 15))
    return {
        "variant": str(rng.choice(list(SWEEPS))),
        "context": context,
        "cache_tokens": context + int(rng.choice([0, rng.integers(context)])),
        "C": cubes,
        "P": pes,
        "tile": int(rng.choice([64, 128, 256])),
        "layout": str(rng.choice(["contiguous", "round_robin"])),
        "start_cube": int(rng.integers(cubes)),
        "start_pe": int(rng.integers(pes)),
        "users": int(rng.integers(1, 5)),
        "packed": bool(rng.integers(2)),
        "level1": str(rng.choice(["mesh", "ring"])),
        "level2": str(rng.choice(["tree", "ring"])),
    }


def errors(points: int) -> None:
    """Distribution of (first come - static) / static."""
    rows = []
    for name, wide, slow in (
        ("2 x 4 PEs", False, False),
        ("2 x 4 PEs, links of 1 to 8", False, True),
        ("2 x 8 PEs", True, False),
        ("2 x 8 PEs, links of 1 to 8", True, True),
    ):
        rng, found, tree = np.random.default_rng(7), [], []
        machine = replace(MACHINE, WIDE) if wide else MACHINE
        for i in range(points):
            knobs = drawn(rng, wide)
            links = widths(rng.uniform(1, 8), rng.uniform(1, 8)) if slow else {}
            static, first_come = latencies("decode", machine, knobs, [links])[0]
            found.append(first_come / static - 1)
            tree.append(knobs["level2"] == "tree")
            if i % 20 == 19:
                progress(f"{name}: {i + 1} of {points}")
        error, on_tree = np.array(found), np.array(tree)
        rows.append([name, str(points), *_summary(error)])
        if wide:
            rows.append([f"{name}: tree alone", str(on_tree.sum()), *_summary(error[on_tree])])
    table(["group", "points", "no difference", "median", "p90", "max", "min"], rows)


def _summary(error: np.ndarray) -> list[str]:
    same = np.abs(error) < TIE
    numbers = (np.median(error), np.quantile(error, 0.9), error.max(), error.min())
    return [f"{same.mean():.1%}", *(f"{x if abs(x) > TIE else 0:.2%}" for x in numbers)]


# Lanes first against PEs first -------------------------------------------------------------------


def orders() -> None:
    """Latency of both orders of the reduce, and which one is called faster."""
    links = [widths(64, 64), widths(8, 8), widths(1, 1)]
    rows = []
    for context, cubes, packed in itertools.product((1024, 65536), (2, 4, 8, 16), (False, True)):
        knobs = {"context": context, "C": cubes, "packed": packed}
        ours = latencies("decode", MACHINE, knobs, links)
        theirs = latencies(lanes_first, MACHINE, knobs, links)
        for link, (pe_first, same), (static, queued) in zip(links, ours, theirs, strict=True):
            assert abs(same / pe_first - 1) < TIE
            numbers = [f"{x / 1e3:.2f}" for x in (pe_first, static, queued)]
            ratios = [f"{static / queued - 1:+.0%}", f"{static / pe_first:.2f}"]
            head = [f"{context:,}", str(cubes), "yes" if packed else "no"]
            width = f"{link['cube_link.bytes_per_cycle']:g}"
            rows.append([*head, width, *numbers, *ratios, f"{queued / pe_first:.2f}"])
        progress(f"orders: {context} tokens, C = {cubes}, packed {packed}")
    head = ["context", "C", "packed", "width", "PEs first", "lanes first, static"]
    head += ["lanes first, first come", "static error", "ratio, static", "ratio, first come"]
    table(head, rows)


# Verdicts on pairs of designs --------------------------------------------------------------------


@dataclass(frozen=True)
class Design:
    """A choice of everything that a user may rank."""

    order: str
    level1: str
    level2: str
    packed: bool
    C: int
    P: int
    variant: str

    def kernel(self) -> Any:
        """What runs it."""
        return "decode" if self.order == "PEs" else LANES_FIRST[self.variant]


def designs(wide: bool) -> Iterator[Design]:
    """All choices for opt3; those of other variants with the shipped collectives."""
    sizes = itertools.product((1, 2, 4, 8), (16,)) if wide else SIZES
    for (cubes, pes), variant, level1, level2 in itertools.product(
        sizes, SWEEPS, ("mesh", "ring"), ("tree", "ring")
    ):
        shipped = (level1, level2) == ("mesh", "tree")
        if variant == "opt3" or (shipped and not wide):
            for order, packed in itertools.product(("PEs", "lanes"), (False, True)):
                if order == "PEs" or cubes > 1:
                    yield Design(order, level1, level2, packed, cubes, pes, variant)


SIZES = list(itertools.product((1, 2, 4, 8, 16), (4, 8)))
LINKS = [widths(64, 64), widths(8, 8), widths(1, 1)]
LATE = {"context": 8200, "tile": 128, "layout": "round_robin_cube_first", "start_pe": 3}
SCENARIOS: dict[str, tuple[bool, dict[str, Any]]] = {
    "1k tokens": (False, {"context": 1024}),
    "16k tokens": (False, {"context": 16384}),
    "8,200 tokens, one PE late": (False, LATE),
    "4k tokens, 4 users": (False, {"context": 4096, "users": 4}),
    "2 x 8 PEs, 2k tokens": (True, {"context": 2048}),
    "2 x 8 PEs, 2k tokens, 4 users": (True, {"context": 2048, "users": 4}),
}
KINDS = [field.name for field in fields(Design)]
ORDERS = ("both PEs first", "one of each", "both lanes first")


@dataclass(frozen=True)
class Pairs:
    """All pairs of designs of one scenario, and the second's latency over the first's, less 1."""

    where: str
    designs: list[Design]
    first: np.ndarray
    second: np.ndarray
    static: np.ndarray
    first_come: np.ndarray

    @staticmethod
    def of(where: str, known: list[Design], found: np.ndarray) -> Pairs:
        """Pairs of designs with latencies [designs, 2]."""
        i, j = np.triu_indices(len(known), 1)
        ratio = found[j] / found[i] - 1
        ratio[np.abs(ratio) < TIE] = 0.0
        return Pairs(where, known, i, j, ratio[:, 0], ratio[:, 1])

    def masks(self) -> Iterator[tuple[str, np.ndarray]]:
        """Pairs that differ in one knob alone, by knob and orders, and all pairs by orders."""
        codes = np.array([[hash(x) for x in astuple(design)] for design in self.designs])
        differ = codes[self.first] != codes[self.second]
        lanes = np.array([design.order == "lanes" for design in self.designs])
        orders = lanes[self.first].astype(int) + lanes[self.second]
        for number, kind in enumerate(KINDS):
            alone = differ[:, number] & (differ.sum(axis=1) == 1)
            for which, name in enumerate(ORDERS):
                yield f"{kind} alone | {name}", alone & (orders == which)
        for which, name in enumerate(ORDERS):
            yield f"anything | {name}", orders == which

    def reversed(self) -> np.ndarray:
        """Whether each pair's verdicts are opposite."""
        return self.static * self.first_come < 0


def ranked() -> Iterator[Pairs]:
    """Every scenario at every width of links."""
    for name, (wide, knobs) in SCENARIOS.items():
        machine = replace(MACHINE, WIDE) if wide else MACHINE
        known, found = list(designs(wide)), []
        for number, design in enumerate(known):
            own = {field: getattr(design, field) for field in KINDS if field != "order"}
            found.append(latencies(design.kernel(), machine, knobs | own, LINKS))
            if number % 20 == 19:
                progress(f"{name}: {number + 1} of {len(known)} designs")
        for link, column in zip(LINKS, np.moveaxis(np.array(found), 1, 0), strict=True):
            where = f"{name}, links of {link['pe_link.bytes_per_cycle']:g}"
            yield Pairs.of(where, known, column)


def verdicts() -> None:
    """For how many pairs both arbitrations name the same winner."""
    counts: dict[str, np.ndarray] = {}
    examples: dict[str, list[tuple[float, list[str]]]] = {}
    places = []
    for pairs in ranked():
        s, f, turned = pairs.static, pairs.first_come, pairs.reversed()
        close = turned & (np.maximum(np.abs(s), np.abs(f)) < 0.01)
        outcomes = np.array([s == s, s * f > 0, (s == 0) & (f == 0), (s == 0) != (f == 0), turned])
        outcomes = np.concatenate([outcomes, close[None]])
        for kind, mask in pairs.masks():
            counts[kind] = counts.get(kind, 0) + outcomes[:, mask].sum(axis=1)
            examples.setdefault(kind, []).extend(worst(pairs, mask & turned))
        places.append([pairs.where, *(str(n) for n in outcomes.sum(axis=1))])
    head = ["pairs", "agree", "tie in both", "tie in one", "reversed", "of these within 1 %"]
    rows = [[*kind.split(" | "), *(str(n) for n in row)] for kind, row in counts.items() if row[0]]
    table(["differ in", "orders", *head], rows)
    table(["scenario", *head], places)
    rows = []
    for kind, found in examples.items():
        top = sorted(found, key=lambda pair: -pair[0])[:2]
        rows += [[*kind.split(" | "), *columns] for _, columns in top]
    columns = ["scenario", "second over first, static", "first come"]
    table(["differ in", "orders", "first", "second", *columns], rows)


def worst(pairs: Pairs, mask: np.ndarray) -> list[tuple[float, list[str]]]:
    """The reversed pairs with the largest margins, each with its row of a table."""
    margin = np.where(mask, np.minimum(np.abs(pairs.static), np.abs(pairs.first_come)), 0)
    out = []
    for at in np.argsort(-margin)[: min(2, int(mask.sum()))]:
        names = [
            " ".join(str(x) for x in astuple(pairs.designs[side[at]]))
            for side in (pairs.first, pairs.second)
        ]
        ratios = [f"{x[at]:+.2%}" for x in (pairs.static, pairs.first_come)]
        out.append((float(margin[at]), [*names, pairs.where, *ratios]))
    return out


def main() -> None:
    """Print the tables."""
    parts = {"errors": errors, "orders": orders, "verdicts": verdicts}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="default: all")
    parser.add_argument("--points", type=int, default=200, help="random points of a group")
    options = parser.parse_args()
    for name in options.parts or parts:
        parts[name](options.points) if name == "errors" else parts[name]()


if __name__ == "__main__":
    main()
