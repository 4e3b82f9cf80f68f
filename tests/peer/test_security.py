"""Attacks on live peers: the broker in the middle, outsiders, replays, and neighbours that lie.

What must have no effect leaves every final row as it is in an undisturbed run, bit for bit.
"""

import asyncio
import math
import random
import struct
import zlib
from collections import Counter

import msgspec
import pytest
import torch
from swarms import SMALL, Ended

from p2pfl.errors import PeerError
from p2pfl.experiment import plan, read
from p2pfl.identity import FirstUse, Identity, Roster, SecretSource, SeededSource, SenderKey
from p2pfl.peer import Peer
from p2pfl.peer.child import connect
from p2pfl.peer.mailbox import WINDOW, Mailbox, Proof
from p2pfl.transport import MemoryTransport
from p2pfl.transport.broker import embedded, mosquitto
from p2pfl.wire.envelope import CONTROL, SEALED, Envelope
from p2pfl.wire.messages import Ack, Chunk, Claim, Hello, Key, Pulse, decode, encode
from p2pfl.wire.rows import encode_row, pieces, read_row
from p2pfl.wire.trailer import Said, Signature

NAMES = ("peer0", "peer1", "peer2", "peer3")
IDENTITIES = {name: Identity.generate(SeededSource(7), peer=name) for name in NAMES}
PUBLIC = {name: identity.public for name, identity in IDENTITIES.items()}
MALLORY = Identity.generate(SeededSource(7), peer="mallory")
RING = ["topology.kind=ring", "topology.peers=4"]
ROOT = "p2pfl/v1/test/peer"
PREFIX = 13
"""Bytes of a sealed message in the clear."""


class Middle(MemoryTransport):
    """A broker that reads everything, and publishes what ``meddle`` makes of it."""

    def __init__(self, meddle=None):
        super().__init__()
        self.meddle = meddle or (lambda topic, data, retain: [(topic, data, retain)])
        self.seen = []
        self.inject = self._broker.publish
        self._broker.publish = self._publish

    def _publish(self, topic, data, *, retain):
        self.seen.append((topic, data, retain))
        for place, payload, kept in self.meddle(topic, data, retain):
            self.inject(place, payload, retain=kept)


def roster():
    return Roster(PUBLIC)


async def together(experiment, transport, *, trust=roster, life=100, source=None, prepare=None, names=NAMES):
    """Run peers, all four by default, with their identities; each ends in what became of it, or its error."""
    notices = []

    async def one(index, name):
        records = []
        peer = Peer(
            name,
            plan(experiment, only=[name]),
            transport=transport,
            source=source,
            identity=IDENTITIES[name],
            trust=trust(),
            incarnation=life + index,
            observe=lambda record, _: records.append(record),
            notice=notices.append,
        )
        async with peer:
            if prepare is not None:
                prepare(peer)
            return Ended(peer, await peer.run(), records)

    async with asyncio.timeout(60):
        ended = await asyncio.gather(*(one(*each) for each in enumerate(names)), return_exceptions=True)
    return dict(zip(names, ended, strict=True)), notices


def run(experiment, transport=None, **options):
    return asyncio.run(together(experiment, transport or MemoryTransport(), **options))[0]


@pytest.fixture(scope="module")
def experiment():
    return read(SMALL, changes=RING)


@pytest.fixture(scope="module")
def undisturbed(experiment):
    return {name: end.state.rows for name, end in run(experiment).items()}


def assert_no_effect(ended, undisturbed):
    for name, end in ended.items():
        if isinstance(end, BaseException):
            raise end
        assert torch.equal(end.state.rows, undisturbed[name])
        assert not any(record.missed for record in end.records)


def decode_plain(data):
    return None if data[:1] == bytes([SEALED]) else decode(data)


def is_chunk(data):
    return data[:1] == bytes([SEALED]) and data[1:5] != CONTROL.to_bytes(4, "little")


# ---------------------------------------------------------------------- a broker in the middle


def other_key(hello):
    return msgspec.structs.replace(hello, key=bytes(31) + b"\x09")


def other_identity(hello):
    return other_key(hello).signed(MALLORY, swarm="test")


def no_signature(hello):
    return msgspec.structs.replace(other_key(hello), signature=b"")


TRUSTS = {"roster": roster, "known keys": lambda: FirstUse(PUBLIC)}


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=TRUSTS)
@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (other_key, 'a hello signed by "peer1"'),
        (no_signature, 'a hello signed by "peer1"'),
        (other_identity, f'"peer1" with the key {IDENTITIES["peer1"].fingerprint}'),
    ],
)
def test_a_broker_that_puts_its_own_key_into_a_hello_is_told_by_name_and_hears_nothing(trust, forge, why):
    def meddle(topic, data, retain):
        if topic == f"{ROOT}/peer1/state" and data:
            data = encode(forge(decode(data)))
        return [(topic, data, retain)]

    transport = Middle(meddle)
    ended = run(read(SMALL, changes=[*RING, "transport.gather=0.5"]), transport, trust=trust)
    for name in ("peer0", "peer2"):
        assert isinstance(ended[name], PeerError)
        assert why in str(ended[name])
    owners = {topic.split("/")[4] for topic, data, _ in transport.seen if is_chunk(data)}
    assert owners <= {"peer3"}  # whose own neighbours are right
    handed = {topic for topic, data, _ in transport.seen if data and isinstance(decode_plain(data), Key)}
    assert not {f"{ROOT}/peer1/in/{name}" for name in ("peer0", "peer2")} & handed


def test_without_an_earlier_meeting_the_first_key_is_trusted_and_people_are_told(experiment, undisturbed):
    ended, notices = asyncio.run(together(experiment, MemoryTransport(), trust=FirstUse))
    assert_no_effect(ended, undisturbed)
    for name in NAMES:
        told = [notice.sentence for notice in notices if notice.peer == name]
        assert len(told) == 2
        assert all(sentence.startswith("TRUSTED ON FIRST USE") for sentence in told)


# ---------------------------------------------------------------------- a broker that reads


def chi_square(data):
    """Of the bytes against the uniform distribution; 255 degrees of freedom."""
    expected = len(data) / 256
    return sum((count - expected) ** 2 / expected for count in Counter(data).values())


def test_a_broker_that_reads_everything_sees_no_row_mass_score_or_round(experiment, monkeypatch):
    rows, masses = [], set()

    def spying(row, **fields):
        head, numbers = encode_row(row, **fields)
        rows.append(bytes(numbers))
        masses.add(fields["mass"])
        return head, numbers

    monkeypatch.setattr("p2pfl.peer.live.encode_row", spying)
    transport = Middle()
    ended = run(experiment, transport, source=SeededSource(11))  # the same bytes in every run
    everything = b"".join(data for _, data, _ in transport.seen)

    numbers = {row[at : at + 8] for row in rows for at in range(0, len(row), 8)} - {bytes(8)}
    scores = {score for end in ended.values() for record in end.records for score in record.scores.values()}
    assert len(rows) == 4 * 3 * 3
    assert len(numbers) > 1000
    assert all(number not in everything for number in numbers)
    for value in (masses | scores) - {None, 0.0, 1.0}:
        for shape in ("<d", ">d"):
            assert struct.pack(shape, value) not in everything

    sealed = [data for _, data, _ in transport.seen if data[:1] == bytes([SEALED])]
    plain = {type(decode(data)) for _, data, _ in transport.seen if data and data[:1] != bytes([SEALED])}
    assert plain == {Hello, Claim, Key}  # none of which knows of rounds
    hidden = b"".join(data[PREFIX:] for data in sealed)
    spread = 6 * math.sqrt(2 * 255)
    assert len(zlib.compress(hidden, 9)) > 0.99 * len(hidden)
    assert chi_square(hidden) < 255 + spread
    assert chi_square(b"".join(rows)) > 255 + spread  # the measure tells rows from noise


# ---------------------------------------------------------------------- a neighbour that speaks for another


def test_a_row_that_a_neighbour_seals_in_anothers_name_is_refused_by_its_signature(experiment):
    peers, forged = {}, []

    def meddle(topic, data, retain):
        if topic == f"{ROOT}/peer1/pub/0" and is_chunk(data) and not forged:
            forged.append(True)
            liar, victim = peers["peer0"], peers["peer1"]
            size = victim.plan.learner.layout.size
            row = torch.full((size,), 1e6, dtype=torch.float64)
            as_victim = Signature.of("test", "peer1", victim.me.incarnation, public=PUBLIC["peer1"])
            trailer = Signature(as_victim.context, PUBLIC["peer1"], liar.identity)
            message = b"".join(pieces(encode_row(row, round=0, step=0, mass=1.0), size=10**6, trailer=trailer))
            chunk = Chunk(victim.me.incarnation, 0, 0, 0, 0, len(message), memoryview(message))
            stolen = liar.link.line.envelope._keys["peer1"]
            pretender = Envelope("peer1", victim.me.incarnation, liar.key, stolen, "")
            return [(topic, pretender.seal(chunk), False), (topic, data, retain)]
        return [(topic, data, retain)]

    ended = run(experiment, Middle(meddle), prepare=lambda peer: peers.setdefault(peer.name, peer))
    assert forged
    for name in ("peer0", "peer2"):
        assert ended[name].peer.link.refused["peer1: not a row"] == 1
    for end in ended.values():
        assert end.records[-1].round == 2
        assert end.state.rows.abs().max() < 100


# ---------------------------------------------------------------------- replays, reordering, duplication


def test_every_message_of_this_run_may_come_again_at_any_time(experiment, undisturbed):
    transport = Middle()
    chance = random.Random(5)

    def again(topic, data, retain):
        earlier = [chance.choice(transport.seen) for _ in range(3)]
        return [(topic, data, retain), *((place, payload, False) for place, payload, _ in earlier if payload)]

    transport.meddle = again
    ended = run(experiment, transport)
    assert_no_effect(ended, undisturbed)
    assert sum(end.peer.link.refused["peer1: not a message"] for end in ended.values())


EARLIER = {
    "an earlier life": [],
    "another experiment of that name": ["seed=4"],
    "another schedule": ["topology.kind=one_peer_exponential"],
}


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=TRUSTS)
@pytest.mark.parametrize("changes", EARLIER.values(), ids=EARLIER)
def test_what_was_recorded_in_an_earlier_run_has_no_effect(experiment, undisturbed, changes, trust):
    earlier = Middle()
    run(read(SMALL, changes=[*RING, *changes]), earlier, trust=trust)
    tape = [each for each in earlier.seen if each[1]]
    transport = Middle()
    hellos = [each for each in tape if each[0].endswith("/state")]
    for topic, data, _ in hellos:
        transport.inject(topic, data, retain=True)
    rest = iter(tape * 2)

    def replay(topic, data, retain):
        before = [next(rest, None) for _ in range(4)]
        late = [(place, payload, False) for place, payload, _ in filter(None, before)]
        if topic.endswith("/state"):  # first the hellos of the earlier life, then that of this one
            late = [(place, payload, False) for place, payload, _ in hellos] + late
        return [*late, (topic, data, retain)]

    transport.meddle = replay
    assert_no_effect(run(experiment, transport, trust=trust, life=200), undisturbed)


def test_messages_that_pass_each_other_or_come_twice_have_no_effect(experiment, undisturbed):
    chance, held = random.Random(6), []

    def shuffle(topic, data, retain):
        owner = topic.split("/")[4]
        if chance.random() < 0.2 and not topic.endswith(f"{owner}/in/{owner}"):  # but for claims, which are timed
            held.append((topic, data, retain))
            return []
        out = [(topic, data, retain)] * chance.choice([1, 1, 2]) + held
        held.clear()
        return out

    transport = Middle(shuffle)
    assert_no_effect(run(experiment, transport), undisturbed)
    places = {}
    for topic, data, _ in transport.seen:
        if data[:1] == bytes([SEALED]):  # who seals: the owner of a stream, or who writes into an inbox
            sender = topic.rsplit("/in/")[-1] if "/in/" in topic else topic.split("/")[4]
            assert places.setdefault((sender, data[:PREFIX]), data) == data  # no nonce is used for two messages


def test_an_absent_peer_that_an_earlier_hello_feigns_is_no_partner_in_masks():
    changes = ["topology.kind=complete", "topology.peers=4", "transport.gather=1.0", "transport.quorum=0.5"]
    changes += ["privacy.mode=pairwise", "privacy.mask=100.0", "gossip.steps=20", "rounds=1"]
    experiment = read(SMALL, changes=changes)
    earlier, transport = Middle(), Middle()
    run(experiment, earlier)
    for topic, data, _ in earlier.seen:
        if (
            topic.startswith(f"{ROOT}/peer3/")
            and data
            and (not topic.endswith("/state") or decode(data).status == "up")
        ):
            transport.inject(topic, data, retain=True)
    ended = run(experiment, transport, life=200, names=NAMES[:3])
    for end in ended.values():
        assert end.records[0].missed == ["peer3"] * 20
        assert end.state.rows.abs().max() < 10  # masks of deviation 100 have cancelled


def test_what_a_peer_tells_one_neighbour_may_be_led_to_another(experiment, undisturbed):
    chance = random.Random(8)

    def lead(topic, data, retain):
        out = [(topic, data, retain)]
        if "/in/" in topic and chance.random() < 0.5:
            sender = topic.rsplit("/", 1)[1]
            out += [(f"{ROOT}/{name}/in/{sender}", data, False) for name in NAMES]
        return out

    assert_no_effect(run(experiment, Middle(lead)), undisturbed)


# ---------------------------------------------------------------------- strangers


def test_a_stranger_that_overwrites_the_hellos_that_the_broker_keeps_delays_at_most(experiment, undisturbed):
    overwritten = Counter()

    def overwrite(topic, data, retain):
        out = [(topic, data, retain)]
        if retain and data and not overwritten[topic]:
            overwritten[topic] += 1
            out.append((topic, b"junk", True))
        return out

    async def main():
        transport = Middle(overwrite)
        first = asyncio.create_task(together(experiment, transport, names=NAMES[:1]))
        while not overwritten:  # noqa: ASYNC110 (turns of the loop; nothing tells of this)
            await asyncio.sleep(0)
        others, _ = await together(experiment, transport, names=NAMES[1:])
        return others | (await first)[0]

    assert_no_effect(asyncio.run(main()), undisturbed)
    assert len(overwritten) == 4


def junk(name, life, neighbour):
    del name, life, neighbour
    yield from (b"xx", bytes([SEALED]) + random.Random(1).randbytes(64), random.Random(2).randbytes(200_000))
    yield bytes([SEALED]) + random.Random(3).randbytes(200_000)
    yield b"\x02" + encode(Claim(3))[1:]  # another version


def under_a_key_of_its_own(name, life, neighbour):
    source = SecretSource()
    stranger = Envelope(name, life, None, SenderKey.draw(source, peer="mallory"), "")
    yield stranger.seal(Chunk(life, 0, 0, 0, 0, 1000, memoryview(bytes(1000))))
    yield from map(stranger.seal, control(life, neighbour))


def control(life, neighbour):
    return Ack(neighbour, 0, 1000, 2000), Pulse(life, 0, 1000, 2000, 50, 0, waiting=True), Ack(life, 0, 0, 0, [0, 1, 2])


def in_the_clear(name, life, neighbour):
    del name
    yield encode(Chunk(life, 0, 0, 0, 0, 1000, memoryview(bytes(1000))))
    yield from map(encode, control(life, neighbour))


def goodbyes(name, life, neighbour):
    del neighbour
    for status in ("dead", "left", "up"):
        for at in (life, life + 1):
            yield encode(Hello(name, at, status, key=b"k" * 32))
            yield encode(Hello(name, at, status, key=b"k" * 32).signed(MALLORY, swarm="test"))


def introductions(name, life, neighbour):
    del neighbour
    yield encode(Claim(life))
    yield encode(Claim(life + 1, b"k" * 32))
    yield encode(Key(life, bytes(48), have=True, known=True))
    yield encode(Hello(name, 1, "up", key=b"k" * 32, answers=b"k" * 32).signed(MALLORY, swarm="test"))


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
        link = end.peer.link
        assert sum(link.refused.values())
        assert len(link.refused) <= 3 * 10  # sentences of ours, about two neighbours and strangers
        assert link.most_held <= before[name].peer.link.most_held
        assert set(link.inboxes) == set(before[name].peer.link.inboxes)
        assert set(link.line.envelope._keys) == set(link.line.envelope._secrets) == link.membership.neighbours


@pytest.fixture(scope="module")
def calm(experiment):
    return run(experiment)


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words.__name__)
def test_a_stranger_changes_nothing_whatever_it_says(experiment, undisturbed, calm, words):
    ended = asyncio.run(disturbed(experiment, MemoryTransport(), words))
    assert_no_effect(ended, undisturbed)
    assert_bounded(ended, calm)


@pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")
def test_a_stranger_on_a_real_broker_changes_nothing(experiment, undisturbed, calm):
    def everything(*about):
        for words in WORDS:
            yield from words(*about)

    with embedded(kind="mosquitto") as broker:
        ended = asyncio.run(disturbed(experiment, connect(experiment, url=broker.url), everything))
    assert_no_effect(ended, undisturbed)
    assert_bounded(ended, calm)


# ---------------------------------------------------------------------- two rows for one exchange

ADA, EVE = (Identity.generate(SeededSource(7), peer=peer) for peer in ("ada", "eve"))


def said(value, *, round=3, step=0, identity=ADA, life=7):
    """Head, row and what was signed."""
    trailer = Signature.of("swarm", "ada", life, public=identity.public, identity=identity)
    parts = encode_row(torch.full((5,), float(value)), round=round, step=step)
    return read_row(b"".join(pieces(parts, size=1000, trailer=trailer)), trailer=trailer)


@pytest.fixture
def mailbox():
    box = Mailbox()
    box.know("ada")
    box.open((3, 0), ["ada"])
    return box


def deliver(box, *told):
    head, row, signed = told
    return box.deliver("ada", head, row, said=signed)


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
    assert proof.exchange == (3, 0)
    assert proof.holds(ADA.public)
    assert not proof.holds(EVE.public)
    assert mailbox.take("ada") is None  # neither is used any more
    assert deliver(mailbox, *said(3)) == "stranger"
    assert not mailbox.may_send("ada")


def test_rows_that_come_late_count_too(mailbox):
    assert deliver(mailbox, *said(1, round=2)) == "late"
    assert deliver(mailbox, *said(2, round=2)) == "equivocation"


def test_what_was_signed_is_remembered_for_the_latest_exchanges_only(mailbox):
    for round in range(3, 3 + 5 * WINDOW):
        deliver(mailbox, *said(1, round=round))
    assert len(mailbox._said["ada"]) == WINDOW
    mailbox.open((100, 0), ["ada"])
    assert deliver(mailbox, *said(2, round=3)) == "late"  # forgotten
    assert deliver(mailbox, *said(2, round=2 + 5 * WINDOW)) == "equivocation"


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
        Proof(told(1), Said(told(2).statement, told(1).signature)),
        Proof(told(1), Said(told(1).statement, told(2).signature)),
        Proof(Said(b"", b""), Said(b"x", b"")),
        Proof(Said(b"\xff" * 200, b""), told(1)),
    ],
    ids=["once", "rounds", "steps", "lives", "another", "swapped", "unsigned", "nothing", "junk"],
)
def test_what_convicts_nobody_does_not_hold(proof):
    assert not proof.holds(ADA.public)
    assert not Proof(proof.other, proof.one).holds(ADA.public)


def test_a_peer_that_shows_two_rows_is_excluded_and_the_proof_is_kept():
    experiment = read(SMALL, changes=[*RING, "transport.patience=2.0", "rounds=4"])

    def prepare(peer):
        if peer.name != "peer1":
            return
        honest = peer.link.send

        async def lying(parts, *, phase):
            await honest(parts, phase=phase)
            if peer.mailbox.exchange == (1, 0):
                head, numbers = parts
                await honest([head, memoryview(bytes(len(numbers)))], phase=phase)

        peer.link.send = lying

    ended, notices = asyncio.run(together(experiment, MemoryTransport(), prepare=prepare))
    for name in ("peer0", "peer2"):
        end = ended[name]
        proof = end.peer.mailbox.proofs["peer1"]
        assert proof.exchange == (1, 0)
        assert proof.holds(PUBLIC["peer1"])
        assert proof.one.context == "test/peer1/65/"
        assert end.peer.link.refused["peer1: equivocation"] == 1
        assert "peer1" not in end.peer.membership.present
        assert not any(sender == "peer1" for sender, _ in end.peer.link.inboxes)
        assert end.records[-1].round == 3
        assert end.records[-1].missed == ["peer1"] * 3
        assert torch.isfinite(end.state.rows).all()
        (accusation,) = [notice.sentence for notice in notices if notice.peer == name and "EXCLUDED" in notice.sentence]
        assert accusation.startswith(f'EXCLUDED: "peer1" with the key {IDENTITIES["peer1"].fingerprint}')
        assert "step 0 of round 1" in accusation
    assert not ended["peer3"].peer.mailbox.proofs
