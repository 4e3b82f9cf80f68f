"""``p2pfl doctor`` names what is wrong with the other peers, by their announcements on a real mosquitto."""

import asyncio
import time

import pytest

import p2pfl
from examined import sole
from p2pfl.experiment import plan, read
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import VERSION, encode
from p2pfl.network.transport import Access, opened
from p2pfl.network.transport.login import login
from p2pfl.privacy.keys import Identity, Roster, SecretSource
from waiting import DEADLINE

pytestmark = pytest.mark.slow

ROOT = "p2pfl/v1/small/peer"


async def announce(site, data):
    """Have the broker retain an announcement of peer1."""
    shown = login(site.broker / "credentials", peer="peer1", environment={})
    access = Access(user=shown.user, password=shown.password, ca=site.broker / "broker.pem", version=5)
    async with asyncio.timeout(DEADLINE), opened(site.url, access).join("peer1-announces") as channel:
        await channel.publish(f"{ROOT}/peer1/state", data, retain=True)


def announcement(site, *, incarnation=None, status="up", **changes):
    """An announcement that peer1 has signed."""
    resolved = plan(read(site.folder / "small.toml", changes=site.changes), only=["peer1"])
    facts = resolved.facts | {"roster": Roster.read(site.folder / "roster.toml").digest} | changes
    number = time.time_ns() if incarnation is None else incarnation
    said = Announcement("peer1", number, status, facts, version=p2pfl.__version__)
    return said.sign(site.identity("peer1"), swarm="small")


def judged(site, data):
    """Return the findings of the doctor with this announcement of peer1 on the broker."""
    with site.listening():
        asyncio.run(announce(site, data))
        return site.examine()


def test_a_peer_with_another_experiment_is_named_with_the_key_that_differs(site):
    found = sole(judged(site, encode(announcement(site, rounds="7"))), "peer peer1")
    assert found.status == "problem"
    assert '"peer1" runs another experiment (rounds = 7 there and 2 here)' in found.message


def test_a_peer_with_another_wire_format_is_named(site):
    found = sole(judged(site, bytes([VERSION + 1]) + encode(announcement(site))[1:]), "peer peer1")
    assert found.status == "problem"
    assert f"uses version {VERSION + 1} of the wire format, and this peer uses version {VERSION}" in found.message


def test_a_peer_that_is_announced_and_silent_is_named(site):
    found = sole(judged(site, encode(announcement(site))), "peer peer1")
    assert found.status == "warning"
    assert "is announced as up and sent nothing" in found.message


@pytest.mark.parametrize(("status", "how"), [("left", "said goodbye"), ("dead", "lost its connection")])
def test_a_peer_that_is_gone_is_named(site, status, how):
    found = sole(judged(site, encode(announcement(site, status=status))), "peer peer1")
    assert (found.status, how in found.message) == ("warning", True)


def test_a_peer_with_another_key_than_the_roster_is_named(site):
    other = Identity.generate(SecretSource(), peer="peer1")
    forged = announcement(site).sign(other, swarm="small")
    found = sole(judged(site, encode(forged)), "peer peer1")
    assert found.status == "problem"
    assert f'"peer1" presents the key {other.fingerprint} instead of' in found.message


def test_an_announcement_that_nobody_signed_is_named(site):
    found = sole(judged(site, encode(Announcement("peer1", 1, "up"))), "peer peer1")
    assert "is not signed by it" in found.message


def test_a_clock_an_hour_behind_that_of_a_neighbour_is_named(site):
    late = announcement(site, incarnation=time.time_ns() + 3600 * 10**9)
    clock = sole(judged(site, encode(late)), "clock")
    assert clock.status == "warning"
    assert "is at least 60 min behind the last start of peer1" in clock.message


def test_a_peer_with_another_roster_is_named_by_the_digests(site):
    found = sole(judged(site, encode(announcement(site, roster="f724686f1c3ab122"))), "peer peer1")
    digest = Roster.read(site.folder / "roster.toml").fingerprint
    assert found.message == (
        f'"peer1" has another roster (digest f724 686f 1c3a b122 there, {digest} here); give all peers the same roster '
        "file"
    )
