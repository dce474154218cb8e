"""What agreement is: the timing interpreter's report of a point against its event simulation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
from contracts.points import Structure, point_of

from ahbm_jax.config.case import Case
from ahbm_jax.events.simulation import execute
from ahbm_jax.interpret.evaluate import Static, report_function
from ahbm_jax.interpret.record import record
from ahbm_jax.kernel_names import Kernel
from ahbm_jax.knobs import Point
from ahbm_jax.result import QUICK_TO_COMPILE
from kernels import KERNELS

TOLERANCE = 1e-9  # relative, in float64
BUSY = ("cpu", "dma", "gemm", "math")

EVERYWHERE = {  # for each variant of each kernel
    "default": Structure(),
    "queued": Structure(
        queue=1,
        messages=2,
        math_blocking=False,
        layout="round_robin_cube_first",
        level1="ring",
        level2="ring",
    ),
    "speculative": Structure(
        queue=2,
        messages=1,
        operand_reuse=False,
        query_length=3,
        layout="round_robin",
        packed=True,
    ),
    "users": Structure(queue=3, users=3),
}
CHUNKS = {  # for each variant of a kernel that takes chunks of queries
    "chunk": Structure(query_length=None, alone=True),
    "chunk, all options": Structure(
        query_length=None,
        alone=True,
        queue=2,
        math_blocking=False,
        windowed=True,
        sinks=True,
        softcap=True,
    ),
}
STRUCTURES = (
    EVERYWHERE
    | CHUNKS
    | {
        "window and sinks": Structure(windowed=True, sinks=True),
        "speculative, all options": Structure(
            query_length=2, windowed=True, sinks=True, softcap=True, layout="round_robin"
        ),
        "chunk on ranks": Structure(query_length=None),
        "mixed batch": Structure(
            query_length=None, users=2, decode_users=1, queue=3, pe_mesh=(1, 2)
        ),
        "speculative, mixed": Structure(query_length=3, decode_users=2, messages=2),
        "mixed batch, alone": Structure(query_length=None, users=3, decode_users=1, alone=True),
        # A queue that takes many tiles to fill: until it has, the sweep must not look regular.
        "ring": Structure(query_length=None),
        "ring by lanes": Structure(
            query_length=None, ring_feed="lanes", messages=1, layout="round_robin"
        ),
        "ring of few": Structure(query_length=2, messages=2, level2="ring", users=2),
        "ring, all options": Structure(
            query_length=None,
            windowed=True,
            sinks=True,
            softcap=True,
            layout="zigzag",
            math_blocking=False,
            queue=2,
        ),
        "deep queue": Structure(queue=20),
        # MATH that runs behind a CPU which goes far ahead of it.
        "deep and queued": Structure(queue=20, math_blocking=False, level1="ring"),
        # A mesh whose tree has messages of several hops.
        "one row": Structure(pe_mesh=(1, 8), messages=2, layout="round_robin"),
    }
)


@dataclass(frozen=True)
class Row:
    """What one compiled function serves."""

    kernel: str
    variant: str
    structure: str

    def __str__(self) -> str:
        return f"{self.kernel} {self.variant}, {self.structure}"


FITTING = {  # a new kernel names its own
    "decode": EVERYWHERE,
    "prefill": ("chunk",),
    "prefill_ring": ("ring", "ring by lanes", "ring of few", "ring, all options"),
    "mesh_mlo": ("default", "speculative"),
    "mesh_mlo_2d": ("default", "queued"),
    "mesh_kv": ("chunk on ranks", "speculative"),
}
ROWS = [Row(k, v, s) for k, variants in KERNELS.items() for v in variants for s in FITTING[k]]
ROWS += [
    Row("decode", "opt3", "window and sinks"),
    Row("decode", "opt2", "speculative, all options"),
    Row("prefill", "opt1", "chunk on ranks"),
    Row("prefill", "opt1", "mixed batch"),
    Row("prefill", "opt2", "mixed batch, alone"),
    Row("decode", "opt3", "speculative, mixed"),
    Row("prefill", "opt2", "chunk, all options"),
    Row("prefill", "opt3", "chunk, all options"),
    Row("decode", "opt2", "deep queue"),
    Row("decode", "opt3", "deep and queued"),
    Row("decode", "opt1", "one row"),
]


class Disagreement(AssertionError):
    """The timing interpreter and the simulation say different things of a case."""


@functools.lru_cache(maxsize=64)
def reporter(kernel: Kernel, static: Static) -> Callable[..., dict[str, jax.Array]]:
    """`report_function`, compiled as `run` does: for few points at a time."""
    return jax.jit(report_function(kernel, static), compiler_options=QUICK_TO_COMPILE)


def compare(case: Case) -> float:
    """The worst relative difference (of what is under 1, absolute) over all that is compared.

    Raises:
      Disagreement: some difference is over `TOLERANCE`.
    """
    with jax.enable_x64(True):
        point = point_of(case)
        arrays = reporter(point.kernel, point.static)(*point.arrays())
    report = {name: float(values[0]) for name, values in arrays.items()}
    expected = simulated(point)
    differences = {name: abs(report[name] - x) / max(abs(x), 1) for name, x in expected.items()}
    wrong = [name for name, difference in differences.items() if not difference <= TOLERANCE]
    if wrong:
        shown = (
            f"{name}: timing {report[name]!r}, simulation {expected[name]!r}" for name in wrong
        )
        raise Disagreement("; ".join(shown))
    return max(differences.values())


def simulated(point: Point) -> dict[str, float]:
    """What the report of a feasible point must say, by its simulation."""
    launch = point.launch()
    records = record(point.kernel, point.machine, launch)
    done = execute(point.machine, records, cube_columns=launch.cube_cols)
    stores = [c for c in done.commands if c.op == "store"]
    sent = [c.message.size_bytes for c in done.commands if c.op == "send" and c.message]
    moves = [span.pieces for workers in done.spans.values() for span in workers["dma"]]
    busiest = {name: max(busy[name] for busy in done.busy_ns.values()) for name in BUSY}
    ports = [w for rank in done.spans.values() for name, w in rank.items() if "port" in name]
    busiest["port"] = max((sum(span.busy_ns for span in spans) for spans in ports), default=0.0)
    return {f"most_busy_{name}": ns for name, ns in busiest.items()} | {
        "result_code": 0,
        "latency_ns": done.latency_ns,
        "scratch_peak_bytes": max(entry.scratch_peak_bytes for entry in records),
        "composites": sum(c.op in ("composite", "ex_composite") for c in done.commands),
        "dma_reads": sum(moves) - len(stores),
        "dma_writes": len(stores),
        "dma_write_bytes": sum(c.hbm_bytes for c in stores),
        "sends": len(sent),
        "sent_bytes": sum(sent),
        "recvs": sum(c.op in ("recv", "recv_async") for c in done.commands),
    }
