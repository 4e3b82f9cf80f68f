"""Totals of live peers: those of the simulation to the last bit, and a sentence where a peer is lost."""

import asyncio
import re
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from p2pfl.algorithms import State
from p2pfl.core.errors import PeerError, PrivacyError, TransportError, foremost
from p2pfl.core.neighbourhood import Released
from p2pfl.core.traits import Traits
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.protocol.interface.requests import Contribute
from p2pfl.network.protocol.session.session_totals import Totals
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.broker import embedded, iotcore, mosquitto
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.network.virtual.timed_learner import Timed
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from swarms import SMALL, live

SIZE = 300


@dataclass(frozen=True)
class Counting:
    """Every peer counts something in each round, twice; the model is what all of them counted."""

    traits: ClassVar[Traits] = Traits()
    bits: int = 64
    size: int = SIZE
    largest: int = 10**6

    async def round(self, state, learner, net, round):
        del learner

        def counted(peer, turn):
            place = int(peer.removeprefix("peer")) + 1
            values = (np.arange(self.size) + round * 7 + turn) * (-1) ** place * place
            return values % self.largest - (self.largest - 1) * (place == 3)

        first = await net.total(lambda peer: counted(peer, 0), size=self.size, bits=self.bits)
        second = await net.total(lambda peer: counted(peer, 1), size=self.size, bits=self.bits)
        rows = state.rows.clone()  # [R, P]
        kept = min(self.size, rows.shape[-1])
        rows[:, :kept] += rows.new_tensor((first + 3 * second)[:kept])
        return State(rows, Released(rows).public)


def resolved(changes=(), **given):
    return replace(plan(read(SMALL, changes=list(changes))), algorithm=Counting(**given))


async def run(changes=(), transport=None, **given):
    found = resolved(changes, **given)
    how = {"resolved": found, "source": SeededSource(11)}
    return await live(found.experiment, transport or MemoryTransport(), **how)


CASES = {
    "plain": [],
    "masks": ["privacy.mode=pairwise"],
    "masks of a complete graph": ["privacy.mode=pairwise", "privacy.mask_graph=complete", "topology.kind=path"],
    "sums": ["privacy.mode=secagg", "topology.kind=complete", "learning.weighted=false", "gossip.steps=1"],
    "directed": ["topology.kind=exponential"],
    "directed, masks": ["topology.kind=exponential", "privacy.mode=pairwise"],
    "schedule": ["topology.kind=one_peer_exponential", "topology.peers=8"],
    "small pieces": ["transport.chunk=1024", "privacy.mode=pairwise"],
}


def assert_same(ended, changes, **given):
    models = simulate(resolved(changes, **given), baselines=False, source=SeededSource(11)).models
    for name, end in ended.items():
        layout = end.peer.plan.learner.layout
        for key, tensor in layout.split(end.state.rows).items():
            assert (tensor[0] == models[name][key]).all()
        assert not any("Total" in why or "Here" in why for why in end.peer.session.shared.refused)


@pytest.mark.slow
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
async def test_live_peers_in_memory_end_with_the_totals_of_the_simulation(changes):
    assert_same(await run(changes), changes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mosquitto", "iotcore"])
async def test_live_peers_over_a_real_broker_end_with_the_totals_of_the_simulation(kind):
    if {"mosquitto": mosquitto, "iotcore": iotcore}[kind]() is None:
        pytest.skip(f"{kind} is not installed")
    changes = CASES["masks"]
    with embedded(kind=kind) as broker:
        ended = await run(changes, connect(read(SMALL, changes=changes), urls=[broker.url], peer="all"))
    assert_same(ended, changes)


@pytest.mark.slow
async def test_bytes_are_those_of_the_formula_within_a_hundredth():
    size = 60_000
    given = {"size": size, "largest": 10}
    ended = await run(**given)
    simulated = simulate(resolved(**given), baselines=False, source=SeededSource(11))
    counted = {record.peer: record.bytes_out for record in simulated.metrics}
    for name, end in ended.items():
        assert end.records[-1].bytes_out == pytest.approx(counted[name], rel=0.01)
    assert sum(counted.values()) >= 3 * 2 * size * 8 * (len(ended) - 1)


async def failing(changes=(), **given):
    with pytest.raises(BaseExceptionGroup) as caught:
        await run(changes, **given)
    return foremost(caught.value)


async def test_a_contribution_out_of_range_ends_the_run_before_anything_of_it_is_sent(monkeypatch):
    sent, contribute = set(), Totals.ask

    def asked(self, event):
        if isinstance(event, Contribute):
            sent.add(self.shared.me.peer)
        contribute(self, event)

    monkeypatch.setattr(Totals, "ask", asked)
    error = await failing(bits=32, largest=2**31)
    assert isinstance(error, PrivacyError)
    found = re.match(r"the contribution of (peer.) has an integer .* over 6 peers in 32 bits", str(error))
    assert found is not None
    assert found[1] not in sent


async def test_masks_that_hide_nothing_are_refused_before_anything_is_sent():
    error = await failing(["privacy.mode=pairwise", "topology.kind=path", "privacy.partners=1"])
    assert isinstance(error, PrivacyError)
    assert "could part the masks of the other participants" in str(error)


@pytest.mark.slow
async def test_under_masks_a_peer_that_dies_ends_the_totals_of_all_others_in_a_sentence():
    found = resolved(["transport.patience=1", "privacy.mode=pairwise"])

    async def dies(transport):
        """Join, take part in the first round, and vanish without a goodbye."""
        peer = Peer(
            "peer2",
            found,
            transport=transport,
            source=SeededSource(11),
            observe=lambda *_: peer.connection.channel.abort(),
        )
        with pytest.raises(TransportError):
            async with peer:
                await peer.run()

    async def one(name, transport):
        async with Peer(name, found, transport=transport, source=SeededSource(11)) as peer:
            await peer.run()

    transport = MemoryTransport()
    names = [name for name in found.topology.peers if name != "peer2"]
    async with asyncio.timeout(60):
        _, *others = await asyncio.gather(
            dies(transport), *(one(name, transport) for name in names), return_exceptions=True
        )
    assert others
    for error in others:
        assert isinstance(error, PeerError)
        assert re.match(
            r"a total over all peers did not complete, because (peer\d reports that )?peer2 did not answer; start",
            str(error),
        )


@dataclass(frozen=True)
class Repeated(Counting):
    """Every peer contributes the same private number in each round, and trains for a while from the second on."""

    async def round(self, state, learner, net, round):
        if round:
            await learner.fit(state.rows, peers=net.peers, round=round)
        await net.total(lambda peer: np.array([int(peer.removeprefix("peer"))]), size=1, bits=64)
        return State(state.rows.clone(), Released(state.rows).public)


def test_under_masks_no_total_is_taken_without_a_peer_that_was_in_one_before():
    """Totals of the same numbers over seven peers and over six of them differ by the number of the seventh."""
    graph = {"kind": "circulant", "peers": 7, "degree": 4}
    changes = ["privacy.mode=pairwise", "transport.patience=5"]
    found = replace(plan(read(SMALL | {"topology": graph}, changes=changes)), algorithm=Repeated())

    def spend(seconds):
        asyncio.get_running_loop().spent(seconds)

    found = replace(found, learner=Timed(found.learner, takes=lambda *_: 4.0, spend=spend))

    async def one(name, transport):
        peer = Peer(name, found, transport=transport, source=SeededSource(11), observe=lambda *_: vanish(peer))
        async with peer:
            await peer.run()

    def vanish(peer):
        if peer.name == "peer2":
            peer.connection.channel.abort()

    async def together():
        transport = MemoryTransport()
        return await asyncio.gather(*(one(name, transport) for name in found.topology.peers), return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        results = dict(zip(found.topology.peers, runner.run(together()), strict=True))
    assert isinstance(results.pop("peer2"), TransportError)
    for error in results.values():
        assert isinstance(error, PeerError), error
        assert re.search("under masks needs all peers, and 6 take part|peer2 did not answer", str(error)), error
