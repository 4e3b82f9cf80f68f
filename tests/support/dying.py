"""Swarms in virtual time, of which one peer is killed at a chosen event."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from p2pfl.algorithms import State
from p2pfl.core.errors import TransportError
from p2pfl.experiment import Experiment, plan
from p2pfl.network.peer import Peer
from p2pfl.network.protocol.interface.effects import Concluded, Publish
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.privacy.keys import FIRST, SeededSource
from p2pfl.results import Record
from p2pfl.results.notices.kinds import Notice

VICTIM = "peer3"


@dataclass
class Death:
    """Run of an experiment in which one peer dies.

    Parameters
    ----------
    experiment
        What the peers run.
    at
        Event of the victim at which it dies, counted from the beginning of ``round``; ``None`` if it lives.
    lose
        Messages to lose, see :class:`p2pfl.network.transport.MemoryTransport`.
    absent
        Peer that never comes.

    Attributes
    ----------
    states, records, notices
        Of the peers that ended, by name, and of all.
    events
        Number of events of the victim in ``round``.
    outcomes
        By round, the outcomes of its attempts at each survivor, in turn.
    sent
        Number of messages by kind.
    """

    experiment: Experiment
    at: int | None = None
    round: int = 2
    lose: object = None
    absent: str = ""
    dead: bool = False
    events: int = 0
    states: dict[str, State] = field(default_factory=dict)
    records: dict[str, list[Record]] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    outcomes: dict[int, dict[str, list[Concluded]]] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)
    bytes_out: int = 0

    def run(self):
        """Run all peers."""
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(self._all())
        return self

    def accuracy(self, round):
        """Return the mean accuracy of the survivors after a round."""
        found = [rows[round].scores["accuracy"] for name, rows in self.records.items() if name != VICTIM]
        return sum(found) / len(found)

    async def _all(self):
        transport, tasks = MemoryTransport(lose=self.lose), {}

        async def one(name):
            records = self.records[name] = []
            peer = Peer(
                name,
                plan(self.experiment, only=[name]),
                transport=transport,
                source=SeededSource(5),
                incarnation=FIRST,
                observe=lambda record, _: records.append(record),
                notice=self.notices.append,
            )
            async with peer:
                self._watch(peer, tasks)
                self.states[name] = await peer.run()
                self.bytes_out += peer.connection.bytes_out

        for name in (each for each in plan(self.experiment).topology.peers if each != self.absent):
            tasks[name] = asyncio.create_task(one(name))
        await asyncio.gather(*(self._ended(name, task) for name, task in tasks.items()))

    async def _ended(self, name, task):
        try:
            await task
        except (asyncio.CancelledError, TransportError):  # whatever it was doing fails
            if name != VICTIM or not self.dead:
                raise

    def _watch(self, peer, tasks):
        """Count the victim's events and kill it at the chosen one; note what is sent and decided."""
        connection, handle, carry_out = peer.connection, peer.connection.handle, peer.connection._carry_out

        def handled(event):
            if peer.name == VICTIM and peer.phase == "learning" and peer.mailbox.gossip_step[0] == self.round:
                self.events += 1
                if self.at is not None and self.events > self.at:
                    self.dead = True
                    connection.channel.abort()
                    connection._closed = True
                    tasks[peer.name].cancel()
                    return
            handle(event)

        def carried_out(effect):
            if isinstance(effect, Publish):
                self.sent[type(effect.message).__name__] += 1
            if isinstance(effect, Concluded) and peer.name != VICTIM:
                of_round = self.outcomes.setdefault(peer.mailbox.gossip_step[0], {})
                of_round.setdefault(peer.name, []).append(effect)
            carry_out(effect)

        connection.handle, connection._carry_out = handled, carried_out
