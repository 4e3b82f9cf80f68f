"""Peers whose clock is behind: which number their start gets, and that their neighbours take them in."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import PeerError, ResumeError
from p2pfl.experiment import plan, read
from p2pfl.network.peer.joining import incarnation
from p2pfl.network.peer.joining.incarnation import MAX_LEAD, SECOND, fetch_announcement, number_next_start, number_start
from p2pfl.network.peer.launch import worker as child
from p2pfl.network.peer.storage.credentials import Credentials
from p2pfl.network.peer.updates import Done
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.broker import embedded
from p2pfl.privacy.keys import FirstUse, Identity, Roster, SeededSource
from p2pfl.results.notices.kinds import AnnouncementAhead, ClockBehind
from restarts import HeldTraining, RestartablePeers
from swarms import SMALL
from waiting import DEADLINE, wait_until

ADA, OTHER = (Identity.generate(SeededSource(seed), peer="ada") for seed in (7, 8))
BOB = Identity.generate(SeededSource(9), peer="bob")
ROSTER = Roster({"ada": ADA.public, "bob": BOB.public})
HOUR = 3600 * SECOND
NOW = 1_800_000_000 * SECOND
"""In 2027."""


def said(number, by=ADA, *, peer="ada", swarm="clinic", status="dead"):
    return Announcement(peer, number, status, key=b"k" * 32).sign(by, swarm=swarm)


def start(retained=None, *, clock=NOW, journal=None, trust=None, charged=False):
    whose = {"identity": ADA, "trust": FirstUse() if trust is None else trust, "swarm": "clinic", "peer": "ada"}
    return number_start(clock=clock, journal=journal, announced=retained, charged=charged, **whose)


@pytest.mark.parametrize("trust", [FirstUse(), ROSTER], ids=["first use", "roster"])
def test_a_start_is_numbered_by_a_clock_that_is_right(trust):
    for retained in (None, said(NOW - HOUR), said(NOW - 1)):
        assert start(retained, journal=NOW - HOUR, trust=trust) == incarnation.Start(NOW)


@pytest.mark.parametrize("status", ["up", "left", "dead"])
@pytest.mark.parametrize("trust", [FirstUse(), ROSTER], ids=["first use", "roster"])
def test_where_the_clock_is_behind_a_start_is_numbered_above_the_last_one_that_the_broker_retains(trust, status):
    found = start(said(NOW + HOUR, status=status), trust=trust)
    assert found.incarnation == NOW + HOUR + 1
    assert found.warning == ClockBehind(peer="ada", seconds=3600)


def test_where_the_clock_is_behind_a_start_is_numbered_above_the_last_one_of_the_journal():
    for retained in (None, said(NOW + HOUR), said(NOW + HOUR, OTHER)):
        found = start(retained, journal=NOW + 2 * HOUR)
        assert found.incarnation == NOW + 2 * HOUR + 1
        assert found.warning == ClockBehind(peer="ada", seconds=7200)


def test_a_journal_from_a_backup_is_refused_once_the_peer_has_started_after_it_if_it_has_spent_anything():
    for last in (NOW - 1, NOW + HOUR):
        with pytest.raises(
            ResumeError, match=r'directory of "ada" is a copy from before its last start.*resume the newest'
        ):
            start(said(last), journal=NOW - HOUR, charged=True)
    assert start(said(NOW - HOUR), journal=NOW - HOUR, charged=True) == incarnation.Start(NOW)
    assert start(said(NOW - 1, OTHER), journal=NOW - HOUR, charged=True) == incarnation.Start(NOW)


def test_a_clock_that_is_behind_by_less_than_a_second_is_not_worth_a_warning():
    assert start(said(NOW + SECOND // 2)) == incarnation.Start(NOW + SECOND // 2 + 1)
    assert start(said(NOW)) == incarnation.Start(NOW + 1)


def test_without_a_roster_a_start_is_numbered_above_an_announcement_under_another_key_which_is_named():
    found = start(said(NOW + HOUR, OTHER))
    assert found.incarnation == NOW + HOUR + 1
    assert found.warning == ClockBehind(peer="ada", seconds=3600, key=OTHER.fingerprint)


@pytest.mark.parametrize(
    ("retained", "trust"),
    [
        (said(NOW + HOUR, OTHER), ROSTER),
        (said(NOW + HOUR, swarm="another"), FirstUse()),
        (said(NOW + HOUR, BOB, peer="bob"), FirstUse()),
        (Announcement("ada", NOW + HOUR, "dead", identity=ADA.public), FirstUse()),
    ],
    ids=["another key than the roster's", "another swarm", "another peer", "no signature"],
)
def test_an_announcement_that_neighbours_refuse_counts_for_nothing(retained, trust):
    assert start(retained, trust=trust) == incarnation.Start(NOW)


def test_an_own_announcement_far_ahead_of_the_clock_is_an_error_that_says_what_to_do():
    assert start(said(NOW + MAX_LEAD)).incarnation == NOW + MAX_LEAD + 1
    with pytest.raises(PeerError) as caught:
        start(said(NOW + MAX_LEAD + 1))
    assert str(caught.value) == (
        'the broker retains an announcement of peer "ada" that is more than 80 years ahead of the clock of this '
        "device; set the clock, or clear the retained message on p2pfl/v1/clinic/peer/ada/state"
    )


def test_an_announcement_under_another_key_far_ahead_of_the_clock_locks_nobody_out():
    found = start(said(2**62, OTHER))
    assert found.incarnation == NOW
    assert found.warning == AnnouncementAhead(peer="ada", key=OTHER.fingerprint, topic="p2pfl/v1/clinic/peer/ada/state")


def test_a_clock_that_begins_in_1970_is_behind_by_less_than_the_bound():
    assert start(said(NOW), clock=5 * SECOND).incarnation == NOW + 1


@given(st.lists(st.integers(0, 2**63 - 1), max_size=5), st.booleans())
def test_nobody_pushes_the_number_of_a_peer_beyond_the_bound_however_often_it_starts(pushed, kept):
    journal = None
    for number in pushed:
        found = start(said(number, OTHER), journal=journal)
        assert found.incarnation > (journal or 0)
        assert found.incarnation <= NOW + MAX_LEAD + len(pushed)
        journal = found.incarnation if kept else None


# ---------------------------------------------------------------------- what the broker retains

ROOT = "p2pfl/v1/clinic/peer/ada"


def asked(transport):
    return fetch_announcement(transport, swarm="clinic", peer="ada", client="look", source=SeededSource(1))


async def test_what_the_broker_retains_under_a_name_is_found_and_no_connection_is_left():
    async with asyncio.timeout(DEADLINE):
        broker = MemoryTransport()
        async with broker.join("bob") as bob:
            assert await asked(broker) is None
            await bob.publish(f"{ROOT}/state", encode(said(5)), retain=True)
            assert await asked(broker) == said(5)
            await bob.publish(f"{ROOT}/state", b"no message", retain=True)
            assert await asked(broker) is None
            assert set(broker._broker.channels) == {"bob"}


async def test_a_claim_that_the_broker_drops_is_repeated_and_one_that_never_returns_is_given_up(monkeypatch):
    monkeypatch.setattr(incarnation, "CLAIM_INTERVAL", 0.01)

    async def scenario(drops):
        dropped = []

        def lose(_client, message):
            if message.topic.endswith("/in/ada") and len(dropped) < drops:
                dropped.append(message)
                return True
            return False

        broker = MemoryTransport(lose=lose)
        async with broker.join("bob") as bob:
            await bob.publish(f"{ROOT}/state", encode(said(5)), retain=True)
            assert await asked(broker) == said(5)
        return len(dropped)

    assert await asyncio.wait_for(scenario(2), DEADLINE) == 2
    assert await asyncio.wait_for(scenario(100), DEADLINE) == incarnation.MAX_CLAIMS


# ---------------------------------------------------------------------- peers that start again

RING = ["topology.kind=ring", "topology.peers=4", "rounds=5", "gossip.steps=2", "transport.gather=20"]


async def behind(lives, name, *, keys=1):
    """Number the start of a peer whose clock is an hour behind."""
    identity = Identity.generate(SeededSource(keys), peer=name)
    how = {"identity": identity, "trust": FirstUse(), "journal": None, "source": SeededSource(1)}
    return await number_next_start(lives.transport, swarm="test", peer=name, clock=lambda: NOW - HOUR, **how)


@pytest.mark.slow
@pytest.mark.parametrize("silently", [False, True], ids=["announced as dead", "announced as up"])
async def test_a_peer_that_starts_again_with_its_clock_an_hour_behind_joins_the_others(tmp_path, silently):
    experiment = read(SMALL, changes=RING)

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        lives.count = NOW
        lives.start()
        others = [HeldTraining(lives.now[name], round=2) for name in ("peer0", "peer2", "peer3")]
        await asyncio.gather(*(each.reached.wait() for each in others))
        await lives.kill("peer1", silently=silently)
        found = await behind(lives, "peer1")
        lives.records["peer1"] = []
        lives.start("peer1", incarnation=found.incarnation)
        await lives.until(lambda now: now["peer1"].phase == "learning")
        for each in others:
            each.go.set()
        ended, _ = await lives.end(), lives.notices
    assert isinstance(found.warning, ClockBehind)
    assert (found.warning.peer, found.warning.seconds) == ("peer1", 3600)
    assert ended["peer1"].records[-1].round == 4
    assert ended["peer0"].peer.membership.up["peer1"].incarnation == found.incarnation
    assert "peer1" not in ended["peer0"].records[-1].missed


@pytest.mark.slow
async def test_peers_with_fresh_keys_come_in_although_the_clock_of_one_is_an_hour_behind(tmp_path):
    experiment = read(SMALL, changes=RING)

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        lives.count = NOW
        lives.start()
        await lives.until(lambda now: all(peer.phase == "learning" for peer in now.values()))
        await lives.kill("peer1", silently=True)  # so that the broker keeps its last announcement
        await lives.kill("peer0", "peer2", "peer3")
        lives.records |= {name: [] for name in lives.names}
        lives.start("peer0", "peer2", "peer3", keys=2)
        found = await behind(lives, "peer1", keys=2)
        lives.start("peer1", keys=2, incarnation=found.incarnation)
        ended = await lives.end()
    for end in ended.values():
        assert [record.round for record in end.records] == list(range(5))
        assert not any(record.missed for record in end.records)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [(NOW, NOW - HOUR), (NOW, 0), (NOW + 30 * 365 * 24 * HOUR, NOW)],
    ids=["an hour behind", "in 1970", "once 30 years ahead"],
)
async def test_a_peer_of_a_device_whose_clock_is_behind_its_last_start_says_so_and_joins(tmp_path, before, after):
    names = ("peer0", "peer1")
    identities = {name: Identity.generate(SeededSource(1), peer=name) for name in names}
    roster = Roster({name: identity.public for name, identity in identities.items()})
    events = []

    async def main(url):
        changes = [f"transport.broker={url}", "topology.kind=path", "topology.peers=2", "transport.gather=20"]
        experiment = read(SMALL, changes=changes)

        def begin(name, folder, clock):
            owned = Credentials(identities[name], roster)
            (tmp_path / folder / "peers").mkdir(parents=True)
            how = {"urls": [url], "folder": tmp_path / folder, "owned": owned, "notify": events.append}
            return asyncio.create_task(child.live(plan(experiment, only=[name]), name, clock=lambda: clock, **how))

        def phase(name):
            return [event.phase for event in events if isinstance(event, child.Progress) and event.peer == name]

        first = begin("peer1", "first", before)
        await wait_until(lambda: "gathering" in phase("peer1") or first.done(), "peer1 gathers", every=0.001)
        first.cancel()
        await asyncio.wait({first})
        await asyncio.gather(begin("peer0", "others", NOW), begin("peer1", "second", after))

    with embedded() as broker:
        await asyncio.wait_for(main(broker.url), 60)
    assert ClockBehind(peer="peer1", seconds=round((before - after) / SECOND)) in events
    assert {event.peer for event in events if isinstance(event, Done)} == set(names)
