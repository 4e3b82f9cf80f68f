"""Live peers of an experiment in one process, for tests."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from p2pfl.algorithms import State
from p2pfl.experiment import Experiment, Plan, plan
from p2pfl.network.peer import Peer
from p2pfl.network.transport import Transport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.privacy.keys import FIRST, Source
from p2pfl.results import Record
from p2pfl.results.notices.kinds import Notice

DEADLINE = 300.0
"""Seconds in which any swarm of a test must have ended."""

SMALL = {
    "name": "test",
    "seed": 3,
    "rounds": 3,
    "topology": {"kind": "small_world", "peers": 6, "degree": 4, "options": {"rewire": 0.5}},
    "data": {"name": "wine", "split": "dirichlet", "split_options": {"alpha": 1.0}},
    "model": {"name": "mlp", "hidden": [8]},
    "learning": {"dtype": "float64", "device": "cpu"},
    "gossip": {"steps": 3},
    "transport": {"patience": 20.0, "gather": 30.0},
}
"""An experiment that takes a moment, in double precision."""


def timeless(coroutine):
    """Run peers in virtual time, in which a busy machine makes no peer late; return their result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


@dataclass
class Ended:
    """What became of a live peer."""

    peer: Peer
    state: State
    records: list[Record]


async def live(
    experiment: Experiment,
    transport: Transport,
    *,
    source: Source | None = None,
    names: list[str] | None = None,
    alive: dict[str, Peer] | None = None,
    notice: Callable[[Notice], None] | None = None,
    resolved: Plan | None = None,
) -> dict[str, Ended]:
    """Run peers, all by default, over one transport; those in ``alive`` run right now.

    All share the plan ``resolved``, or each has its own.
    """
    ended: dict[str, Ended] = {}
    alive = {} if alive is None else alive

    async def one(name: str) -> None:
        records: list[Record] = []
        peer = Peer(
            name,
            resolved or plan(experiment, only=[name]),
            transport=transport,
            source=source,
            incarnation=FIRST,
            observe=lambda record, _: records.append(record),
            notice=notice,
        )
        alive[name] = peer
        async with peer:
            ended[name] = Ended(peer, await peer.run(), records)

    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
        for name in names or plan(experiment).topology.peers:
            tasks.create_task(one(name))
    return ended
