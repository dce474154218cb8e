"""A simulation in a few numbers: who was last, what its CPU stood still for, who was busiest."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ahbm_jax.events import Timeline
from ahbm_jax.events.worker import Hold
from ahbm_jax.interpret.record import Rank
from ahbm_jax.report.slices import Slices

WORKERS = ("cpu", "dma", "gemm", "math", "port")
ISSUE, AFTER = "issue", "after"  # of a CPU: when it issued, and after its last command
COMPOSITES = ("composite", "ex_composite")


def summary(timeline: Timeline) -> dict[str, Any]:
    """Plain data of a simulation, for JSON.

    Returns:
      `latency_ns`, `arbitration`, and

      - `commands`, `ranks`: how many there were;
      - `finish_ns`: when the `first`, the `median` and the `last` rank was done;
      - `last_rank`: `cube` and `pe` of the rank that was last;
      - `last_cpu_ns`: the time of that rank's CPU until then, by what it did or what held it, most
        first; adds up to `finish_ns["last"]`;
      - `busiest`: of each kind of worker the one that was busy longest, with its rank.
    """
    finish = timeline.finish_ns
    last = max(finish, key=lambda rank: finish[rank])
    return {
        "latency_ns": timeline.latency_ns,
        "arbitration": timeline.arbitration,
        "commands": len(timeline.commands),
        "ranks": len(finish),
        "finish_ns": {
            "first": min(finish.values()),
            "median": statistics.median(finish.values()),
            "last": finish[last],
        },
        "last_rank": {"cube": last[0], "pe": last[1]},
        "last_cpu_ns": cpu_ns(timeline, last),
        "busiest": [each for kind in WORKERS if (each := _busiest(timeline, kind)) is not None],
    }


def cpu_ns(timeline: Timeline, rank: Rank) -> dict[str, float]:
    """Time of a rank's CPU until the rank is done, by what it did or what held it, most first.

    `issue` is the issuing of commands, `after` the time after the last of them; all else is what
    the CPU was held by: `composite v` and `load q` their results, `message` one that was not there
    yet, `math` MATH at work, `composite queue: composite v` a queue that was full of it,
    `scratch scope: composite v` buffers that it still used.
    """
    spans, holds = timeline.spans[rank]["cpu"], timeline.holds[rank]
    spent = {ISSUE: sum(span.busy_ns for span in spans)}
    tensors = Slices(timeline).tensors
    for hold in holds:
        holder = _holder(timeline, tensors, hold)
        spent[holder] = spent.get(holder, 0.0) + hold.end_ns - hold.start_ns
    spent[AFTER] = timeline.finish_ns[rank] - max((x.end_ns for x in (*spans, *holds)), default=0.0)
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


def _holder(timeline: Timeline, tensors: Sequence[str], hold: Hold) -> str:
    """What the CPU was held by."""
    held, number = timeline.commands[hold.command].op, timeline.marks.commands[hold.by]
    by = timeline.commands[number]
    if held == "recv" or by.message is not None:
        return "message"
    holder = "math" if by.engine == "math" else f"{by.op} {tensors[number]}".rstrip()
    if held in COMPOSITES:
        return f"composite queue: {holder}"
    return f"scratch scope: {holder}" if held == "scope_enter" else holder


def _busiest(timeline: Timeline, kind: str) -> dict[str, Any] | None:
    """The worker of a kind that was busy longest; None if there is none."""
    busy = [
        (sum(span.busy_ns for span in spans), rank, name)
        for rank, workers in timeline.spans.items()
        for name, spans in workers.items()
        if name.partition(".")[0] == kind
    ]
    if not busy:
        return None
    most, (cube, pe), name = max(busy, key=lambda each: each[0])
    share = most / timeline.latency_ns if timeline.latency_ns else 0.0
    return {"worker": name, "cube": cube, "pe": pe, "busy_ns": most, "utilisation": share}
