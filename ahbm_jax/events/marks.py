"""The instants of a simulation, each with what it waited for: a critical path is read from them."""

from __future__ import annotations

from collections.abc import Sequence

ORIGIN = 0  # the mark of time 0
NO_COMMAND = -1
Spent = tuple[tuple[str, float], ...]  # names of costs (machine/costs.py), and ns spent on each


class Marks:
    """A graph of instants, in an order in which causes come first.

    Mark i is at `times_ns[i]`, which is the latest of its `causes[i]` plus what was `spent[i]`
    since, by command `commands[i]`.
    """

    def __init__(self) -> None:
        self.times_ns: list[float] = [0.0]
        self.causes: list[tuple[int, ...]] = [()]
        self.commands: list[int] = [NO_COMMAND]
        self.spent: list[Spent] = [()]

    def add(self, time_ns: float, causes: tuple[int, ...], command: int, spent: Spent = ()) -> int:
        """A new mark; returns its number."""
        self.times_ns.append(time_ns)
        self.causes.append(causes)
        self.commands.append(command)
        self.spent.append(spent)
        return len(self.times_ns) - 1

    def latest(self, marks: Sequence[int]) -> int:
        """The mark with the latest time, the first of them on a tie."""
        return max(marks, key=self.times_ns.__getitem__)

    def path_to(self, mark: int) -> list[int]:
        """Marks from time 0 to `mark`, each the latest cause of the next."""
        path = [mark]
        while self.causes[path[-1]]:
            path.append(self.latest(self.causes[path[-1]]))
        return path[::-1]

    def slack_ns(self, end: int) -> list[float]:
        """How much later each mark could be with `end` no later (infinite: it does not matter)."""
        latest = [float("inf")] * len(self.times_ns)
        latest[end] = self.times_ns[end]
        for mark in range(end, ORIGIN, -1):
            bound = latest[mark] - sum(ns for _, ns in self.spent[mark])
            for cause in self.causes[mark]:
                latest[cause] = min(latest[cause], bound)
        return [late - time for late, time in zip(latest, self.times_ns, strict=True)]
