"""Totals to one live peer: the integers of Python and of the simulation, and a sentence where a peer is lost."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

from p2pfl.algorithms import State
from p2pfl.core.draws import draw
from p2pfl.core.errors import PeerError, PrivacyError, TopologyError, TransportError, foremost
from p2pfl.core.neighbourhood import Recipient, Released
from p2pfl.core.traits import Traits
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.broker import embedded, iotcore, mosquitto
from p2pfl.network.virtual.virtual_network import Conditions, WorldTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.total_masks import TotalMasks
from p2pfl.simulation import simulate
from swarms import SMALL, live, timeless

PEERS = ADA, BOB, CLEO = "peer0", "peer1", "peer2"
THREE = SMALL | {"topology": {"kind": "complete", "peers": 3}, "rounds": 2}
MASKS = ["privacy.mode=pairwise"]
SIZE = 30

RUN = [
    (BOB, (ADA, CLEO)),
    (BOB, (ADA,)),
    (ADA, (BOB, CLEO, ADA)),
    None,
    (CLEO, (CLEO,)),
    (CLEO, None),
    (ADA, (BOB,)),
    (ADA, (BOB,)),
    (BOB, (CLEO, BOB)),
]
"""Totals of a round: recipient and senders, or ``None`` for a total of all peers."""


@dataclass(frozen=True)
class Sending:
    """Peers send each other totals of integers of the whole ring."""

    traits: ClassVar[Traits] = Traits()
    bits: int = 64
    run: list = field(default_factory=lambda: RUN)
    size: int = SIZE
    taken: dict = field(default_factory=dict)
    between: Callable = lambda *_: None

    async def round(self, state, learner, net, round):
        del learner
        for number, each in enumerate(self.run):
            for peer in net.peers:
                self.between(peer, number)
            answer = partial(self.own, round=round, number=number)
            if each is None:
                small = await net.total(lambda peer, answer=answer: answer(peer) >> 8, size=self.size, bits=self.bits)
                self.take((round, number), "all", small)
                continue
            to = Recipient(each[0], partial(self.take, (round, number), each[0]), each[1])
            assert len(await net.total(answer, size=self.size, bits=self.bits, to=to)) == 0
        return State(state.rows.clone(), Released(state.rows).public)

    def own(self, peer, round, number):
        most = 2 ** (self.bits - 1)
        return draw(5, f"part {number}", peer, round).integers(-most, most, self.size)

    def take(self, slot, peer, total):
        self.taken[slot, peer] = total.tolist()

    def expected(self, rounds):
        """Sums of integers of Python, of the smallest magnitude modulo the ring."""
        half, sums = 2 ** (self.bits - 1), {}
        for round in range(rounds):
            for number, each in enumerate(self.run):
                who, among = each or ("all", None)
                columns = zip(*[self.own(peer, round, number).tolist() for peer in among or PEERS], strict=True)
                shift = 8 * (each is None)
                sums[(round, number), who] = [
                    (sum(number >> shift for number in column) + half) % (2 * half) - half for column in columns
                ]
        return sums


def resolved(changes=(), settings=THREE, **given):
    return replace(plan(read(settings, changes=list(changes))), algorithm=Sending(**given))


def at_once(found, transport=None):
    return live(found.experiment, transport or MemoryTransport(), resolved=found, source=SeededSource(11))


def assert_exact(found, ended):
    assert found.algorithm.taken == found.algorithm.expected(found.experiment.rounds)
    for end in ended.values():
        refused = end.peer.session.shared.refused
        assert not any("not a message" in why or "otal" in why for why in refused), refused


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("changes", [[], MASKS, ["transport.chunk=1024", *MASKS]], ids=["plain", "masks", "pieces"])
def test_live_totals_to_one_peer_are_those_of_the_simulation_and_of_integers_of_python(bits, changes):
    simulated = resolved(changes, bits=bits)
    simulate(simulated, baselines=False, source=SeededSource(11))
    assert simulated.algorithm.taken == simulated.algorithm.expected(2)
    found = resolved(changes, bits=bits)
    assert_exact(found, timeless(at_once(found)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mosquitto", "iotcore"])
async def test_a_hundred_messages_between_three_peers_over_a_real_broker_wait_for_no_timeout(kind):
    if {"mosquitto": mosquitto, "iotcore": iotcore}[kind]() is None:
        pytest.skip(f"{kind} is not installed")
    pairs = [(ADA, BOB), (BOB, CLEO), (CLEO, ADA), (BOB, ADA), (CLEO, BOB)]
    begun = []
    found = resolved(
        MASKS,
        run=[(to, (sender,)) for sender, to in pairs] * 20,
        between=lambda *_: begun.append(time.perf_counter()),
    )
    with embedded(kind=kind) as broker:
        ended = await at_once(found, connect(found.experiment, urls=[broker.url], peer="all"))
    assert_exact(found, ended)
    gaps = np.diff(begun)
    assert np.median(gaps) < 0.05
    assert gaps.max() < 1.0  # the shortest timeout after which anything is sent again is two seconds


@pytest.mark.slow
async def test_a_large_total_to_one_peer_arrives_whole_in_windows():
    found = resolved(["rounds=1", *MASKS], run=[(BOB, (ADA, CLEO)), (ADA, (BOB,))], size=2**20)
    assert_exact(found, await at_once(found))


def test_totals_to_one_peer_survive_a_network_that_loses_and_delays():
    found = resolved([*MASKS, "rounds=1"])

    async def together():
        conditions = Conditions(latency=0.02, jitter=0.02, loss=0.1)
        network = WorldTransport(asyncio.get_running_loop(), dict.fromkeys(PEERS, conditions), seed=2)
        return await at_once(found, network)

    timeless(together())
    assert found.algorithm.taken == found.algorithm.expected(1)


# ---------------------------------------------------------------------- what the recipient is sent


def sent_to(monkeypatch, changes, run):
    """Return who hid which contribution with which partners, in a run."""
    hidden, hide = [], TotalMasks.hide

    def hides(self, values, *, peer, slot, participants, bits):
        hidden.append((slot.number, peer, participants))
        return hide(self, values, peer=peer, slot=slot, participants=participants, bits=bits)

    monkeypatch.setattr(TotalMasks, "hide", hides)
    found = resolved(["rounds=1", *changes], run=run)
    timeless(at_once(found))
    return sorted(hidden)


def test_senders_are_masked_against_the_recipient_and_a_single_one_is_not(monkeypatch):
    run = [(BOB, (ADA, CLEO)), (BOB, (ADA, BOB)), (BOB, (ADA, BOB, CLEO)), (CLEO, (ADA,))]
    two = (ADA, CLEO)
    assert sent_to(monkeypatch, MASKS, run) == [(0, ADA, two), (0, CLEO, two), (2, ADA, two), (2, CLEO, two)]


async def failing(found, transport=None):
    with pytest.raises(BaseExceptionGroup) as caught:
        await at_once(found, transport)
    return foremost(caught.value)


STAR = THREE | {"topology": {"kind": "star", "peers": 5}}
FIVE = tuple(f"peer{number}" for number in range(5))


async def test_masks_that_do_not_connect_the_senders_are_refused_before_anything_is_sent():
    found = resolved([*MASKS, "privacy.mask_graph=same", "privacy.partners=1"], STAR, run=[("peer0", FIVE[1:])])
    error = await failing(found)
    assert isinstance(error, PrivacyError)
    assert "are not connected" in str(error)
    assert not found.algorithm.taken


async def test_a_recipient_that_shares_no_edge_with_a_sender_is_refused_in_a_sentence():
    error = await failing(resolved([], STAR, run=[("peer1", ("peer2",))]))
    assert isinstance(error, TopologyError)
    assert "share no edge" in str(error)


# ---------------------------------------------------------------------- peers that disappear


@pytest.mark.parametrize("victim", PEERS)
@pytest.mark.parametrize("changes", [[], MASKS], ids=["plain", "masks"])
def test_a_peer_that_vanishes_between_two_totals_ends_the_run_in_a_sentence_and_no_peer_keeps_the_round(
    victim, changes
):
    peers = {}

    def between(peer, number):
        if peer == victim and number == 4:
            peers[victim].connection.channel.abort()

    run = [(BOB, (ADA,)), (CLEO, (BOB,)), (ADA, (CLEO,)), (BOB, (ADA,)), (CLEO, (BOB,)), (ADA, (CLEO,)), (BOB, (ADA,))]
    found = resolved(["transport.patience=3", "rounds=1", *changes], run=run, between=between)

    async def one(name, transport):
        async with Peer(name, found, transport=transport, source=SeededSource(11)) as peer:
            peers[name] = peer
            await peer.run()

    async def together():
        transport = MemoryTransport()
        return await asyncio.gather(*(one(name, transport) for name in PEERS), return_exceptions=True)

    results = dict(zip(PEERS, timeless(together()), strict=True))
    assert isinstance(results.pop(victim), TransportError)
    for error in results.values():
        assert isinstance(error, PeerError), error
        assert f"{victim} did not answer" in str(error)


def test_a_peer_whose_totals_are_over_does_not_end_the_round_before_the_others():
    """The last peer that has a part dies in it, so the one without a part must not count the round."""
    peers = {}

    def between(peer, number):
        if peer == ADA and number == 1:
            peers[ADA].connection.channel.abort()

    run = [(BOB, (CLEO,)), (BOB, (ADA,))]
    found = resolved(["transport.patience=3", "rounds=1"], run=run, between=between)
    kept = []

    async def one(name, transport):
        observed = lambda record, _: kept.append(record.peer)  # noqa: E731
        async with Peer(name, found, transport=transport, source=SeededSource(11), observe=observed) as peer:
            peers[name] = peer
            await peer.run()

    async def together():
        transport = MemoryTransport()
        return await asyncio.gather(*(one(name, transport) for name in PEERS), return_exceptions=True)

    assert all(isinstance(each, PeerError | TransportError) for each in timeless(together()))
    assert not kept
