"""Totals of live peers in virtual time when one is killed at any event: the others hold the same, or end alike."""

import asyncio
from contextvars import Context
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from p2pfl.algorithms import State
from p2pfl.core.errors import P2PFLError, PeerError, TransportError
from p2pfl.core.neighbourhood import Released
from p2pfl.core.traits import Traits
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.virtual.clock import WHO
from p2pfl.privacy.keys import SeededSource
from swarms import SMALL
from worlds.network import FaultyLoop

TABLE = SMALL | {
    "rounds": 2,
    "topology": {"kind": "complete", "peers": 4},
    "transport": {"patience": 5.0, "gather": 9.0},
}
PEERS = ("peer0", "peer1", "peer2", "peer3")


@dataclass(frozen=True)
class Counting:
    """Each peer adds two to the power of its number, twice in a round; the model keeps both totals of each round."""

    traits: ClassVar[Traits] = Traits()
    releases: bool = False

    async def round(self, state, learner, net, round):
        del learner

        def own(peer):
            return np.array([2 ** PEERS.index(peer)])

        if self.releases:
            await net.mix(await net.release(state.rows, since=state.public))
        found = [int((await net.total(own, size=1))[0]) for _ in range(2)]
        rows = state.rows.clone()  # [R, P]
        rows[:, 2 * round : 2 * round + 2] = torch.tensor(found, dtype=rows.dtype)
        return State(rows, Released(rows).public)


def lived(changes, dies, event, *, among=PEERS, **given):
    """Kill one peer after a number of its own events; return the result of each peer, and whether it was killed."""
    found = replace(plan(read(TABLE, changes=changes)), algorithm=Counting(**given))
    left, joined = [event], {}

    async def one(name, transport):
        async with Peer(name, found, transport=transport, source=SeededSource(11)) as peer:
            joined[name] = peer
            return (await peer.run()).rows[0, :4].tolist()

    async def together():
        transport, tasks = MemoryTransport(), []
        for name in among:
            context = Context()
            context.run(WHO.set, name)
            tasks.append(asyncio.get_running_loop().create_task(one(name, transport), context=context))
        return await asyncio.gather(*tasks, return_exceptions=True)

    def after(who):
        if who == dies and dies in joined and joined[dies].phase == "learning" and left[0] > 0:
            left[0] -= 1
            if left[0] == 0:
                joined[dies].connection.channel.abort()

    loop = FaultyLoop()
    loop.after = after
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        results = runner.run(together())
    return dict(zip(among, results, strict=True)), left[0] == 0


EVENTS = range(1, 400, 3)


def others(results, dies):
    return [result for name, result in results.items() if name != dies]


@pytest.mark.sampled(fast=3, all=16)
@pytest.mark.parametrize("dies", ["peer0", "peer2"])  # the root of the tree, and a leaf
@pytest.mark.parametrize("event", EVENTS)
def test_whenever_a_peer_is_killed_the_others_go_on_with_the_same_totals(dies, event):
    results, killed = lived([], dies, event)
    one, *same = others(results, dies)
    assert all(each == one for each in same), results
    without = 15 - 2 ** PEERS.index(dies)
    for first, second in (one[:2], one[2:]):
        assert first == second  # both totals of a round are over one participant set
        assert first in {15, without}
    assert isinstance(results[dies], TransportError) if killed else results[dies] == one


@pytest.mark.sampled(fast=3, all=20)
@pytest.mark.parametrize("event", EVENTS)
def test_under_masks_the_others_end_with_a_sentence_or_all_hold_the_totals(event):
    results, _ = lived(["privacy.mode=pairwise"], "peer0", event)
    for result in others(results, "peer0"):
        if isinstance(result, PeerError):
            assert "start the" in str(result)
        else:
            assert result == [15, 15, 15, 15]


@pytest.mark.sampled(fast=2, all=10)
@pytest.mark.parametrize("event", EVENTS)
def test_a_round_that_has_released_models_is_not_repeated(event):
    results, _ = lived([], "peer2", event, releases=True)
    for result in others(results, "peer2"):
        assert isinstance(result, P2PFLError | list)
        if isinstance(result, P2PFLError):
            assert isinstance(result, PeerError), result
        else:
            assert {*result} <= {15, 11}


def test_without_a_majority_there_is_no_total():
    results, killed = lived(["topology.peers=2"], "peer1", 20, among=PEERS[:2])
    assert killed
    assert str(results["peer0"]).startswith("a total needs a majority of the 2 peers, but peer1 did not answer; start")
