"""Attacks by an insider: a neighbour with valid keys of its own that publishes under another peer's topic."""

import pytest
from attacks import PUBLIC, ROOT, Middle, assert_no_effect, is_chunk, run
from swarms import SMALL

from p2pfl.experiment import read
from p2pfl.wire.envelope import Envelope
from p2pfl.wire.messages import Account, Ack, Chunk, Pulse
from p2pfl.wire.rows import encode_row, pieces
from p2pfl.wire.trailer import Signature

COMPLETE = ["topology.kind=complete", "topology.peers=4", "rounds=6"]
FAR = 2**47
"""A number that no honest message has, and that every field takes."""


@pytest.fixture(scope="module")
def swarm():
    return read(SMALL, changes=COMPLETE)


@pytest.fixture(scope="module")
def calm(swarm):
    return {name: end.state.rows for name, end in run(swarm).items()}


def pretender(liar, victim, *, sequence=0):
    """Return what seals in another's name as a neighbour can: with that peer's sender key and keys of its own edges."""
    hello = liar.membership.up[victim]
    stolen = liar.link.line.envelope._keys[victim]
    made = Envelope(victim, hello.incarnation, liar.key, stolen, liar.agreed)
    for name, each in liar.membership.up.items():
        if name != victim:
            made.meet(each)
    made._next = sequence
    return made


def forged_pulses(peers):
    for victim in ("peer1", "peer2"):
        life = peers[victim].me.incarnation
        pulse = Pulse(life, 0, 0, 0, 10**6, 0, first=0)
        yield f"{victim}/pub/0", pretender(peers["peer3"], victim, sequence=FAR).seal(pulse)


def forged_tail(peers):
    life = peers["peer1"].me.incarnation
    pulse = Pulse(life, 0, FAR, FAR, 3, 0, first=0)
    yield "peer1/pub/0", pretender(peers["peer3"], "peer1", sequence=FAR).seal(pulse)


def forged_accounts(peers):
    for victim in ("peer1", "peer2"):
        account = Account(peers[victim].me.incarnation, FAR, lives={})
        yield f"{victim}/account", pretender(peers["peer3"], victim, sequence=FAR).seal(account)


def forged_acks(peers):
    outbox = peers["peer0"].link.streams.outboxes[0]
    ack = Ack(peers["peer0"].me.incarnation, 0, outbox.head, outbox.head + 8)
    for victim in ("peer1", "peer2"):
        yield f"peer0/in/{victim}", pretender(peers["peer3"], victim, sequence=FAR).seal(ack)


def forged_chunks(peers):
    """A chunk in the place of every one that may come, so that none of the genuine ones counts."""
    for sequence in range(300):
        chunk = Chunk(peers["peer1"].me.incarnation, 0, sequence, sequence, 0, 100, memoryview(b"x"))
        yield "peer1/pub/0", pretender(peers["peer3"], "peer1").seal(chunk)


def forged_row(peers):
    liar, victim = peers["peer3"], peers["peer1"]
    signature = Signature.of("test", "peer1", victim.me.incarnation, public=PUBLIC["peer1"])
    trailer = Signature(signature.context, PUBLIC["peer1"], liar.identity)
    row = victim.plan.learner.start(("peer1",))[0]
    message = b"".join(pieces(encode_row(row, round=3, step=0, mass=1.0), size=10**6, trailer=trailer))
    first = victim.link.streams.outboxes[0].head
    chunk = Chunk(victim.me.incarnation, 0, first, first, 0, len(message), memoryview(message))
    yield "peer1/pub/0", pretender(liar, "peer1").seal(chunk)


ATTACKS = {
    "pulses": forged_pulses,
    "tail": forged_tail,
    "accounts": forged_accounts,
    "acks": forged_acks,
    "chunks": forged_chunks,
    "row": forged_row,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_a_neighbour_says_in_anothers_name_has_no_effect(swarm, calm, attack):
    peers, injected, lost = {}, [], []

    def meddle(topic, data, retain):
        first = topic == f"{ROOT}/peer0/pub/0" and is_chunk(data) and peers["peer0"].mailbox.exchange[0] == 3
        if not first or injected:
            return [(topic, data, retain)]
        if attack == "acks":  # the chunk is lost on the way, and the sender must keep it
            lost.append(data)
        injected.extend((f"{ROOT}/{place}", payload, False) for place, payload in ATTACKS[attack](peers))
        return injected if lost else [*injected, (topic, data, retain)]

    ended = run(swarm, Middle(meddle), prepare=lambda peer: peers.setdefault(peer.name, peer))
    assert injected
    assert_no_effect(ended, calm)
    assert all(end.records[-1].round == 5 and len(end.records) == 6 for end in ended.values())
    honest = [end.peer.link.desk.refused for name, end in ended.items() if name in {"peer0", "peer2"}]
    assert any("not authentic" in why for refused in honest for why in refused)
