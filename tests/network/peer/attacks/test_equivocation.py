"""Strangers that say anything, and neighbours that say two things; see tests/support/attacks.py."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest
import pytest_asyncio
import torch
from msgspec import structs

from attacks import IDENTITIES, MALLORY, NAMES, PUBLIC, RING, ROOT, Middle, assert_no_effect, run, together
from model_messages import message_of
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.agreement.attempt_reports import FAILED, complete
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.incoming.mailbox import WINDOW, Mailbox
from p2pfl.network.protocol.interface.requests import Offer
from p2pfl.network.protocol.wire.envelope import SEALED, Envelope
from p2pfl.network.protocol.wire.messages import Ack, Announcement, Chunk, Claim, Key, Pulse
from p2pfl.network.protocol.wire.trailer import Signature, SignedStatement
from p2pfl.network.protocol.wire.verdict_messages import Place, Report
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.protocol.wire.wire_rows import Encoded, encode_row, read_row
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.broker import embedded, mosquitto
from p2pfl.privacy.keys import Identity, SecretSource, SeededSource, SenderKey
from p2pfl.results.notices.kinds import PeerExcluded
from swarms import SMALL
from waiting import wait_until

# ---------------------------------------------------------------------- strangers


@pytest.mark.slow
async def test_a_stranger_that_overwrites_the_hellos_that_the_broker_keeps_delays_at_most(experiment, undisturbed):
    overwritten = Counter()

    def overwrite(topic, data, retain):
        out = [(topic, data, retain)]
        if retain and data and not overwritten[topic]:
            overwritten[topic] += 1
            out.append((topic, b"junk", True))
        return out

    transport = Middle(overwrite)
    first = asyncio.create_task(together(experiment, transport, names=NAMES[:1]))
    await wait_until(lambda: overwritten, "an announcement is overwritten")
    others, _ = await together(experiment, transport, names=NAMES[1:])
    assert_no_effect(others | (await first)[0], undisturbed)
    assert len(overwritten) == 4


def junk(name, life, neighbour):
    del name, life, neighbour
    yield from (b"xx", bytes([SEALED]) + random.Random(1).randbytes(64), random.Random(2).randbytes(200_000))
    yield bytes([SEALED]) + random.Random(3).randbytes(200_000)
    yield b"\x02" + encode(Claim(3))[1:]  # another version


def under_a_key_of_its_own(name, life, neighbour):
    source = SecretSource()
    stranger = Envelope(name, life, None, SenderKey.draw(source, peer="mallory"), "")
    yield stranger.seal(Chunk(life, 0, 0, 0, 0, 1000, data=memoryview(bytes(1000))))
    yield from map(stranger.seal, control(life, neighbour))


def control(life, neighbour):
    return Ack(neighbour, 0, 1000, 2000), Pulse(life, 0, 1000, 2000, 50, 0, waiting=True), Ack(life, 0, 0, 0, [0, 1, 2])


def in_the_clear(name, life, neighbour):
    del name
    yield encode(Chunk(life, 0, 0, 0, 0, 1000, data=memoryview(bytes(1000))))
    yield from map(encode, control(life, neighbour))


def goodbyes(name, life, neighbour):
    del neighbour
    for status in ("dead", "left", "up"):
        for at in (life, life + 1):
            yield encode(Announcement(name, at, status, key=b"k" * 32))
            yield encode(Announcement(name, at, status, key=b"k" * 32).sign(MALLORY, swarm="test"))


def introductions(name, life, neighbour):
    del neighbour
    yield encode(Claim(life))
    yield encode(Claim(life + 1, b"k" * 32))
    yield encode(Key(life, bytes(48), have=True, known=True))
    yield encode(Announcement(name, 1, "up", key=b"k" * 32, answers=b"k" * 32).sign(MALLORY, swarm="test"))


async def disturbed(experiment, transport, words):
    """A run in which a stranger says all it can think of on every topic, before and all the while."""
    names = (*NAMES, "mallory")
    lives = {name: 100 + index for index, name in enumerate(NAMES)}
    said = []
    for index, name in enumerate(NAMES):
        heard = NAMES[(index + 1) % 4]
        for word in words(name, lives[name], lives[heard]):
            places = ["state", "pub/0", "pub/1", *(f"in/{other}" for other in names)]
            said += [(f"{ROOT}/{name}/{place}", word) for place in places]

    random.Random(4).shuffle(said)
    async with transport.join("mallory") as mallory:

        async def speak():
            for topic, word in said:
                await mallory.publish(topic, word, retain=topic.endswith("/state"))

        await speak()
        running = asyncio.create_task(together(experiment, transport))
        for _ in range(3):
            if not running.done():
                await speak()
        return (await running)[0]


WORDS = [junk, under_a_key_of_its_own, in_the_clear, goodbyes, introductions]


def assert_bounded(ended, before):
    for name, end in ended.items():
        session = end.peer.session
        assert sum(session.shared.refused.values())
        assert len(session.shared.refused) <= 3 * 10  # sentences of ours, about two neighbours and strangers
        assert session.streams.most_held <= before[name].peer.session.streams.most_held
        assert set(session.streams.inboxes) == set(before[name].peer.session.streams.inboxes)
        envelope = session.shared.codec.envelope
        assert set(envelope._keys) == set(envelope._secrets) == session.membership.neighbours


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calm(experiment):
    return await run(experiment)


@pytest.mark.sampled(fast=0)
@pytest.mark.parametrize("words", WORDS, ids=lambda words: words.__name__)
async def test_a_stranger_changes_nothing_whatever_it_says(experiment, undisturbed, calm, words):
    ended = await disturbed(experiment, MemoryTransport(), words)
    assert_no_effect(ended, undisturbed)
    assert_bounded(ended, calm)


@pytest.mark.slow
@pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")
async def test_a_stranger_on_a_real_broker_changes_nothing(experiment, undisturbed, calm):
    def everything(*about):
        for words in WORDS:
            yield from words(*about)

    with embedded(kind="mosquitto") as broker:
        ended = await disturbed(experiment, connect(experiment, urls=[broker.url], peer="all"), everything)
    assert_no_effect(ended, undisturbed)
    assert_bounded(ended, calm)


# ---------------------------------------------------------------------- two rows for one exchange

ADA, EVE = (Identity.generate(SeededSource(7), peer=peer) for peer in ("ada", "eve"))


def said(value, *, round=3, step=0, identity=ADA, life=7):
    """Head, row and what was signed."""
    trailer = Signature.of("swarm", "ada", life, public=identity.public, identity=identity)
    parts = encode_row(torch.full((5,), float(value)), round=round, step=step)
    return read_row(message_of(parts, trailer=trailer), trailer=trailer)[:3]


@pytest.fixture
def mailbox():
    box = Mailbox()
    box.know("ada")
    box.open((3, 0), ["ada"])
    return box


def deliver(box, *told):
    head, row, signed = told
    return box.deliver("ada", head, row, signed=signed)


def test_the_same_row_again_is_a_duplicate_and_no_lie(mailbox):
    assert deliver(mailbox, *said(1)) == "kept"
    assert deliver(mailbox, *said(1)) == "duplicate"
    assert mailbox.proofs == {}


@pytest.mark.parametrize("when", ["waiting", "taken", "late"])
def test_another_row_of_one_exchange_is_equivocation_and_proves_it(mailbox, when):
    deliver(mailbox, *said(1))
    if when != "waiting":
        mailbox.take("ada")
    if when == "late":
        mailbox.open((4, 0), ["ada"])
    assert deliver(mailbox, *said(2)) == "equivocation"
    proof = mailbox.proofs["ada"]
    assert proof.gossip_step == (3, 0)
    assert proof.holds(ADA.public)
    assert not proof.holds(EVE.public)
    assert mailbox.take("ada") is None  # neither is used any more
    assert deliver(mailbox, *said(3)) == "stranger"
    assert not mailbox.may_send("ada")


def test_rows_that_come_late_count_too(mailbox):
    assert deliver(mailbox, *said(1, round=2)) == "late"
    assert deliver(mailbox, *said(2, round=2)) == "equivocation"


def test_what_was_signed_is_remembered_for_the_exchanges_next_to_the_present_one(mailbox):
    for round in range(1, 3 + 5 * WINDOW):
        deliver(mailbox, *said(1, round=round))
    assert sorted(mailbox._said["ada"]) == [(round, 0) for round in range(3, 3 + WINDOW)]
    assert deliver(mailbox, *said(2, round=1)) == "late"  # forgotten


def test_far_rows_do_not_hide_that_the_present_one_is_contradicted(mailbox):
    for round in range(3, 3 + 5 * WINDOW):
        deliver(mailbox, *said(1, round=round))
    assert deliver(mailbox, *said(2, round=3)) == "equivocation"


def told(*arguments, **options):
    return said(*arguments, **options)[2]


@pytest.mark.parametrize(
    "proof",
    [
        Proof(told(1), told(1)),
        Proof(told(1), told(2, round=4)),
        Proof(told(1), told(2, step=1)),
        Proof(told(1), told(2, life=8)),
        Proof(told(1), told(2, identity=EVE)),
        Proof(told(1), SignedStatement(told(2).statement, told(1).signature)),
        Proof(told(1), SignedStatement(told(1).statement, told(2).signature)),
        Proof(SignedStatement(b"", b""), SignedStatement(b"x", b"")),
        Proof(SignedStatement(b"\xff" * 200, b""), told(1)),
    ],
    ids=["once", "rounds", "steps", "lives", "another", "swapped", "unsigned", "nothing", "junk"],
)
def test_what_convicts_nobody_does_not_hold(proof):
    assert not proof.holds(ADA.public)
    assert not Proof(proof.other, proof.one).holds(ADA.public)


@pytest.mark.slow
async def test_a_peer_that_shows_two_rows_is_excluded_and_the_proof_is_kept(tmp_path):
    experiment = read(SMALL, changes=[*RING, "transport.patience=2.0", "rounds=4"])

    def prepare(peer):
        if peer.name != "peer1":
            return
        honest = peer.connection.ask

        async def lying(request):
            answer = await honest(request)
            if isinstance(request, Offer) and peer.mailbox.gossip_step == (1, 0):
                head, numbers = request.model
                await honest(replace(request, model=Encoded((head, memoryview(bytes(len(numbers)))))))
            return answer

        peer.connection.ask = lying

    ended, notices = await together(experiment, MemoryTransport(), prepare=prepare, folder=tmp_path)
    for name in ("peer0", "peer2"):
        end = ended[name]
        proof = end.peer.mailbox.proofs["peer1"]
        assert proof.gossip_step == (1, 0)
        assert proof.holds(PUBLIC["peer1"])
        assert proof.one.context == "test/peer1/65/"
        assert end.peer.session.shared.refused["peer1: equivocation"] == 1
        assert "peer1" not in end.peer.membership.present
        assert not any(sender == "peer1" for sender, _ in end.peer.session.streams.inboxes)
        assert end.records[-1].round == 3
        assert end.records[-1].missed == ["peer1"] * 3
        assert torch.isfinite(end.state.rows).all()
        path = tmp_path / f"{name}.accuses-peer1.json"
        (accusation,) = [each for each in notices if each.peer == name and isinstance(each, PeerExcluded)]
        assert (accusation.neighbour, accusation.key) == ("peer1", IDENTITIES["peer1"].fingerprint)
        assert (accusation.round, accusation.step, accusation.proof) == (1, 0, str(path))
        assert Proof.read(path) == proof
    assert not ended["peer3"].peer.mailbox.proofs


async def test_a_member_whose_reports_contradict_each_other_is_reported_with_the_proof(tmp_path):
    masks = ["privacy.mode=pairwise", "privacy.mask=10.0", "privacy.partners=1", "privacy.departures=go_on"]
    changes = ["topology.kind=ring", "topology.peers=4", "gossip.steps=1", *masks]
    experiment = read(SMALL, changes=changes)
    notices, place = [], Place(1, 0)
    peer = Peer(
        "peer0",
        plan(experiment, only=["peer0"]),
        transport=MemoryTransport(),
        identity=IDENTITIES["peer0"],
        notice=notices.append,
        store=CheckpointStore(tmp_path, "peer0"),
    )
    async with peer:
        peer.membership.up["peer1"] = Announcement("peer1", 1, "up", {}, bytes(32), PUBLIC["peer1"])
        ballots = peer.session.commits.ballots
        reports = [Report(place, "peer1", value, incarnation=1) for value in (complete(), FAILED)]
        texts = [ballots.statements.text(each.statement) for each in reports]
        signatures = [IDENTITIES["peer1"].sign(text, domain="vote") for text in texts]
        ballots.exclude_contradictor(
            *(structs.replace(said, signature=each) for said, each in zip(reports, signatures, strict=True))
        )
        peer._accuse()
    (notice,) = notices
    assert (notice.neighbour, notice.signed, notice.round) == ("peer1", "vote", 1)
    assert Proof.read(notice.proof).holds(PUBLIC["peer1"])
