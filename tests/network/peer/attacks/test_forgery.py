"""Attacks by an insider, a neighbour with valid keys of its own, and by strangers on an open broker.

The insider publishes under another peer's topic, or says of itself what cannot be.
"""

import msgspec
import pytest
import pytest_asyncio

from attacks import MALLORY, PUBLIC, ROOT, Middle, assert_no_effect, is_chunk, run, together
from model_messages import chunks_of
from p2pfl.experiment import read
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.incoming.rate_limit import Allowance
from p2pfl.network.protocol.membership.entry_round import common
from p2pfl.network.protocol.wire.envelope import SEALED, Envelope
from p2pfl.network.protocol.wire.messages import Account, Ack, Announcement, Chunk, Pulse
from p2pfl.network.protocol.wire.trailer import Signature
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.protocol.wire.wire_rows import encode_row
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import ExchangeKey, FirstUse
from restarts import RestartablePeers
from swarms import SMALL, timeless

pytestmark = pytest.mark.slow

COMPLETE = ["topology.kind=complete", "topology.peers=4", "rounds=6"]
FAR = 2**47
"""A number that no honest message has, and that every field takes."""


@pytest.fixture(scope="module")
def swarm():
    return read(SMALL, changes=COMPLETE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calm(swarm):
    return {name: end.state.rows for name, end in (await run(swarm)).items()}


def pretender(insider, victim, *, sequence=0):
    """Return what seals in another's name as a neighbour can: with that peer's sender key and keys of its own edges."""
    announcement = insider.membership.up[victim]
    stolen = insider.session.shared.codec.envelope._keys[victim]
    made = Envelope(
        victim, announcement.incarnation, ExchangeKey(insider.start.keeper.journal.key), stolen, insider.start.agreed
    )
    for name, each in insider.membership.up.items():
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
        account = Account(peers[victim].me.incarnation, FAR, incarnations={})
        yield f"{victim}/account", pretender(peers["peer3"], victim, sequence=FAR).seal(account)


def forged_acks(peers):
    outbox = peers["peer0"].session.streams.outboxes[0]
    ack = Ack(peers["peer0"].me.incarnation, 0, outbox.head, outbox.head + 8)
    for victim in ("peer1", "peer2"):
        yield f"peer0/in/{victim}", pretender(peers["peer3"], victim, sequence=FAR).seal(ack)


def forged_chunks(peers):
    """A chunk in the place of every one that may come, so that none of the genuine ones counts."""
    for sequence in range(300):
        chunk = Chunk(peers["peer1"].me.incarnation, 0, sequence, sequence, 0, 100, data=memoryview(b"x"))
        yield "peer1/pub/0", pretender(peers["peer3"], "peer1").seal(chunk)


def forged_row(peers):
    insider, victim = peers["peer3"], peers["peer1"]
    signature = Signature.of("test", "peer1", victim.me.incarnation, public=PUBLIC["peer1"])
    trailer = Signature(signature.context, PUBLIC["peer1"], insider.start.identity)
    row = victim.plan.learner.start(("peer1",))[0]
    parts, first = encode_row(row, round=3, step=0, mass=1.0), victim.session.streams.outboxes[0].head
    (chunk,) = chunks_of(parts, size=10**6, trailer=trailer, incarnation=victim.me.incarnation, sequence=first)
    yield "peer1/pub/0", pretender(insider, "peer1").seal(chunk)


ATTACKS = {
    "pulses": forged_pulses,
    "tail": forged_tail,
    "accounts": forged_accounts,
    "acks": forged_acks,
    "chunks": forged_chunks,
    "row": forged_row,
}


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_what_a_neighbour_says_in_anothers_name_has_no_effect(swarm, calm, attack):
    peers, injected, lost = {}, [], []

    def meddle(topic, data, retain):
        first = topic == f"{ROOT}/peer0/pub/0" and is_chunk(data) and peers["peer0"].mailbox.gossip_step[0] == 3
        if not first or injected:
            return [(topic, data, retain)]
        if attack == "acks":  # the chunk is lost on the way, and the sender must keep it
            lost.append(data)
        injected.extend((f"{ROOT}/{place}", payload, False) for place, payload in ATTACKS[attack](peers))
        return injected if lost else [*injected, (topic, data, retain)]

    ended = await run(swarm, Middle(meddle), prepare=lambda peer: peers.setdefault(peer.name, peer))
    assert injected
    assert_no_effect(ended, calm)
    assert all(end.records[-1].round == 5 and len(end.records) == 6 for end in ended.values())
    honest = [end.peer.session.shared.refused for name, end in ended.items() if name in {"peer0", "peer2"}]
    assert any("not authentic" in why for refused in honest for why in refused)


# ---------------------------------------------------------------------- what cannot be, of itself


def of_itself(lie):
    """Have peer3 say something in its own name and seal, once, in round 3."""
    peers, injected = {}, []

    def meddle(topic, data, retain):
        if (
            topic == f"{ROOT}/peer3/pub/0"
            and is_chunk(data)
            and peers["peer3"].mailbox.gossip_step[0] == 3
            and not injected
        ):
            place, message = lie(peers["peer3"])
            injected.append((f"{ROOT}/{place}", peers["peer3"].session.shared.codec.envelope.seal(message), False))
            return [*injected, (topic, data, retain)]
        return [(topic, data, retain)]

    return Middle(meddle), lambda peer: peers.setdefault(peer.name, peer), injected


LIES = {
    "a round after the last": lambda me: ("peer3/pub/0", Pulse(me.me.incarnation, 0, 0, 0, 10**6, 0, first=0)),
    "a first round after the last": lambda me: ("peer3/pub/0", Pulse(me.me.incarnation, 0, 0, 0, first=10**6)),
    "a stream that ends before it begins": lambda me: ("peer3/pub/0", Pulse(me.me.incarnation, 0, 9, 0, 3, 0, first=0)),
}


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("lie", LIES)
async def test_what_a_neighbour_cannot_have_done_is_refused_and_has_no_effect(swarm, calm, lie):
    transport, prepare, injected = of_itself(LIES[lie])
    ended = await run(swarm, transport, prepare=prepare)
    assert injected
    assert_no_effect(ended, calm)
    assert all(
        ended[name].peer.session.shared.refused["peer3: not a message"] == 1 for name in ("peer0", "peer1", "peer2")
    )


async def test_one_neighbour_that_says_it_is_in_the_last_round_moves_nobody(swarm, calm):
    transport, prepare, injected = of_itself(
        lambda me: ("peer3/pub/0", Pulse(me.me.incarnation, 0, 0, 10**6, 5, 0, first=0))
    )
    ended = await run(swarm, transport, prepare=prepare)
    assert injected
    assert_no_effect(ended, calm)


# ---------------------------------------------------------------------- strangers


async def test_an_announcement_that_a_stranger_left_on_the_broker_keeps_nobody_out_for_good(experiment, undisturbed):
    transport = Middle()
    stranger = Announcement("peer1", 2**62, "up", {}, key=bytes([9] * 32)).sign(MALLORY, swarm="test")
    transport.inject(f"{ROOT}/peer1/state", encode(stranger), retain=True)
    ended, _ = await together(experiment, transport, trust=FirstUse)
    assert_no_effect(ended, undisturbed)
    assert all(ended[name].peer.membership.up["peer1"].identity == PUBLIC["peer1"] for name in ("peer0", "peer2"))


async def test_a_flood_under_a_neighbours_name_does_not_use_up_what_the_neighbour_may_say(experiment, undisturbed):
    flooded = []

    def prepare(peer):
        peer.session.shared.allowance = Allowance(rate=0.0, burst=2000.0)

    def meddle(topic, data, retain):
        out = [(topic, data, retain)]
        if topic == f"{ROOT}/peer1/pub/0" and is_chunk(data) and not flooded:
            flooded.append(topic)
            out = [(topic, junk, False) for junk in (bytes([SEALED]) + bytes(100), b"junk") * 3000] + out
        return out

    ended = await run(experiment, Middle(meddle), prepare=prepare)
    assert flooded
    assert_no_effect(ended, undisturbed)
    refused = ended["peer0"].peer.session.shared.refused
    assert refused["peer1: not authentic"] == 3000  # which cost the neighbour nothing
    assert refused["peer1: too much"] >= 1000  # of what anybody may have published


async def test_a_payload_that_no_message_has_is_not_opened(experiment, undisturbed):
    sent = []

    def meddle(topic, data, retain):
        if topic == f"{ROOT}/peer1/pub/0" and is_chunk(data) and not sent:
            sent.append(topic)
            return [(topic, bytes([SEALED]) + bytes(2**21), False), (topic, data, retain)]
        return [(topic, data, retain)]

    ended = await run(experiment, Middle(meddle))
    assert sent
    assert_no_effect(ended, undisturbed)
    assert ended["peer0"].peer.session.shared.refused["peer1: not a message"] == 1


# ---------------------------------------------------------------------- an attempt that would end all masks


def test_a_neighbour_that_announces_an_endless_attempt_of_its_masks_is_not_followed_when_all_resume(tmp_path):
    masks = ["privacy.mode=pairwise", "privacy.mask=30.0", "privacy.departures=go_on"]
    changes = [*COMPLETE, *masks, "transport.patience=15"]

    async def resume():
        lives = RestartablePeers(read(SMALL, changes=changes), MemoryTransport(), tmp_path)
        lives.start()
        await lives.until(lambda now: any(peer.mailbox.gossip_step >= (2, 1) for peer in now.values()))
        await lives.kill()
        lives.start(resume=True, at=common(CheckpointStore(tmp_path, name).former().rounds for name in lives.names))
        insider = lives.now["peer3"]
        insider.membership.me = msgspec.structs.replace(insider.me, attempt=2**62)
        return await lives.end()

    ended = timeless(resume())
    for name in ("peer0", "peer1", "peer2"):
        assert ended[name].peer.hiding.attempts.attempt <= 4  # they go on without it
        assert ended[name].records[-1].round == 5
