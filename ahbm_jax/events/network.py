"""How a message crosses a mesh, under two arbitrations of the links.

- `static`, the timing contract: nothing but the sender's port is shared; `sharers` PEs that use a
  CUBE-to-CUBE link at once get 1 / sharers of it each, whoever uses it at the time.
- `first_come`: every link between neighbours is there once. A message takes the links of its path
  one after the other as its head gets to them, each for the time of its bytes at the full rate
  (virtual cut-through), in the order in which heads arrive.

Without contention, and with one sharer, both take the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import simpy

from ahbm_jax.events.marks import ORIGIN
from ahbm_jax.events.worker import Clockwork, Steps, Worker, mark_of, then
from ahbm_jax.interpret.record import Message
from ahbm_jax.machine.topology import OFFSET


@dataclass(eq=False, slots=True)
class Delivery:
    """A message under way: the mark of its arrival, and the event of its being taken."""

    message: Message
    command: int
    taken: simpy.Event
    arrival: int = ORIGIN


@dataclass(eq=False)
class StaticNetwork:
    """Messages meet nobody. Inboxes by channel: the k-th message in is the k-th out."""

    clockwork: Clockwork
    columns: dict[str, int]  # of each mesh
    inboxes: dict[tuple, simpy.Store] = field(default_factory=dict)

    def inbox(self, message: Message) -> simpy.Store:
        """Where the messages of a channel arrive."""
        channel = (message.mesh, message.direction, message.source, message.target)
        if channel not in self.inboxes:
            self.inboxes[channel] = simpy.Store(self.clockwork.env)
        return self.inboxes[channel]

    def cost(self, message: Message, name: str, times: float = 1.0) -> tuple[str, float]:
        """A cost of the links of a message's mesh, `times` over."""
        return self.clockwork.cost(f"{message.mesh}_link.{name}", times)

    def transmit(self, port: Worker, sent: Delivery) -> Steps:
        """Put a message on its way; ends when it has left the port."""
        message = sent.message
        payload = self.cost(message, "byte", message.size_bytes * message.sharers)
        yield from port.occupy(sent.command, self.cost(message, "overhead"), payload)
        flight = self.cost(message, "fixed"), self.cost(message, "hop", message.hops)
        self.arrive(sent, port.last, *flight)

    def arrive(self, sent: Delivery, cause: int, *spent: tuple[str, float]) -> None:
        """Have a message in its inbox after the sum of `spent`."""
        arrival, inbox = self.clockwork.later(cause, sent.command, *spent), self.inbox(sent.message)

        def deliver(arrived: simpy.Event) -> None:
            sent.arrival = mark_of(arrived)
            inbox.put(sent)

        then(arrival, deliver)


@dataclass(eq=False)
class FirstComeNetwork(StaticNetwork):
    """Messages queue for links. A link is a store that holds its one token while it is free."""

    links: dict[tuple, simpy.Store] = field(default_factory=dict)

    def link(self, message: Message, hop: int) -> simpy.Store:
        """The link of hop number `hop` of a message's path."""
        cube, pe = message.source
        here = pe if message.mesh == "pe" else cube
        row, col = divmod(here, self.columns[message.mesh])
        way = [message.direction] * message.hops
        if message.turn is not None:
            direction, hops = message.turn
            way[-hops:] = [direction] * hops
        rows, cols = (sum(OFFSET[step][axis] for step in way[:hop]) for axis in (0, 1))
        place = (row + rows, col + cols)
        name = (message.mesh, cube if message.mesh == "pe" else None, place, way[hop])
        if name not in self.links:
            self.links[name] = simpy.Store(self.clockwork.env)
            self.links[name].put(ORIGIN)
        return self.links[name]

    def transmit(self, port: Worker, sent: Delivery) -> Steps:
        """As the static network's, with the links of the path taken first come, first served."""
        message = sent.message
        yield from port.occupy(sent.command, self.cost(message, "overhead"))
        link = self.link(message, 0)
        yield from port.after(link.get())
        head = port.mark(sent.command)
        self.clockwork.env.process(self.travel(sent, head))
        yield from port.occupy(sent.command, self.cost(message, "byte", message.size_bytes))
        link.put(port.last)

    def travel(self, sent: Delivery, head: int) -> Steps:
        """The head of a message from its first link to its target."""
        message, clockwork = sent.message, self.clockwork
        hop, payload = self.cost(message, "hop"), self.cost(message, "byte", message.size_bytes)
        for number in range(1, message.hops):
            came = yield clockwork.later(head, sent.command, hop)
            link = self.link(message, number)
            free = yield link.get()
            head = clockwork.marks.add(clockwork.env.now, (came, free), sent.command)
            then(clockwork.later(head, sent.command, payload), partial(_free, link))
        self.arrive(sent, head, payload, hop, self.cost(message, "fixed"))


def _free(link: simpy.Store, passed: simpy.Event) -> None:
    """A message's bytes have passed a link."""
    link.put(mark_of(passed))


NETWORKS = {"static": StaticNetwork, "first_come": FirstComeNetwork}
