"""Attacks on live peers by the broker in the middle, by replays, and in another peer's name."""

import math
import random
import struct
import zlib
from collections import Counter

import msgspec
import pytest

from attacks import (
    MALLORY,
    NAMES,
    PREFIX,
    PUBLIC,
    RING,
    ROOT,
    Middle,
    assert_no_effect,
    decode_plain,
    is_chunk,
    roster,
    run,
    together,
)
from p2pfl.core.errors import PeerError
from p2pfl.experiment import read
from p2pfl.network.protocol.membership.refusals import NotSigned, NotTrusted, text
from p2pfl.network.protocol.wire.envelope import SEALED
from p2pfl.network.protocol.wire.messages import Announcement, Claim, Key
from p2pfl.network.protocol.wire.wire_codec import decode, encode, parts
from p2pfl.network.protocol.wire.wire_rows import encode_row
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import FirstUse, Identity, SeededSource
from p2pfl.results.notices.kinds import KeyTrusted
from swarms import SMALL

pytestmark = pytest.mark.slow

# ---------------------------------------------------------------------- a broker in the middle


def other_key(announcement):
    return msgspec.structs.replace(announcement, key=bytes(31) + b"\x09")


def other_identity(announcement):
    return other_key(announcement).sign(MALLORY, swarm="test")


def no_signature(announcement):
    return msgspec.structs.replace(other_key(announcement), signature=b"")


TRUSTS = {"roster": roster, "known keys": lambda: FirstUse(PUBLIC)}


@pytest.mark.parametrize("trust", TRUSTS.values(), ids=TRUSTS)
@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (other_key, NotSigned),
        (no_signature, NotSigned),
        (other_identity, NotTrusted),
    ],
)
async def test_a_broker_that_substitutes_its_own_key_is_reported_by_name_and_receives_nothing(trust, forge, why):
    def meddle(topic, data, retain):
        if topic == f"{ROOT}/peer1/state" and data:
            data = encode(forge(decode(data)))
        return [(topic, data, retain)]

    transport = Middle(meddle)
    ended = await run(read(SMALL, changes=[*RING, "transport.gather=0.5"]), transport, trust=trust)
    for name in ("peer0", "peer2"):
        assert isinstance(ended[name], PeerError)
        [refusal] = ended[name].refused
        assert isinstance(refusal, why)
        assert refusal.peer == "peer1"
        assert text(refusal) in str(ended[name])
    owners = {topic.split("/")[4] for topic, data, _ in transport.seen if is_chunk(data)}
    assert owners <= {"peer3"}  # whose own neighbours are right
    handed = {topic for topic, data, _ in transport.seen if data and isinstance(decode_plain(data), Key)}
    assert not {f"{ROOT}/peer1/in/{name}" for name in ("peer0", "peer2")} & handed


async def test_without_an_earlier_meeting_the_first_key_is_trusted_and_people_are_told(experiment, undisturbed):
    ended, notices = await together(experiment, MemoryTransport(), trust=FirstUse)
    assert_no_effect(ended, undisturbed)
    for name in NAMES:
        told = [notice for notice in notices if notice.peer == name]
        assert len(told) == 2
        assert all(isinstance(notice, KeyTrusted) for notice in told)


@pytest.mark.parametrize("status", ["up", "dead"])
async def test_what_a_broker_keeps_of_peers_that_were_killed_keeps_nobody_out_who_begins_anew(
    experiment, undisturbed, status
):
    transport = Middle()
    for number, name in enumerate(NAMES):
        former = Identity.generate(SeededSource(99), peer=name)
        announcement = Announcement(name, 1, status, {}, key=bytes([number + 1] * 32)).sign(former, swarm="test")
        transport.inject(f"{ROOT}/{name}/state", encode(announcement), retain=True)
    ended, notices = await together(experiment, transport, trust=FirstUse)
    assert_no_effect(ended, undisturbed)
    assert sum(isinstance(notice, KeyTrusted) for notice in notices) == 2 * len(NAMES)


# ---------------------------------------------------------------------- a broker that reads


def chi_square(data):
    """Of the bytes against the uniform distribution; 255 degrees of freedom."""
    expected = len(data) / 256
    return sum((count - expected) ** 2 / expected for count in Counter(data).values())


async def test_a_broker_that_reads_everything_sees_no_row_mass_score_or_round(experiment, monkeypatch):
    rows, masses = [], set()

    def spying(row, **fields):
        head, numbers = encode_row(row, **fields)
        rows.append(bytes(numbers))
        masses.add(fields["mass"])
        return head, numbers

    monkeypatch.setattr("p2pfl.network.peer.neighbourhoods.live.encode_row", spying)
    transport = Middle()
    ended = await run(experiment, transport, source=SeededSource(11))  # the same bytes in every run
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
    assert plain == {Announcement, Claim, Key}  # none of which knows of rounds
    split = [parts(data, prefix=PREFIX) for data in sealed]
    hidden = b"".join(bytes(each.tags) + bytes(each.ciphertext) for each in split)
    spread = 6 * math.sqrt(2 * 255)
    assert len(zlib.compress(hidden, 9)) > 0.99 * len(hidden)
    assert chi_square(hidden) < 255 + spread
    assert chi_square(b"".join(rows)) > 255 + spread  # the measure tells rows from noise


# ---------------------------------------------------------------------- replays, reordering, duplication


async def test_every_message_of_this_run_may_come_again_at_any_time(experiment, undisturbed):
    transport = Middle()
    chance = random.Random(5)

    def again(topic, data, retain):
        earlier = [chance.choice(transport.seen) for _ in range(3)]
        return [(topic, data, retain), *((place, payload, False) for place, payload, _ in earlier if payload)]

    transport.meddle = again
    ended = await run(experiment, transport)
    assert_no_effect(ended, undisturbed)
    assert sum(end.peer.session.shared.refused["peer1: not a message"] for end in ended.values())


EARLIER = {
    "an earlier life": [],
    "another experiment of that name": ["seed=4"],
    "another schedule": ["topology.kind=one_peer_exponential"],
}


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("trust", TRUSTS.values(), ids=TRUSTS)
@pytest.mark.parametrize("changes", EARLIER.values(), ids=EARLIER)
async def test_what_was_recorded_in_an_earlier_run_has_no_effect(experiment, undisturbed, changes, trust):
    earlier = Middle()
    await run(read(SMALL, changes=[*RING, *changes]), earlier, trust=trust)
    tape = [each for each in earlier.seen if each[1]]
    transport = Middle()
    announcements = [each for each in tape if each[0].endswith("/state")]
    for topic, data, _ in announcements:
        transport.inject(topic, data, retain=True)
    rest = iter(tape * 2)

    def replay(topic, data, retain):
        before = [next(rest, None) for _ in range(4)]
        late = [(place, payload, False) for place, payload, _ in filter(None, before)]
        if topic.endswith("/state"):  # first the announcements of the earlier life, then that of this one
            late = [(place, payload, False) for place, payload, _ in announcements] + late
        return [*late, (topic, data, retain)]

    transport.meddle = replay
    assert_no_effect(await run(experiment, transport, trust=trust, life=200), undisturbed)


async def test_messages_that_pass_each_other_or_come_twice_have_no_effect(experiment, undisturbed):
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
    assert_no_effect(await run(experiment, transport), undisturbed)
    places = {}
    for topic, data, _ in transport.seen:
        if data[:1] == bytes([SEALED]):  # who seals: the owner of a stream, or who writes into an inbox
            sender = topic.rsplit("/in/")[-1] if "/in/" in topic else topic.split("/")[4]
            found = parts(data, prefix=PREFIX)
            assert places.setdefault((sender, found.prefix), found.ciphertext) == found.ciphertext  # a nonce for each


async def test_an_absent_peer_that_an_earlier_hello_feigns_is_no_partner_in_masks():
    changes = ["topology.kind=complete", "topology.peers=4", "transport.gather={ seconds = 1.0, quorum = 0.5 }"]
    changes += [
        "privacy.mode=pairwise",
        "privacy.mask=100.0",
        "gossip.steps=20",
        "rounds=1",
        "privacy.departures=go_on",
    ]
    experiment = read(SMALL, changes=changes)
    earlier, transport = Middle(), Middle()
    await run(experiment, earlier)
    for topic, data, _ in earlier.seen:
        if (
            topic.startswith(f"{ROOT}/peer3/")
            and data
            and (not topic.endswith("/state") or decode(data).status == "up")
        ):
            transport.inject(topic, data, retain=True)
    ended = await run(experiment, transport, life=200, names=NAMES[:3])
    for end in ended.values():
        assert not end.records[0].missed  # peer3 is no member of the attempt that counts
        assert end.state.rows.abs().max() < 10  # masks of deviation 100 have cancelled


async def test_what_a_peer_tells_one_neighbour_may_be_led_to_another(experiment, undisturbed):
    chance = random.Random(8)

    def lead(topic, data, retain):
        out = [(topic, data, retain)]
        if "/in/" in topic and chance.random() < 0.5:
            sender = topic.rsplit("/", 1)[1]
            out += [(f"{ROOT}/{name}/in/{sender}", data, False) for name in NAMES]
        return out

    assert_no_effect(await run(experiment, Middle(lead)), undisturbed)
