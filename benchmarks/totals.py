"""Bytes and time of an exact total against gossip averaging to the same precision.

    python -m benchmarks.totals [--live] [--graphs ring] [--numbers 1000] [--peers 8 16 64]

Real peers exchange messages in virtual time over a simulated broker, 0.5 ms away from each peer and at 10 MB/s each
way, so that a message takes 1 ms and its bytes. With ``--live`` they are tasks of one process and exchange messages
over a real broker on this machine, where a message takes what the processors need for it. A total adds up integers of
64 bits; masks change neither its messages nor their sizes. Gossip averages numbers of 64 bits by Chebyshev steps to a
relative 1e-13 and then floods the largest of the nearly equal numbers, so that all peers hold the same bits. Each
gossip step takes as long as the one before, so a few are run, and their bytes and time are multiplied.
"""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch

from p2pfl.algorithms import State
from p2pfl.core.neighbourhood import Released
from p2pfl.core.rows import Layout
from p2pfl.core.traits import Traits
from p2pfl.experiment import Plan, plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.transport.broker import embedded
from p2pfl.network.transport.channel import Transport
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.network.virtual.clock import WHO, VirtualLoop
from p2pfl.network.virtual.timed_learner import Goals
from p2pfl.network.virtual.virtual_network import Conditions, WorldTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.topology import chebyshev_steps, contraction

TOLERANCE = 1e-13
STEPS, TOTALS = 10, 5
LINE = Conditions(latency=0.0005, up=1e7, down=1e7)
GRAPHS: dict[str, dict[str, Any]] = {
    "ring": {"kind": "ring"},
    "random 4-regular": {"kind": "random_regular", "degree": 4},
}


@dataclass
class Spent:
    """What one operation costs: seconds, and bytes that a peer sends on average."""

    seconds: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class Measured:
    """Algorithm that takes a total, after which all peers begin together, and then gossips or takes more totals."""

    traits: ClassVar[Traits] = Traits()
    numbers: int
    gossips: bool
    peers: dict[str, Peer] = field(default_factory=dict)
    spent: dict[str, tuple[float, float, int]] = field(default_factory=dict)

    async def round(self, state, learner, net, round):
        """Run the operations, and note their begin, their end, and the bytes that the peer has sent between both."""
        del learner, round
        (me,) = net.peers
        loop, values, connection = asyncio.get_running_loop(), np.arange(self.numbers), self.peers[me].connection
        await net.total(lambda _: values, size=self.numbers)
        begun, before = loop.time(), connection.bytes_out
        if self.gossips:
            released = await net.release(state.rows, since=state.public)
            for _ in range(STEPS):
                released = await net.mix(released)
        else:
            for _ in range(TOTALS):
                await net.total(lambda _: values, size=self.numbers)
        self.spent[me] = begun, loop.time(), connection.bytes_out - before
        return State(state.rows, Released(state.rows).public)


def prepared(topology: Mapping[str, Any], *, numbers: int, gossips: bool) -> Plan:
    """Return the plan of peers that do nothing but one of the two operations."""
    table = {
        "rounds": 1,
        "topology": topology,
        "data": {"name": "synthetic"},
        "model": {"name": "linear"},
        "learning": {"device": "cpu", "dtype": "float64", "weighted": False},
        "transport": {"gather": 600.0, "patience": 600.0},
    }
    learner = Goals(Layout(("row",), ((numbers,),)), dtype=torch.float64, seed=0)
    return replace(plan(read(table)), algorithm=Measured(numbers, gossips), learner=learner, sized=None)


def costs(found: Plan, *, url: str) -> Spent:
    """Return what an operation costs, a gossip step or a total; without a broker's URL, in virtual time."""
    algorithm = cast("Measured", found.algorithm)

    async def one(name: str, transport: Transport) -> None:
        async with Peer(name, found, transport=transport, source=SeededSource(1)) as peer:
            algorithm.peers[name] = peer
            await peer.run()

    async def together() -> None:
        loop, peers = asyncio.get_running_loop(), found.topology.peers
        simulated = WorldTransport(loop, dict.fromkeys(peers, LINE)) if isinstance(loop, VirtualLoop) else None
        tasks = []
        for name in peers:
            context = Context()
            context.run(WHO.set, name)  # whose connection it is
            tasks.append(loop.create_task(one(name, simulated or MqttTransport(url)), context=context))
        await asyncio.gather(*tasks)

    with asyncio.Runner(loop_factory=None if url else VirtualLoop) as runner:
        runner.run(together())
    begun, ended, sent = zip(*algorithm.spent.values(), strict=True)
    operations = STEPS if algorithm.gossips else TOTALS
    return Spent((max(ended) - max(begun)) / operations, sum(sent) / operations / len(sent))


def table(graphs: Sequence[str], sizes: Sequence[int], *, numbers: int, url: str) -> None:
    """Print the table."""
    heads = ("total, ms", "total, KB a peer", "gossip steps", "gossip, ms", "gossip, KB a peer", "bytes", "time")
    print(f"| graph | peers | {' | '.join(heads)} |")
    print(f"| --- | {'---: | ' * (len(heads) + 1)}".rstrip())
    for name in graphs:
        for peers in sizes:
            topology = {**GRAPHS[name], "peers": peers}
            found = [prepared(topology, numbers=numbers, gossips=each) for each in (False, True)]
            total, step = (costs(each, url=url) for each in found)
            averaging = chebyshev_steps(contraction(found[0].weights), tolerance=TOLERANCE)
            steps = averaging + found[0].flood_steps
            gossip = Spent(step.seconds * steps, step.bytes * steps)
            print(
                f"| {name} | {peers} | {1e3 * total.seconds:.1f} | {total.bytes / 1000:.1f} | {averaging} + "
                f"{found[0].flood_steps} | {1e3 * gossip.seconds:.0f} | {gossip.bytes / 1000:.0f} "
                f"| {gossip.bytes / total.bytes:.0f} | {gossip.seconds / total.seconds:.0f} |",
                flush=True,
            )


def main() -> None:
    """Print the table of what the command asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--live", action="store_true", help="over a real broker on this machine")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=[*GRAPHS])
    parser.add_argument("--numbers", type=int, default=1000)
    parser.add_argument("--peers", type=int, nargs="+", default=[8, 16, 64])
    given = parser.parse_args()
    with embedded() if given.live else nullcontext() as broker:
        table(given.graphs, given.peers, numbers=given.numbers, url=broker.url if broker else "")


if __name__ == "__main__":
    main()
