"""How busy each engine is, and how much later its work could be done for nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ahbm_jax.events import Timeline
from ahbm_jax.explanation.resources import ENGINES, resource_of

NEAR = 0.01  # of the latency: slack below this is close to critical


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineUse:
    """One kind of engine, over all ranks.

    The slack of a piece of work is by how much later it could end, all else as it is, without a
    longer latency: 0 on the critical path, and on paths that are just as long. That of a command
    on an engine is the least of its pieces there. Slack is not idle time: an engine with much to
    do and much slack only has its work early, one that idles can be critical whenever it works.

    Attributes:
      busy_ns: time that the busiest rank's engine is occupied (ports of a rank taken together).
      busy_share: of the latency.
      least_slack_ns: of any command; infinite if the engine has none.
      near_commands: commands with less slack than `NEAR` of the latency.
      near_ranks: ranks that have such commands.
      commands: commands that the engine served.
    """

    engine: str
    busy_ns: float
    busy_share: float
    least_slack_ns: float
    near_commands: int
    near_ranks: int
    commands: int


def engines(timeline: Timeline) -> tuple[EngineUse, ...]:
    """Use of the CPU, DMA, GEMM, MATH and the send ports."""
    slack = _command_slack(timeline)
    near = NEAR * timeline.latency_ns
    uses = []
    for engine in ENGINES:
        busy = max(rank[engine] for rank in timeline.busy_ns.values())
        of_commands = slack[engine]
        close = [number for number, left in of_commands.items() if left < near]
        uses.append(
            EngineUse(
                engine=engine,
                busy_ns=busy,
                busy_share=busy / timeline.latency_ns,
                least_slack_ns=min(of_commands.values(), default=float("inf")),
                near_commands=len(close),
                near_ranks=len({timeline.ranks[number] for number in close}),
                commands=len(of_commands),
            )
        )
    return tuple(uses)


def _command_slack(timeline: Timeline) -> dict[str, dict[int, float]]:
    """Least slack of each command on each engine."""
    marks = timeline.marks
    slack: dict[str, dict[int, float]] = {engine: {} for engine in ENGINES}
    for number, spent, left in zip(
        marks.commands, marks.spent, marks.slack_ns(timeline.end), strict=True
    ):
        resource = resource_of(spent[0][0]) if spent else None
        if resource in slack:
            of = slack[resource]
            of[number] = min(of.get(number, left), max(left, 0.0))  # rounding can make it negative
    return slack
