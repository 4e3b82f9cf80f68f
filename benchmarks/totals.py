"""Bytes and virtual time of an exact total against gossip averaging to the same precision.

    python -m benchmarks.totals [--numbers 1000] [--peers 8 16 64]

Real peers exchange messages in virtual time over a simulated broker, 0.5 ms away from each peer and at 10 MB/s each
way, so that a message takes 1 ms and its bytes. A total adds up integers of 64 bits; masks change neither its messages
nor their sizes. Gossip averages numbers of 64 bits by Chebyshev steps to a relative 1e-13 and then floods the largest
of the nearly equal numbers, so that all peers hold the same bits. Each gossip step takes as long as the one before, so
a few are run, and their bytes and time are multiplied.
"""

import argparse
import asyncio
from collections.abc import Mapping
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch

from p2pfl.algorithms import State
from p2pfl.experiment import Plan, plan, read
from p2pfl.identity import SeededSource
from p2pfl.neighbourhood import Released
from p2pfl.peer import Peer
from p2pfl.rows import Layout
from p2pfl.topology import chebyshev_steps, contraction
from p2pfl.traits import Traits
from p2pfl.virtual.clock import WHO, VirtualLoop
from p2pfl.virtual.network import Conditions, WorldTransport
from p2pfl.virtual.timed_learner import Goals

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


def costs(found: Plan) -> Spent:
    """Return what an operation costs: a gossip step, or a total."""
    algorithm, loop = cast("Measured", found.algorithm), VirtualLoop()

    async def one(name: str, transport: WorldTransport) -> None:
        async with Peer(name, found, transport=transport, source=SeededSource(1)) as peer:
            algorithm.peers[name] = peer
            await peer.run()

    async def together() -> None:
        transport = WorldTransport(loop, dict.fromkeys(found.topology.peers, LINE))
        tasks = []
        for name in found.topology.peers:
            context = Context()
            context.run(WHO.set, name)  # whose connection it is
            tasks.append(loop.create_task(one(name, transport), context=context))
        await asyncio.gather(*tasks)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(together())
    begun, ended, sent = zip(*algorithm.spent.values(), strict=True)
    operations = STEPS if algorithm.gossips else TOTALS
    return Spent((max(ended) - max(begun)) / operations, sum(sent) / operations / len(sent))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--numbers", type=int, default=1000)
    parser.add_argument("--peers", type=int, nargs="+", default=[8, 16, 64])
    given = parser.parse_args()
    heads = ("total, ms", "total, KB a peer", "gossip steps", "gossip, ms", "gossip, KB a peer", "bytes", "time")
    print(f"| graph | peers | {' | '.join(heads)} |")
    print(f"| --- | {'---: | ' * (len(heads) + 1)}".rstrip())
    for name, kind in GRAPHS.items():
        for peers in given.peers:
            found = [prepared({**kind, "peers": peers}, numbers=given.numbers, gossips=each) for each in (False, True)]
            total, step = map(costs, found)
            averaging = chebyshev_steps(contraction(found[0].weights), tolerance=TOLERANCE)
            steps = averaging + found[0].flood_steps
            gossip = Spent(step.seconds * steps, step.bytes * steps)
            print(
                f"| {name} | {peers} | {1e3 * total.seconds:.1f} | {total.bytes / 1000:.1f} | {averaging} + "
                f"{found[0].flood_steps} | {1e3 * gossip.seconds:.0f} | {gossip.bytes / 1000:.0f} "
                f"| {gossip.bytes / total.bytes:.0f} | {gossip.seconds / total.seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
