"""The send ports of one PE, one for each mesh and direction."""

from __future__ import annotations

from dataclasses import dataclass

import simpy

from ahbm_jax.events.network import Delivery, StaticNetwork
from ahbm_jax.events.worker import Clockwork, Engine, Steps
from ahbm_jax.interpret.record import Message
from ahbm_jax.machine.params import Machine


@dataclass(eq=False)
class Port:
    """A port, its messages in the order in which they retire, and credits for more."""

    engine: Engine
    sent: simpy.Store
    credits: simpy.Store
    messages: int = 0


class Ports:
    """All ports of a PE, made as they are used."""

    def __init__(self, machine: Machine, network: StaticNetwork, clockwork: Clockwork) -> None:
        self.machine, self.network, self.clockwork = machine, network, clockwork
        self.by_name: dict[tuple[str, str], Port] = {}

    def send(self, number: int, message: Message, issued: int) -> simpy.Event:
        """Queue a message; returns when it has left the port."""
        env = self.clockwork.env
        port = self._port(message.mesh, message.direction)
        left, sent = env.event(), Delivery(message, number, env.event())
        depth = getattr(self.machine, f"{message.mesh}_link").queue_depth_messages
        port.messages += 1
        port.engine.push(issued, self._transmit(port, sent, left, port.messages > depth))
        port.sent.put(sent)
        return left

    def _port(self, mesh: str, direction: str) -> Port:
        env = self.clockwork.env
        if (mesh, direction) not in self.by_name:
            port = Port(Engine(self.clockwork), simpy.Store(env), simpy.Store(env))
            env.process(self._return_credits(port))
            self.by_name[mesh, direction] = port
        return self.by_name[mesh, direction]

    def _transmit(self, port: Port, sent: Delivery, left: simpy.Event, full: bool) -> Steps:
        """A port: one message, once there is room for it."""
        if full:
            yield from port.engine.after(port.credits.get())
        yield from self.network.transmit(port.engine, sent)
        left.succeed(port.engine.last)

    def _return_credits(self, port: Port) -> Steps:
        """A port: room for one message more as each is taken, in order."""
        while True:
            message = yield port.sent.get()
            port.credits.put((yield message.taken))
