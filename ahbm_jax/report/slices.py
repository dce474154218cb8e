"""What each worker of a rank did, as slices to draw: from when to when, its name, its kind of work.

The lanes of a rank are its CPU, where the time in which it was held is a slice too, and its engines
and ports.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ahbm_jax.events import Timeline
from ahbm_jax.events.worker import Span
from ahbm_jax.interpret.record import Rank, Recorded
from ahbm_jax.tl.ops import OPS

SCORES, VALUES, OTHER = "Q K^T", "P V", "other GEMM"
MATH, TRANSFER, MESSAGE = "MATH", "load, store", "message"
ISSUE, HELD = "issue", "held"
KINDS = (SCORES, VALUES, OTHER, MATH, TRANSFER, MESSAGE, ISSUE, HELD)
GEMMS = ("composite", "ex_composite", "dot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Some time of a worker. Of a `held` one, `command` is the one that had to wait."""

    start_ns: float
    end_ns: float
    busy_ns: float  # the rest it waits within, for sub-tiles or for a link
    pieces: int  # times it was served
    kind: str  # of `KINDS`
    name: str
    command: int
    tile: int  # -1 outside of tiles


@dataclass(frozen=True, eq=False)
class Slices:
    """The slices of a timeline; those of a lane are in order, and do not overlap."""

    timeline: Timeline

    def lanes(self, rank: Rank) -> dict[str, list[Slice]]:
        """Slices of each worker of a rank."""
        return {
            worker: self._cpu(rank) if worker == "cpu" else self._engine(rank, worker)
            for worker in self.timeline.spans[rank]
        }

    def _engine(self, rank: Rank, worker: str) -> list[Slice]:
        spans = self.timeline.spans[rank][worker]
        return [
            self._served(span, self._kind(worker, span.command), self.names[span.command])
            for span in spans
        ]

    def _cpu(self, rank: Rank) -> list[Slice]:
        timeline = self.timeline
        issues = [
            self._served(span, ISSUE, f"issue {self.names[span.command]}")
            for span in timeline.spans[rank]["cpu"]
        ]
        holds = [
            Slice(
                start_ns=hold.start_ns,
                end_ns=hold.end_ns,
                busy_ns=0.0,
                pieces=0,
                kind=HELD,
                name=f"held by {self._holder(rank, timeline.marks.commands[hold.by])}",
                command=hold.command,
                tile=timeline.commands[hold.command].tile,
            )
            for hold in timeline.holds[rank]
        ]
        return sorted(issues + holds, key=lambda x: (x.start_ns, x.end_ns))

    def _served(self, span: Span, kind: str, name: str) -> Slice:
        return Slice(
            start_ns=span.start_ns,
            end_ns=span.end_ns,
            busy_ns=span.busy_ns,
            pieces=span.pieces,
            kind=kind,
            name=name,
            command=span.command,
            tile=self.timeline.commands[span.command].tile,
        )

    def _holder(self, rank: Rank, command: int) -> str:
        there = self.timeline.ranks[command]
        if there == rank:
            return self.names[command]
        return "a message from CUBE {} PE {}".format(*there)

    def _kind(self, worker: str, command: int) -> str:
        if worker == "math":
            return MATH
        if worker.startswith("port"):
            return MESSAGE
        if self.timeline.commands[command].op not in GEMMS:
            return TRANSFER
        return {"k": SCORES, "v": VALUES}.get(self.tensors[command], OTHER)

    @cached_property
    def tensors(self) -> list[str]:
        """The tensor that each command moves or multiplies by, "" where there is none."""
        return [name for entry in self.timeline.records for name in tensor_names(entry.commands)]

    @cached_property
    def names(self) -> list[str]:
        """What each command is called: `composite k[3]`, `exp [3]`, `load q`, `send to PE 2`."""
        return [
            command_name(command, tensor)
            for command, tensor in zip(self.timeline.commands, self.tensors, strict=True)
        ]


def tensor_names(commands: Iterable[Recorded]) -> list[str]:
    """The tensor of each command of a rank; of a GEMM on a loaded tile, what was loaded."""
    names, loaded = [], {}
    for command in commands:
        name = command.tensor
        if command.op == "load":
            loaded[command.writes[0]] = name
        elif command.op in GEMMS and not name:
            name = loaded.get(command.reads[-1], "")  # b is the last operand
        names.append(name)
    return names


def command_name(command: Recorded, tensor: str) -> str:
    """An operation, on what, and of which tile."""
    if command.message is not None:
        message, sending = command.message, command.op == "send"
        cube, pe = message.target if sending else message.source
        peer = f"PE {pe}" if message.mesh == "pe" else f"CUBE {cube}"
        return f"{command.op} {'to' if sending else 'from'} {peer}"
    of_tile = command.tile >= 0 and (command.op in OPS or command.op == "loop")
    tile = f"[{command.tile}]" if of_tile else ""
    return f"{command.op} {tensor}{tile}".rstrip()
