"""The closed set of `tl` operations: engine, issue cost and blocking of each.

Each interpreter has exactly one rule per operation named here; a test compares the tables.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSpec:
    """What every interpreter must know of an operation.

    `engine` serves it; `issue` names the CPU cost (`issue.<name>_cycles` of the machine);
    `holds_cpu` says whether the CPU waits until the operation has finished.
    """

    engine: str
    issue: str
    holds_cpu: bool
    doc: str


def _math(doc: str) -> OpSpec:
    return OpSpec(engine="math", issue="math", holds_cpu=True, doc=doc)


OPS: dict[str, OpSpec] = {
    "load": OpSpec(
        engine="dma", issue="load", holds_cpu=False, doc="HBM to scratch; awaited at first use"
    ),
    "store": OpSpec(engine="dma", issue="store", holds_cpu=False, doc="scratch to HBM"),
    "composite": OpSpec(
        engine="gemm",
        issue="composite",
        holds_cpu=False,
        doc="a @ b by the scheduler, streaming b's sub-tiles from HBM",
    ),
    "ex_composite": OpSpec(
        engine="gemm",
        issue="ex_composite",
        holds_cpu=False,
        doc="online softmax on MATH, then P V on GEMM into the (m, l, O) accumulator",
    ),
    "dot": OpSpec(engine="gemm", issue="dot", holds_cpu=True, doc="a @ b, both in scratch"),
    "full": _math("a constant"),
    "max": _math("maximum of each row"),
    "sum": _math("sum of each row"),
    "maximum": _math("larger of two"),
    "exp": _math("exponential"),
    "tanh": _math("hyperbolic tangent"),
    "add": _math("a + b"),
    "sub": _math("a - b"),
    "mul": _math("a * b"),
    "div": _math("a / b"),
    "broadcast": _math("repeat a column"),
    "mask": _math("-inf where a query row must not see a token"),
    "send": OpSpec(
        engine="port", issue="send", holds_cpu=False, doc="a message to a mesh neighbour"
    ),
    "recv": OpSpec(engine="cpu", issue="recv", holds_cpu=True, doc="wait for a message"),
    "recv_async": OpSpec(
        engine="cpu", issue="recv_async", holds_cpu=False, doc="a message, awaited at first use"
    ),
    "start": OpSpec(
        engine="cpu", issue="start", holds_cpu=True, doc="launch of a program on a device's units"
    ),
    "join": OpSpec(
        engine="cpu", issue="join", holds_cpu=True, doc="wait for the stores of a device's units"
    ),
    "wait": OpSpec(
        engine="cpu", issue="wait", holds_cpu=True, doc="wait for a handle, or all composites"
    ),
}

MATH_OPS = tuple(name for name, spec in OPS.items() if spec.engine == "math")
EXPONENTIALS = ("exp", "tanh")  # at the cost of an exponential
EPILOGUES = ("scale",)
EX_COMPOSITES = ("softmax_pv",)
FLOAT32_BYTES = 4
