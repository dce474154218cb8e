"""What static arbitration of links gets wrong, against first come, first served.

Prints the tables of docs/model-error.md as Markdown; progress goes to standard error. All of it
takes an hour or two; `--only errors`, `orders` or `verdicts` makes that part alone.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial as partial_of
from typing import Any, NamedTuple

import numpy as np

import ahbm_jax
from ahbm_jax.events.network import NETWORKS, Delivery, FirstComeNetwork
from ahbm_jax.events.simulation import execute
from ahbm_jax.events.worker import Steps, Worker
from ahbm_jax.interpret.record import record
from ahbm_jax.knobs import point
from ahbm_jax.machine.params import Machine, replace
from ahbm_jax.report.markdown import markdown_table
from ahbm_jax.tl import Context, Handle, Step, Tensor
from kernels.gqa_decode import SWEEPS
from kernels.online_softmax import Partial, merge, normalised

MACHINE = ahbm_jax.load_machine("ahbm_4sip")
WORKLOAD = ahbm_jax.load_workload("llama3_70b")
TIE, TIE_NS = 1e-6, 1e-7  # relative, and what decides between messages that come at once
WIDE, POINTS = {"grid.pe_cols": 8}, 200
BOTH = ("static", "first_come")


def lanes_first_kernel(variant: str) -> Callable[..., Partial]:
    """Decode in which lane p of every CUBE reduces over CUBEs, and the root CUBE's PEs then do."""

    def kernel(tl: Context, q: Tensor, k: Tensor, v: Tensor, output: Tensor) -> Partial:
        partial = SWEEPS[variant](tl, tl.load(q), k, v, tl.queries())
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


class OppositeTies(FirstComeNetwork):
    """Of messages that come at once, which `first_come` serves from PE 0 on, PE 0's is last."""

    def transmit(self, port: Worker, sent: Delivery) -> Steps:
        """Late by so little that nothing but a tie notices."""
        yield self.clockwork.env.timeout(TIE_NS * (64 - sent.message.source[1]))
        yield from super().transmit(port, sent)


def latencies(
    kernel: Any,
    machine: Machine,
    knobs: dict[str, Any],
    links: list[dict[str, float]],
    arbitrations: tuple[str, ...] = BOTH,
) -> list[tuple[float, ...]]:
    """Latency under each arbitration, for each of several changes of the machine's links."""
    settled = point(kernel, machine, WORKLOAD, knobs)
    launch = settled.launch()
    records = record(settled.kernel, settled.machine, launch)
    return [
        tuple(
            execute(changed, records, cube_columns=launch.cube_cols, arbitration=name).latency_ns
            for name in arbitrations
        )
        for changed in (replace(settled.machine, changes) for changes in links)
    ]


def widths(pe: float, cube: float) -> dict[str, float]:
    """Widths of links in bytes per cycle."""
    return {"pe_link.bytes_per_cycle": pe, "cube_link.bytes_per_cycle": cube}


WIDTHS = [widths(x, x) for x in (64, 8, 1)]
progress = partial_of(print, file=sys.stderr, flush=True)


def table(head: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table."""
    print(*markdown_table(head, rows), "", sep="\n", flush=True)


CHOICES = {
    "variant": list(SWEEPS),
    "C": (1, 2, 4, 8, 16),
    "tile": (64, 128, 256),
    "layout": ("contiguous", "round_robin"),
    "users": (1, 2, 3, 4),
    "packed": (False, True),
    "level1": ("mesh", "ring"),
    "level2": ("tree", "ring"),
}


def drawn(rng: np.random.Generator, wide: bool) -> dict[str, Any]:
    """Random knobs of decode."""
    knobs = {name: values[rng.integers(len(values))] for name, values in CHOICES.items()}
    knobs["P"] = 16 if wide else int(rng.integers(1, 9))
    knobs["context"] = context = int(2 ** rng.uniform(8, 14))
    knobs["cache_tokens"] = int(context * max(1.0, rng.uniform(0, 2)))
    starts = {"start_cube": knobs["C"], "start_pe": knobs["P"]}
    return knobs | {name: int(rng.integers(count)) for name, count in starts.items()}


def errors() -> None:
    """Distribution of (first come - static) / static."""
    rows = []
    for wide, slow in itertools.product((False, True), (False, True)):
        name = ("2 x 8 PEs" if wide else "2 x 4 PEs") + (", links of 1 to 8" if slow else "")
        rng, found, tree = np.random.default_rng(7), [], []
        machine = replace(MACHINE, WIDE) if wide else MACHINE
        for number in range(1, POINTS + 1):
            knobs = drawn(rng, wide)
            links = widths(rng.uniform(1, 8), rng.uniform(1, 8)) if slow else {}
            static, first_come = latencies("decode", machine, knobs, [links])[0]
            found.append(first_come / static - 1)
            tree.append(knobs["level2"] == "tree")
            progress(f"{name}: {number} of {POINTS}", end="\r")
        rows.append([name, str(POINTS), *summary(np.array(found))])
        if wide:
            rows.append([f"{name}: trees", str(sum(tree)), *summary(np.array(found)[tree])])
    table(["group", "points", "no difference", "median", "p90", "max", "min"], rows)


def summary(error: np.ndarray) -> list[str]:
    """Share without a difference, median, 90th percentile, largest and smallest."""
    error = np.where(np.abs(error) < TIE, 0.0, error)
    numbers = (np.median(error), np.quantile(error, 0.9), error.max(), error.min())
    return [f"{(error == 0).mean():.1%}", *(f"{x:.2%}" for x in numbers)]


def orders() -> None:
    """Latency of both orders of the reduce, and which one is called faster."""
    rows = []
    for context, cubes, packed in itertools.product((1024, 65536), (2, 4, 8, 16), (False, True)):
        knobs = {"context": context, "C": cubes, "packed": packed}
        ours = latencies("decode", MACHINE, knobs, WIDTHS)
        theirs = latencies(lanes_first, MACHINE, knobs, WIDTHS)
        for link, (pes_first, _), (static, queued) in zip(WIDTHS, ours, theirs, strict=True):
            width = link["cube_link.bytes_per_cycle"]
            head = [f"{context:,}", str(cubes), "yes" if packed else "no", str(width)]
            microseconds = [f"{x / 1e3:.2f}" for x in (pes_first, static, queued)]
            ratios = [f"{static / pes_first:.2f}", f"{queued / pes_first:.2f}"]
            rows.append([*head, *microseconds, f"{queued / static - 1:+.0%}", *ratios])
        progress(f"orders: {context} tokens, C = {cubes}, packed {packed}")
    head = ["context", "C", "packed", "width", "PEs first", "lanes first, static", "first come"]
    table([*head, "error", "lanes / PEs, static", "first come"], rows)


class Design(NamedTuple):
    """What a user may rank."""

    order: str
    level1: str
    level2: str
    packed: bool
    C: int
    P: int
    variant: str

    def __str__(self) -> str:
        return " ".join("packed" if x is True else str(x) for x in self if x is not False)


KNOBS = Design._fields
ORDERS = ("both PEs first", "one of each", "both lanes first")
OUTCOMES = ("agree", "tie in both", "tie in one", "reversed")
OUTCOMES += ("within 1 %", "with opposite ties too")  # of those reversed
LATE = {"context": 8200, "tile": 128, "layout": "round_robin_cube_first", "start_pe": 3}
SCENARIOS: dict[str, tuple[bool, dict[str, Any]]] = {  # 2 x 8 PEs or 2 x 4, and knobs
    "1k tokens": (False, {"context": 1024}),
    "16k tokens": (False, {"context": 16384}),
    "8,200 tokens, one PE late": (False, LATE),
    "1k tokens, 4 users": (False, {"context": 1024, "users": 4}),
    "2 x 8 PEs, 2k tokens": (True, {"context": 2048}),
    "2 x 8 PEs, 2k tokens, 4 users": (True, {"context": 2048, "users": 4}),
}


def designs(wide: bool) -> Iterator[Design]:
    """All choices for opt3; other variants with the shipped collectives, on 8 PEs."""
    cubes, pes = ((1, 2, 4, 8), (16,)) if wide else ((1, 2, 4, 8, 16), (4, 8))
    choices = (("PEs", "lanes"), ("mesh", "ring"), ("tree", "ring"), (False, True), cubes, pes)
    for design in itertools.starmap(Design, itertools.product(*choices, SWEEPS)):
        shipped = (design.level1, design.level2, design.P) == ("mesh", "tree", 8)
        if (design.variant == "opt3" or shipped) and (design.order == "PEs" or design.C > 1):
            yield design


def ranked() -> Iterator[tuple[str, list[tuple[Design, tuple[float, ...]]]]]:
    """Latencies of all designs, for every scenario and width of links."""
    for name, (wide, knobs) in SCENARIOS.items():
        machine = replace(MACHINE, WIDE) if wide else MACHINE
        known, found = list(designs(wide)), []
        for number, design in enumerate(known, start=1):
            own = {knob: getattr(design, knob) for knob in KNOBS if knob != "order"}
            kernel = "decode" if design.order == "PEs" else LANES_FIRST[design.variant]
            found.append(latencies(kernel, machine, knobs | own, WIDTHS, (*BOTH, "opposite_ties")))
            progress(f"{name}: {number} of {len(known)} designs", end="\r")
        for link, column in zip(WIDTHS, zip(*found, strict=True), strict=True):
            width = link["pe_link.bytes_per_cycle"]
            yield f"{name}, links of {width}", list(zip(known, column, strict=True))


def label(a: Design, b: Design) -> tuple[str, str]:
    """The knob in which two designs differ, and which orders they have."""
    differ = [knob for knob in KNOBS if getattr(a, knob) != getattr(b, knob)]
    knob = differ[0] if len(differ) == 1 else "several"
    return knob, ORDERS[(a.order == "lanes") + (b.order == "lanes")]


def outcome(static: float, first_come: float) -> str:
    """How verdicts compare: latencies of one design over another's, less 1."""
    signs = [0 if abs(x) < TIE else math.copysign(1, x) for x in (static, first_come)]
    if signs[0] == signs[1]:
        return "agree" if signs[0] else "tie in both"
    return "reversed" if all(signs) else "tie in one"


def verdicts() -> None:
    """For how many pairs both arbitrations name the same winner."""
    NETWORKS["opposite_ties"] = OppositeTies
    by_label: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    by_place: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    turned: dict[tuple[str, str], dict[float, list[str]]] = defaultdict(dict)  # by margin
    for where, found in ranked():
        for (a, of_a), (b, of_b) in itertools.combinations(found, 2):
            ratios = [y / x - 1 for x, y in zip(of_a, of_b, strict=True)]
            result, kind = outcome(*ratios[:2]), label(a, b)
            results = [result]
            if result == "reversed":
                if outcome(ratios[0], ratios[2]) == "reversed":
                    results.append("with opposite ties too")
                if max(abs(x) for x in ratios[:2]) < 0.01:
                    results.append("within 1 %")
                row = [str(a), str(b), where, *(f"{x:+.2%}" for x in ratios)]
                margins = [math.copysign(x, -x * ratios[0]) for x in ratios[1:]]
                turned[kind][min(abs(ratios[0]), *margins)] = row
            by_label[kind].update(results)
            by_place[where,].update(results)
    for head, counters in ((["differ in", "orders"], by_label), (["scenario"], by_place)):
        rows = [[*key, *(str(c[name]) for name in OUTCOMES)] for key, c in counters.items()]
        table([*head, *OUTCOMES], rows)
    rows = [[*kind, *found[x]] for kind, found in turned.items() for x in sorted(found)[-2:]]
    head = ["differ in", "orders", "first", "second", "scenario", "second / first - 1, static"]
    table([*head, "first come", "opposite ties"], rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {part.__name__: part for part in (errors, orders, verdicts)}
    parser.add_argument("--only", choices=parts, help="one part")
    only = parser.parse_args().only
    for name in [only] if only else parts:
        parts[name]()


if __name__ == "__main__":
    main()
