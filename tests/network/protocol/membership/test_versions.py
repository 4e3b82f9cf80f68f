"""Peers of different releases learn together, and people are told."""

import asyncio
from operator import attrgetter

import msgspec
import pytest

import p2pfl
from p2pfl.core.errors import DecodeError, PeerError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.joining.resumption import Introductions
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.membership.refusals import NotSigned, OtherWireFormat, text
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import VERSION, decode, encode
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import FirstUse, Identity, SeededSource
from p2pfl.results.notices.kinds import VersionDiffers
from swarms import SMALL

OURS = p2pfl.__version__
SIGNED = 7
"""Where the signature of an announcement is, after its kind."""


async def learned(versions):
    """Return the notices of two peers that learn together."""
    experiment = read(SMALL, changes=["topology.kind=path", "topology.peers=2", "rounds=2"])
    transport, notices = MemoryTransport(), []

    async def one(name, version):
        peer = Peer(name, plan(experiment, only=[name]), transport=transport, notice=notices.append)
        assert peer.me.version == OURS
        peer.membership.me = msgspec.structs.replace(peer.me, version=version)
        async with peer:
            await peer.run()

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for name, version in versions.items():
            tasks.create_task(one(name, version))
    return sorted((each for each in notices if isinstance(each, VersionDiffers)), key=attrgetter("peer"))


@pytest.mark.slow
async def test_peers_of_different_releases_learn_together_and_both_report_the_other_once():
    assert await learned({"peer0": "0.1.0", "peer1": "0.2.0"}) == [
        VersionDiffers(peer="peer0", neighbour="peer1", theirs="0.2.0", ours="0.1.0"),
        VersionDiffers(peer="peer1", neighbour="peer0", theirs="0.1.0", ours="0.2.0"),
    ]


@pytest.mark.slow
async def test_peers_of_one_release_report_no_difference():
    assert await learned({"peer0": OURS, "peer1": OURS}) == []


def test_what_a_hostile_peer_announces_as_its_version_is_escaped_where_it_is_printed():
    said = []
    membership = Membership(Announcement("ada", 1, "up", version=OURS), frozenset({"eve"}))
    introduce = Introductions(membership, said.append)
    membership.receive(Announcement("eve", 1, "up", version="1\n\x1b[2J\u202e\U0001f600'\""))
    introduce()
    introduce()
    assert len(said) == 1
    assert str(said[0]).isascii()
    assert str(said[0]).isprintable()
    assert r"1\n\x1b[2J\u202e\U0001f600" in said[0].theirs


def test_another_version_of_the_next_incarnation_is_reported_too():
    said = []
    membership = Membership(Announcement("ada", 1, "up", version=OURS), frozenset({"bob"}))
    introduce = Introductions(membership, said.append)
    for incarnation, version in enumerate(("0.0.9", OURS, "0.0.9", ""), start=1):
        membership.receive(Announcement("bob", incarnation, "up", version=version))
        introduce()
    assert [notice.theirs for notice in said] == ["0.0.9", "0.0.9", ""]


def test_a_version_that_is_too_long_is_refused_and_an_older_announcement_has_none():
    announcement = Announcement("ada", 1, "up", version="1" * 32)
    assert decode(encode(announcement)) == announcement
    with pytest.raises(DecodeError):
        decode(encode(msgspec.structs.replace(announcement, version="1" * 33)))
    assert came(["hello", "ada", 1, "up"]).version == ""


def came(fields):
    """An announcement of these fields as it is read from its bytes."""
    head = msgspec.msgpack.encode(fields)
    return decode(bytes([VERSION]) + len(head).to_bytes(2, "little") + head)


def announced(version, *, fields, identity):
    """Return the announcement of another release: fields of this one, cut off or followed by some that it adds."""
    ours = ["hello", *msgspec.structs.astuple(Announcement("bob", 1, "up", identity=identity.public, version=version))]
    theirs = [*ours, *range(fields)][: len(ours) + fields]
    theirs[SIGNED] = b""
    theirs[SIGNED] = identity.sign(b"clinic/" + msgspec.msgpack.encode(theirs), domain="hello")
    return theirs


@pytest.mark.parametrize(("fields", "version"), [(3, "9.0.0"), (0, "9.0.0"), (-1, "0.0.1"), (-2, "")])
def test_an_announcement_with_other_fields_is_genuine_and_the_other_version_is_named(fields, version):
    identity, said = Identity.generate(SeededSource(1), peer="bob"), []
    membership = Membership(Announcement("ada", 1, "up", version=OURS), frozenset({"bob"}), "clinic", FirstUse())
    assert membership.receive(came(announced(version, fields=fields, identity=identity)))
    membership.prove("bob")
    assert not membership.refused
    Introductions(membership, said.append)()
    assert said[-1:] == [VersionDiffers(peer="ada", neighbour="bob", theirs=version, ours=OURS)]


@pytest.mark.parametrize("place", [1, 2, 4, 13, 16])
def test_an_announcement_with_more_fields_of_which_one_was_changed_is_refused(place):
    identity = Identity.generate(SeededSource(1), peer="bob")
    membership = Membership(Announcement("ada", 1, "up", version=OURS), frozenset({"bob"}), "clinic", FirstUse())
    fields = announced("9.0.0", fields=3, identity=identity)
    fields[place] = {1: "bob", 2: 2, 4: {"seed": "2"}, 13: "9.0.1", 16: 7}[place]
    assert membership.receive(came(fields)) == (place == 1)  # the name was not changed


def test_a_changed_copy_of_an_announcement_is_verified_by_what_it_says_itself():
    identity = Identity.generate(SeededSource(1), peer="bob")
    genuine = came(announced("9.0.0", fields=1, identity=identity))
    assert genuine.authentic(swarm="clinic")
    assert not genuine.authentic(swarm="elsewhere")
    assert not msgspec.structs.replace(genuine, turn=1).authentic(swarm="clinic")


def test_an_announcement_whose_signature_does_not_fit_names_the_version_where_it_differs():
    identity = Identity.generate(SeededSource(1), peer="bob")
    membership = Membership(Announcement("ada", 1, "up", version="0.1.0"), frozenset({"bob"}), "clinic", FirstUse())
    for version, told in (("0.2.0", " (it runs p2pfl 0.2.0, this peer runs 0.1.0)"), ("0.1.0", "")):
        signed = Announcement("bob", 1, "up", version=version).sign(identity, swarm="elsewhere")
        assert not membership.receive(signed)
        assert membership.refused["bob"] == NotSigned("bob", theirs=version, ours="0.1.0")
        assert text(membership.refused["bob"]).startswith(f'the announcement of "bob" is not signed by it{told}; check')


@pytest.mark.parametrize("theirs", [1, 4, VERSION + 1])  # payloads that begin with 2, 3, 5 and 6 are sealed
async def test_a_peer_of_another_wire_format_is_refused_with_both_versions(theirs):
    """The broker retains the announcement of another release."""
    changes = ["topology.kind=path", "topology.peers=2", "transport.gather=0.2"]
    transport, experiment = MemoryTransport(), read(SMALL, changes=changes)

    async def main():
        async with asyncio.timeout(60), transport.join("older") as older:
            payload = bytes([theirs]) + encode(Announcement("peer1", 1, "up"))[1:]
            await older.publish("p2pfl/v1/test/peer/peer1/state", payload, retain=True)
            async with Peer("peer0", plan(experiment, only=["peer0"]), transport=transport) as peer:
                await peer.run()

    with pytest.raises(PeerError) as caught:
        await main()
    assert caught.value.refused == (OtherWireFormat("peer1", theirs=theirs, ours=VERSION),)
    said = f'"peer1" uses version {theirs} of the wire format, and this peer uses version {VERSION}; install one'
    assert said in str(caught.value)
