"""Peers whose clocks show the time of a virtual loop."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import combinations

from p2pfl.experiment import read
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from restarts import RestartablePeers
from swarms import SMALL

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
RING = ["topology.kind=ring", "topology.peers=4", "rounds=4", "gossip.steps=3"]


class Fleet(RestartablePeers):
    """Peers whose clocks show the time of a virtual loop, and the times and models of their rounds."""

    def __init__(self, changes, folder, *, begin=NOON, skews=(), **options):
        loop = asyncio.get_running_loop()
        self.begin, self.skews = begin, dict(skews)
        self.ends = {}
        self.models = {}  # by round and peer
        super().__init__(
            read(SMALL, changes=[*RING, *changes]),
            MemoryTransport(),
            folder,
            now=lambda: begin + timedelta(seconds=loop.time()),
            **options,
        )

    def _peer(self, name, former, incarnation, **given):
        peer = super()._peer(name, former, incarnation, **given)
        clock, skew = peer._now, timedelta(seconds=self.skews.get(name, 0.0))
        peer._now = lambda: clock() + skew
        noted, observe = self.ends.setdefault(name, []), peer.observe

        def observed(record, state):
            noted.append(self.clock())
            self.models.setdefault(record.round, {})[name] = state.rows[0]
            observe(record, state)

        peer.observe = observed
        return peer

    def seconds(self, name="peer0"):
        """Seconds from the start to the end of each round, which takes no time itself."""
        return [(each - self.begin).total_seconds() for each in self.ends[name]]

    def apart(self):
        """Return the largest difference of two models after each round in which nobody lacked a model."""
        others = len(self.names) - 1
        full = [{each.round for each in records if each.received == others} for records in self.records.values()]
        return {
            round: max(float((one - two).abs().max()) for one, two in combinations(self.models[round].values(), 2))
            for round in sorted(set.intersection(*full))
        }


def run(test, *given, **options):
    """Run a coroutine function in virtual time."""

    async def limited():
        async with asyncio.timeout(40 * 86400):
            return await test(*given, **options)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(limited())
