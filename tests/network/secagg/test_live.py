"""Live peers that are given sums alone: they end in the rows of the simulation, to the last bit; see test_adding.py.

Training is one sum a number here, the same for one row and for many, so that nothing but the sums could differ.
"""

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch

from attacks import Middle
from p2pfl.core.errors import ExperimentError, TransportError
from p2pfl.experiment import plan, read
from p2pfl.learning import ExternalLearner
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.peer.threads import Threaded
from p2pfl.network.protocol.wire import envelope
from p2pfl.network.protocol.wire.envelope import PRIVATE, SEALED
from p2pfl.network.protocol.wire.messages import Announcement, Claim, Key
from p2pfl.network.protocol.wire.sum_messages import RollCall
from p2pfl.network.protocol.wire.wire_codec import decode, encode
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.broker import embedded, mosquitto
from p2pfl.privacy.secagg import protocol as secagg
from p2pfl.privacy.secagg.weighted_sums import portions
from p2pfl.simulation import simulate
from p2pfl.topology import complete, metropolis
from sourcing import shared_source
from swarms import SMALL, Ended, timeless

pytestmark = pytest.mark.slow

SUMS = ["privacy.mode=secagg", "topology.kind=complete", "topology.peers=5", "gossip.steps=1", "transport.patience=20"]
ALIKE = [*SUMS, "learning.weighted=false"]
INTRODUCED = ("unexpected Key", "before its key")
"""Why peers refuse messages of neighbours that are ahead of them in the introductions."""

REPEATED = ("Again", "Subtotal", "Total")
"""Kinds of messages that arrive twice when the machine is slow; the second is refused once its sum is over."""

SIZE = 40
SOURCE = shared_source()


def trained(row, *, peer, round):
    """Towards something else for every peer; off the grid."""
    return row * 0.5 + torch.arange(SIZE) * 0.37 + int(peer.removeprefix("peer")) * 1.1 + round / 3


def resolved(changes, *, only=None):
    found = plan(read(SMALL, changes=changes), only=only)
    everybody = plan(read(SMALL, changes=changes)).learner
    samples = dict(zip(found.topology.peers, everybody.samples(found.topology.peers).tolist(), strict=True))
    learner = ExternalLearner(trained, start=torch.zeros(SIZE, dtype=torch.float64), samples=samples)
    return replace(found, learner=learner, protection=replace(found.protection, size=SIZE))


async def together(changes, transport, *, prepare=None, dies=()):
    """Run all peers; those that die end in nothing."""

    async def one(life, name):
        records = []
        given = {"transport": transport, "source": SOURCE, "incarnation": life}
        peer = Peer(name, resolved(changes, only=[name]), observe=lambda record, _: records.append(record), **given)
        async with peer:
            if prepare is not None:
                prepare(peer)
            if name not in dies:
                return Ended(peer, await peer.run(), records)
            with pytest.raises(TransportError):
                await peer.run()
            return None

    names = resolved(changes).topology.peers
    async with asyncio.timeout(60):
        ended = await asyncio.gather(*(one(*each) for each in enumerate(names)))
    return {name: end for name, end in zip(names, ended, strict=True) if end is not None}


async def run(changes, transport=None, **given):
    return await together(changes, transport or MemoryTransport(), **given)


def simulated(changes):
    return simulate(resolved(changes), source=SOURCE, baselines=False).models


def assert_same_bits(ended, models, *, repeated=()):
    """``repeated``: kinds of messages that a peer sends again when the machine is slow, and that are refused then."""
    known = (*INTRODUCED, *(f"unexpected {kind}" for kind in repeated))
    for name, end in ended.items():
        assert torch.equal(end.state.rows[0], models[name]["row"])
        assert not any(record.missed for record in end.records)
        refused = end.peer.session.shared.refused
        assert not [why for why in refused if not why.endswith(known)]


# Agreement

CASES = {
    "FedAvg": SUMS,
    "FedAvg, all alike": ALIKE,
    "FedAvg, noise and clip": [*SUMS, "privacy.noise=0.3", "privacy.clip=1.0"],
    "FedAvg, a sparse graph": [*SUMS, "topology.kind=random_regular", "topology.peers=10"],
    "D-PSGD, directed": [
        *(*SUMS, "learning.algorithm=dpsgd", "topology.kind=exponential", "topology.peers=16"),
    ],
    "FedAvg, small pieces": [*SUMS, "transport.chunk=1024", "rounds=5"],
    "FedAvg, three colluders": [*SUMS, "topology.peers=7", "privacy.colluders=3"],
}


@pytest.mark.sampled(fast=0, all=3)
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_live_peers_in_memory_end_in_the_rows_of_the_simulation_to_the_last_bit(changes):
    assert_same_bits(timeless(run(changes)), simulated(changes))


def test_the_cases_use_both_rings():
    assert resolved(CASES["FedAvg, noise and clip"]).ring == 32
    assert resolved(SUMS).ring == 64


@pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")
async def test_live_peers_over_a_real_broker_end_in_the_rows_of_the_simulation_to_the_last_bit():
    changes = CASES["FedAvg, noise and clip"]
    with embedded(kind="mosquitto") as broker:
        ended = await run(changes, connect(read(SMALL, changes=changes), urls=[broker.url], peer="all"))
    assert_same_bits(ended, simulated(changes), repeated=REPEATED)


def test_what_is_charged_where_nothing_is_lost_is_what_the_simulation_charges():
    changes = CASES["FedAvg, noise and clip"]
    spent = {record.privacy_spent for end in timeless(run(changes)).values() for record in end.records[-1:]}
    found = resolved(changes).protection
    assert spent == {found.spent({found.cost: 3})}
    assert found.cost.mu < found.local.mu


# Loss


def expected(gone, *, since, rounds, kept=()):
    """Rows by the definition, where some take part no more since a round, and in some rounds all keep their rows."""
    weights = metropolis(complete(5)).matrix.toarray()
    rows = np.zeros((5, SIZE))
    for round in range(rounds):
        fitted = [trained(torch.from_numpy(row), peer=f"peer{number}", round=round) for number, row in enumerate(rows)]
        matrix = weights.copy()
        if round >= since:
            for peer in range(5):
                matrix[peer, peer] += matrix[peer, gone] if peer != gone else 0.0
            matrix[:, gone] = 0.0
        if round in kept:
            matrix = np.eye(5)
        points = torch.stack(fitted).numpy() * 2.0**20
        rows = portions(scipy.sparse.csr_array(matrix), points) * 2.0**-20
    return rows


class Meeting(Threaded):
    """Trains in a round once all have ended the one before; some die then."""

    def __init__(self, peer, *, round, dies, meeting):
        super().__init__(peer.plan.learner)
        self.peer, self.when, self.dies, self.meeting = peer, round, dies, meeting

    async def fit(self, rows, *, round, **given):
        if round == self.when:
            await self.meeting.wait()
            if self.peer.name in self.dies:
                self.peer.connection.channel.abort()
        return await super().fit(rows, round=round, **given)


def dying(*names, round):
    """Return what lets some of five peers die in the training of a round, which no message of an earlier one misses."""
    meeting = asyncio.Barrier(5)

    def prepare(peer):
        peer.training = Meeting(peer, round=round, dies=names, meeting=meeting)

    return {"prepare": prepare, "dies": names}


async def test_the_weight_of_a_sender_that_vanished_falls_to_the_own_row():
    ended = await run(ALIKE, **dying("peer3", round=1))
    rows = expected(3, since=1, rounds=3)
    for name, end in ended.items():
        np.testing.assert_array_equal(end.state.rows[0].numpy(), rows[int(name[-1])])
        assert [record.missed for record in end.records] == [[], ["peer3"], ["peer3"]]
        assert [record.received for record in end.records] == [4, 3, 3]


def dying_when_called(peer):
    """Dies once it is in the participant sets of all sums of the second round."""
    if peer.name != "peer3":
        return
    receive, called = peer.connection.relay.receive, set()

    def heard(sender, message):
        if not isinstance(message, RollCall) or message.round < 1:
            return receive(sender, message)
        called.add(sender)
        if len(called) == 4:
            peer.connection.channel.abort()
        return []

    peer.connection.relay.receive = heard


async def test_rows_stay_as_they_are_where_a_participant_disappears_and_nobody_adds_up_the_others():
    ended = await run(ALIKE, prepare=dying_when_called, dies=("peer3",))
    rows = expected(3, since=2, rounds=3, kept=(1,))
    others = sorted({*ended, "peer3"})
    for name, end in ended.items():
        np.testing.assert_array_equal(end.state.rows[0].numpy(), rows[int(name[-1])])
        assert [record.missed for record in end.records] == [[], [each for each in others if each != name], ["peer3"]]
        assert [record.received for record in end.records] == [4, 0, 3]


async def test_rows_are_kept_where_too_few_are_left_to_hide_each_other():
    ended = await run(ALIKE, **dying("peer3", "peer4", round=0))
    row = np.zeros(SIZE)
    for round in range(3):
        row = np.rint(trained(torch.from_numpy(row), peer="peer0", round=round).numpy() * 2.0**20) * 2.0**-20
    np.testing.assert_array_equal(ended["peer0"].state.rows[0].numpy(), row)
    assert all(len(record.missed) == 4 for record in ended["peer0"].records)


async def test_a_sum_that_lacks_a_term_makes_all_rounds_cost_what_private_noise_alone_hides():
    changes = [*ALIKE, "privacy.noise=0.3", "privacy.clip=1.0"]
    found = resolved(changes).protection
    for end in (await run(changes, **dying("peer3", round=1))).values():
        spent = [record.privacy_spent for record in end.records]
        assert spent[0] == found.spent({found.cost: 1})
        assert spent[1:] == pytest.approx([found.spent({found.local: rounds}) for rounds in (2, 3)])


async def test_where_that_would_cost_more_than_is_allowed_nothing_is_unmasked_and_the_run_ends():
    changes = [*ALIKE, "privacy.epsilon=8"]
    found = resolved(changes).protection
    assert found.spent({found.local: 1}) > 8
    for end in (await run(changes, **dying("peer3", round=1))).values():
        assert [record.received for record in end.records] == [4, 0]
        assert end.records[-1].privacy_spent == found.spent({found.cost: 2})


@pytest.mark.parametrize("number", range(4))
async def test_a_message_that_a_broker_drops_is_sent_again(number):
    """The broker drops one of the first messages of peer1 to peer0: it is ready, its participant set, or its term."""
    counted = Counter()

    def lose(_, message):
        if not message.topic.endswith("peer1/in/peer0") or message.data[:1] != bytes([PRIVATE]):
            return False
        counted["messages"] += 1
        counted["dropped"] += counted["messages"] - 1 == number
        return counted["messages"] - 1 == number

    changes = [*ALIKE, "rounds=2"]
    ended = await run(changes, MemoryTransport(lose=lose))
    assert counted["dropped"] == 1
    assert_same_bits(ended, simulated(changes), repeated=REPEATED)


# What others see


async def test_a_broker_sees_nothing_of_a_sum_but_sealed_bytes(monkeypatch):
    words = []

    def spying(message):
        words.append(encode(message))
        return words[-1]

    monkeypatch.setattr(envelope, "encode", spying)
    transport = Middle()
    ended = await run(SUMS, transport)
    plain = [decode(data) for _, data, _ in transport.seen if data and data[0] not in {SEALED, PRIVATE}]
    assert {type(word) for word in plain} <= {Announcement, Claim, Key}
    private = [data[9:] for _, data, _ in transport.seen if data[:1] == bytes([PRIVATE])]
    assert len(private) == 3 * 20 * 3  # ready, a participant set, and a term on each of 20 edges
    assert len({*private}) == len(private)
    everything = b"".join(data for _, data, _ in transport.seen)
    shown = {word[at : at + 16] for word in words for at in range(0, len(word) - 16, 16)}
    assert not any(part in everything for part in shown)
    assert len(ended) == 5


async def test_nobody_but_its_receiver_can_read_a_term_nor_speak_for_its_sender():
    """Neighbours share the keys of what is for all; what is for one is bytes to them, and what they seal is not it."""
    moved = Counter()

    def meddle(topic, data, retain):
        out = [(topic, data, retain)]
        if topic.endswith("peer1/in/peer0") and data[:1] == bytes([PRIVATE]):
            moved["all"] += 1
            out += [
                (topic.replace("in/peer0", "in/peer2"), data, retain),  # in another's name
                (topic.replace("peer1/in", "peer4/in"), data, retain),  # to another
                (topic, data, retain),  # again
                (topic, data[:-1] + bytes([data[-1] ^ 1]), retain),
            ]
        return out

    ended = await run(SUMS, Middle(meddle))
    models = simulated(SUMS)
    for name, end in ended.items():
        assert torch.equal(end.state.rows[0], models[name]["row"])
    refused = ended["peer1"].peer.session.shared.refused
    assert refused == dict.fromkeys(
        ["peer2: not authentic", "peer0: not authentic", "peer0: not a message"], moved["all"]
    )
    assert ended["peer4"].peer.session.shared.refused == {"peer0: not authentic": moved["all"]}


# Refused


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (["transport.gather.quorum=0.5"], "transport.gather.quorum = 0.5 does not work with"),
        (["data.name=synthetic"], "learning.weighted = true does not work with .* size of their own data alone"),
    ],
)
def test_what_live_peers_cannot_add_up_is_refused_before_anything_starts(changes, why):
    experiment = read(SMALL, changes=[*SUMS, *changes])
    with pytest.raises(ExperimentError, match=why):
        plan(experiment, only=["peer0"])
    assert plan(experiment).protection.sums is not None  # simulated, it is added up


def test_peers_that_know_only_their_own_data_add_up_rows_that_count_alike():
    experiment = read(SMALL, changes=[*ALIKE, "data.name=synthetic", "privacy.noise=1", "privacy.clip=1"])
    alone, all_ = plan(experiment, only=["peer0"]), plan(experiment)
    assert alone.protection.guarantee == all_.protection.guarantee
    assert alone.ring == all_.ring


@pytest.mark.parametrize("changes", [SUMS, ALIKE, CASES["FedAvg, noise and clip"]])
def test_one_peer_knows_of_its_sums_what_all_peers_know(changes):
    experiment = read(SMALL, changes=changes)
    alone, all_ = plan(experiment, only=["peer1"]), plan(experiment)
    assert alone.protection.guarantee == all_.protection.guarantee
    assert alone.facts == all_.facts
    assert alone.facts["sums"] == f"{secagg.VERSION} {all_.ring}"


def test_keys_are_exchanged_with_all_whom_a_common_neighbour_hears():
    changes = CASES["FedAvg, a sparse graph"]
    found = plan(read(SMALL, changes=changes), only=["peer0"])
    near = {*found.topology.neighbours("peer0")}
    peer = Peer("peer0", found, transport=MemoryTransport(), source=SOURCE)
    assert near < peer.membership.neighbours
    assert peer.membership.neighbours == near | {
        other for one in near for other in found.topology.neighbours(one) if other != "peer0"
    }


def two_faced(peer):
    """The first calls a second roll, too, of all but one whom it has heard, and signs both."""
    if peer.name != "peer0":
        return
    connection, seal = peer.connection, peer.connection.relay.sum_receiver.seal
    post = connection.post

    def told(topic, message):
        post(topic, message)
        if isinstance(message, RollCall) and message.round == 1:
            here = message.here[1:]
            post(topic, seal.sign(message.round, message.step, here))

    connection.post = told


async def test_who_signs_two_rolls_is_excluded_and_both_are_kept():
    ended = await run(ALIKE, prepare=two_faced)
    others = {name: end for name, end in ended.items() if name != "peer0"}
    for name, end in others.items():
        assert end.peer.connection.relay.sum_sender.proofs["peer0"].holds(ended["peer0"].peer.start.identity.public)
        assert "peer0" in end.peer.membership.excluded
        assert end.records[-1].missed == ["peer0"], name
