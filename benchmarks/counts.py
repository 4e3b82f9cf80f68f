"""Messages, bytes and subscriptions of live peers, and at their broker, against the number of peers.

    python -m benchmarks.counts [--peers 8 64 256 512] [--seconds 1.0] [--only masks]

Real peers of degree 4 train a linear model of 650 parameters, one gossip step per round, and exchange messages in
virtual time over a simulated broker, 5 ms away from each peer; a round of training takes --seconds, so heartbeats are
counted as they would be sent. A run of two rounds and one of six give the figures of a round; what is left is the start
and the end. The last two columns are what the broker carries in a round, in both directions. The counts are the same on
every machine.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Any

from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.transport import Channel, Message, Transport
from p2pfl.network.virtual.clock import WHO, VirtualLoop
from p2pfl.network.virtual.timed_learner import Timed
from p2pfl.network.virtual.virtual_network import Conditions, WorldTransport
from p2pfl.privacy.keys import FirstUse, Identity, SeededSource

ROUNDS = 2, 6
LINE = Conditions(latency=0.005)
MODES = {
    "no privacy": {},
    "masks": {"privacy.mode": "pairwise", "privacy.mask": 1.0},
    "masks, rounds committed": {
        "privacy.mode": "pairwise",
        "privacy.mask": 1.0,
        "privacy.departures": "go_on",
    },
}


@dataclass
class Counts:
    """Counts of all peers of a run.

    Attributes
    ----------
    sent, bytes_sent
        Messages that the peers published, and their payloads.
    received, bytes_received
        Messages that the broker delivered, and their payloads.
    subscriptions
        Largest number of subscriptions of one peer.
    """

    sent: int = 0
    bytes_sent: int = 0
    received: int = 0
    bytes_received: int = 0
    subscriptions: int = 0

    def per_round(self, longer: "Counts") -> "Counts":
        """Return the counts of one round, from those of a longer run."""
        rounds = ROUNDS[1] - ROUNDS[0]
        names = ("sent", "bytes_sent", "received", "bytes_received")
        each = {name: (getattr(longer, name) - getattr(self, name)) // rounds for name in names}
        return Counts(**each, subscriptions=max(self.subscriptions, longer.subscriptions))


class CountedChannel:
    """Channel whose messages and subscriptions are counted."""

    def __init__(self, channel: Channel, counts: Counts) -> None:
        self._channel, self._counts, self._filters = channel, counts, set[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    async def publish(self, topic: str, data: Any, *, retain: bool = False) -> None:
        self._counts.sent += 1
        self._counts.bytes_sent += len(data)
        await self._channel.publish(topic, data, retain=retain)

    async def subscribe(self, *filters: str) -> None:
        self._filters |= {*filters}
        self._counts.subscriptions = max(self._counts.subscriptions, len(self._filters))
        await self._channel.subscribe(*filters)

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for message in self._channel:
            self._counts.received += 1
            self._counts.bytes_received += len(message.data)
            yield message


@dataclass
class CountedTransport:
    """Transport whose channels are counted together."""

    transport: Transport
    counts: Counts = field(default_factory=Counts)

    @asynccontextmanager
    async def join(self, client: str, **given: Any) -> AsyncIterator[CountedChannel]:
        async with self.transport.join(client, **given) as channel:
            yield CountedChannel(channel, self.counts)


def counted(peers: int, *, rounds: int, mode: dict[str, Any], seconds: float) -> Counts:
    """Return the counts of one run."""
    changes = {
        "rounds": rounds,
        "topology.kind": "circulant",
        "topology.degree": 4,
        "topology.peers": peers,
        "data.name": "digits",
        "data.split": "iid",
        "model.name": "linear",
        "learning.device": "cpu",
        "learning.steps": 1,
        "gossip.steps": 1,
        "transport.gather": 600.0,
        **mode,
    }
    experiment = read({"name": "counts"}, changes=[f"{key}={value}" for key, value in changes.items()])
    source, loop = SeededSource(1), VirtualLoop()
    resolved = plan(experiment, live=True).drawing(source)
    names = resolved.topology.peers
    learner = Timed(resolved.learner, takes=lambda _peer, _round: seconds, spend=loop.spent)
    world = WorldTransport(loop, dict.fromkeys(names, LINE), seed=1)
    transport: Any = CountedTransport(world)

    async def one(name: str) -> None:
        WHO.set(name)
        identity = Identity.generate(source, peer=name)
        how: dict[str, Any] = {"source": source, "identity": identity, "trust": FirstUse(), "incarnation": 1}
        async with Peer(name, replace(resolved, learner=learner), transport=transport, **how) as peer:
            await peer.run()

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(one(name), context=Context())

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(all_of_them())
    return transport.counts


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--peers", type=int, nargs="+", default=[8, 64, 256, 512])
    arguments.add_argument("--seconds", type=float, default=1.0, help="of training per round")
    arguments.add_argument("--only", nargs="+", choices=list(MODES), default=list(MODES), metavar="PRIVACY")
    given = arguments.parse_args()
    heads = (
        "sent",
        "received",
        "kB sent",
        "kB received",
        "subscriptions",
        "at the start and end",
        "all peers",
        "MB of all",
    )
    print(f"| privacy | peers | {' | '.join(heads)} |")
    print(f"| --- |{' ---: |' * (1 + len(heads))}")
    for name in given.only:
        for peers in given.peers:
            short, long = (counted(peers, rounds=rounds, mode=MODES[name], seconds=given.seconds) for rounds in ROUNDS)
            each = short.per_round(long)
            rest = short.sent - ROUNDS[0] * each.sent
            print(
                f"| {name} | {peers} | {each.sent / peers:.1f} | {each.received / peers:.1f} | "
                f"{each.bytes_sent / peers / 1000:.1f} | {each.bytes_received / peers / 1000:.1f} | "
                f"{each.subscriptions} | {rest / peers:.1f} | {each.sent + each.received:,} | "
                f"{(each.bytes_sent + each.bytes_received) / 1e6:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
