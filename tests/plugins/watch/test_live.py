"""An observer of a live swarm over the broker, in virtual time: what it sees, and what it costs."""

import asyncio
import contextlib
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from p2pfl.core.errors import TransportError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import peer_telemetry
from p2pfl.network.peer.launch.worker import live
from p2pfl.network.peer.storage.credentials import Credentials
from p2pfl.network.protocol.membership.audience import LEASE
from p2pfl.network.protocol.membership.observer_client import ObserverClient
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.network.virtual.timed_learner import Timed
from p2pfl.plugins.watch import frames
from p2pfl.plugins.watch.live_swarm import LiveFeed, SwarmObserver
from p2pfl.privacy.keys import FirstUse, Identity, Roster, SecretSource, SeededSource
from p2pfl.results.notices.kinds import PeerAnnounced, TelemetryStopped
from p2pfl.results.swarm.timeline import setting_of

BEGAN = datetime(2026, 11, 23, tzinfo=UTC)
PEERS = ("peer0", "peer1", "peer2")
OPS, EVE = (Identity.generate(SeededSource(3), peer=name) for name in ("ops", "eve"))
ROUND = 10.0
"""Seconds that a peer trains in a round."""


def experiment(observers, *, share="scores", rounds=5):
    return read(
        {
            "name": "plant",
            "rounds": rounds,
            "topology": {"kind": "ring", "peers": 3},
            "data": {"name": "wine"},
            "gossip": {"steps": 1},
            "transport": {"patience": 3600.0},
            "telemetry": {"share": share, "observers": str(observers)},
        }
    )


class World:
    """Peers of an experiment in virtual time, and whoever looks at them.

    Attributes
    ----------
    published
        Time, topic and size of what was published beside the messages of the run.
    """

    def __init__(self, folder, settings, *, takes=lambda _peer, _round: ROUND, lose=None):
        self.folder, self.settings = folder, settings
        self.loop = VirtualLoop()
        self.transport = MemoryTransport(lose=lose and (lambda _, message: lose(message, self.loop.now)))
        self.resolved = plan(settings, live=True)
        self.resolved = replace(self.resolved, learner=Timed(self.resolved.learner, takes=takes, spend=self.loop.spent))
        self.published, self.events = [], []

    async def sniff(self):
        async with self.transport.join("sniffer") as channel:
            await channel.subscribe("#")
            async for message in channel:
                if "/watch/" in message.topic or "/telemetry/" in message.topic:
                    self.published.append((self.loop.now, message.topic, len(message.data)))

    async def peer(self, name):
        (self.folder / name / "peers").mkdir(parents=True)
        owned = Credentials(Identity.generate(SeededSource(5), peer=name), FirstUse())
        await live(
            self.resolved,
            name,
            urls=(),
            folder=self.folder / name,
            owned=owned,
            notify=self.events.append,
            transport=self.transport,
            clock=lambda: 1_000_000_000 + int(self.loop.now * 1e9),
        )

    def feed(self):
        return LiveFeed(setting_of(self.settings), {}, now=lambda: BEGAN + timedelta(seconds=self.loop.now))

    async def look(self, feed, *, name="ops", identity=OPS, swarm="plant", seconds=None):
        trust = Roster({each: Identity.generate(SeededSource(5), peer=each).public for each in PEERS})
        client = ObserverClient(swarm, name=name, identity=identity, source=SecretSource(), trust=trust, peers=PEERS)
        observer = SwarmObserver(client, swarm=swarm, name=name, feed=feed)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await observer.look(self.transport, client=f"watch-{id(feed)}")

    def run(self, *beside):
        """Run all peers, and coroutines beside them that end with the peers."""

        async def body():
            tasks = [asyncio.ensure_future(each) for each in (self.sniff(), *beside)]
            async with asyncio.TaskGroup() as group:
                for name in PEERS:
                    group.create_task(self.peer(name))
            for task in tasks:
                if task.done():
                    task.result()
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(body())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No test here loses power."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def observers(tmp_path):
    path = tmp_path / "observers.toml"
    Roster({"ops": OPS.public}).write(path)
    return path


@pytest.fixture
def world(tmp_path, observers):
    return lambda **given: World(
        tmp_path, experiment(observers, **{key: given.pop(key) for key in ("share", "rounds") & given.keys()}), **given
    )


async def noted(feed, at, seen):
    """Note what an observer sees at some times."""
    for when in at:
        await asyncio.sleep(when - asyncio.get_running_loop().time())
        feed.refresh()
        seen.append(frames.frame(feed.swarm, now=feed.at, stage=feed.stage))


@pytest.mark.slow
def test_an_observer_sees_where_each_peer_is_and_for_which_it_waits(world):
    here = world(takes=lambda peer, round: 600.0 if (peer, round) == ("peer1", 4) else ROUND)
    feed, seen = here.feed(), []
    here.run(here.look(feed), noted(feed, [25.0, 110.0], seen))
    learning, blocked = seen
    assert learning["counts"] == {"learning": 3}
    assert learning["rounds"] == [2, 2, 2]
    assert learning["scores"]
    assert blocked["headline"]["peers"] == ["peer1"]
    assert blocked["headline"]["tone"] == "blocked"
    assert blocked["counts"] == {"learning": 1, "waiting": 2}
    feed.refresh()
    assert feed.stage == "ended"
    assert {peer.activity for peer in feed.swarm.peers.values()} == {"finished"}
    assert feed.unread == 0


@pytest.mark.slow
def test_an_observer_that_comes_later_sees_the_same(world):
    here = world()
    early, late, seen = here.feed(), here.feed(), []

    async def later():
        await asyncio.sleep(24.0)
        await here.look(late)

    async def compared():
        await asyncio.sleep(35.0)
        for feed in (early, late):
            feed.refresh()
            seen.append({name: peer.scores for name, peer in feed.swarm.peers.items()})
            seen.append([(peer.activity, peer.rounds) for peer in feed.swarm.peers.values()])

    here.run(here.look(early), later(), compared())
    assert seen[:2] == seen[2:]
    assert seen[1] == [("learning", 3)] * 3
    assert {size for _, topic, size in here.published if "/telemetry/" in topic and size > 600} == {1049}


@pytest.mark.slow
def test_a_peer_whose_owner_lists_nobody_else_tells_others_nothing(world):
    here = world()
    feed, seen = here.feed(), []
    feed.sink = seen.append
    here.run(here.look(feed, name="eve", identity=EVE))
    feed.refresh()
    assert {topic.split("/")[3] for _, topic, _ in here.published} == {"watch"}  # requests alone
    assert {type(entry) for entry in seen} == {PeerAnnounced}
    assert {peer.scores != {} for peer in feed.swarm.peers.values()} == {False}


@pytest.mark.slow
def test_nobody_looks_and_nothing_is_published(world):
    here = world()
    here.run()
    assert here.published == []


@pytest.mark.slow
def test_peers_stop_soon_after_the_observer_has_gone(world):
    here = world(rounds=8)
    feed = here.feed()
    here.run(here.look(feed, seconds=10.0))
    told = [at for at, topic, _ in here.published if "/telemetry/" in topic]
    assert 10.0 + LEASE - 11.0 < max(told) < 10.0 + LEASE + 1.0
    assert here.loop.now > 10.0 + 2 * LEASE


@pytest.mark.slow
def test_an_observer_costs_a_kilobyte_a_second_and_peer_at_most(world):
    here = world()
    feed = here.feed()
    here.run(here.look(feed))
    told = [size for _, topic, size in here.published if "/telemetry/" in topic]
    asked = [size for _, topic, size in here.published if "/watch/" in topic]
    lasted = here.loop.now
    assert sum(told) <= 3 * 1100 * (lasted + 1)
    assert sum(asked) <= 3 * 400 * (lasted / 10.0 + 2)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_scores_stay_with_peers_that_share_their_health_alone(world, rounds):
    here = world(share="health", rounds=rounds)
    feed = here.feed()
    here.run(here.look(feed))
    feed.refresh()
    assert feed.swarm.history.names == []
    assert {(peer.scores == {}, peer.epsilon, peer.rounds) for peer in feed.swarm.peers.values()} == {
        (True, None, rounds)
    }


@pytest.mark.slow
def test_who_may_look_changes_while_the_run_goes_on(world, observers):
    here = world(rounds=8)
    feed, seen = here.feed(), []

    async def change():
        roster = Roster.read(observers)
        for after in (Roster({"eve": EVE.public}), roster.revoke(OPS.public, reason="lost"), roster):
            await asyncio.sleep(15.0)
            after.write(observers)
            await asyncio.sleep(6.0)
            before = len(here.published)
            await asyncio.sleep(3.5)
            told = [topic for _, topic, _ in here.published[before:] if topic.endswith("/telemetry/ops")]
            seen.append(len(told) > 3)

    here.run(here.look(feed), change())
    assert seen == [False, False, True]


@pytest.mark.slow
def test_a_file_of_observers_that_cannot_be_read_lets_nobody_look_and_ends_no_run(world, observers):
    here = world()
    feed = here.feed()

    async def damage():
        await asyncio.sleep(5.0)
        observers.write_text("[peers")

    here.run(here.look(feed), damage())
    told = [at for at, topic, _ in here.published if "/telemetry/" in topic]
    assert max(told) < 11.5
    stopped = [event for event in here.events if isinstance(event, TelemetryStopped)]
    assert len(stopped) == 3
    assert "is not TOML" in stopped[0].message


def test_an_error_that_telemetry_does_not_expect_is_raised(world, monkeypatch):
    def defect(*_given, **_named):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(peer_telemetry, "Audience", defect)
    with pytest.raises(ExceptionGroup) as caught:
        world(rounds=2).run()
    assert caught.group_contains(ZeroDivisionError, match="a defect")


def test_a_broker_that_ends_ends_the_observer_with_one_error(world):
    here = world()

    async def body():
        looking = asyncio.ensure_future(here.look(here.feed()))
        await asyncio.sleep(1.0)
        here.transport.stop()
        with pytest.raises(TransportError):
            await looking

    with asyncio.Runner(loop_factory=lambda: here.loop) as runner:
        runner.run(body())


@pytest.mark.slow
def test_a_peer_without_a_sign_of_life_is_named(world):
    here = world(lose=lambda message, now: "peer2/telemetry" in message.topic and 10.0 < now < 25.0)
    feed, seen = here.feed(), []
    here.run(here.look(feed), noted(feed, [9.0, 20.0, 30.0], seen))
    assert [frame["counts"].get("silent") for frame in seen] == [None, 1, None]
    assert seen[1]["headline"]["sentence"].startswith("peer2 gives no sign of life for ")
    assert [(alert["kind"], alert["peer"]) for alert in seen[1]["alerts"]] == [("hung", "peer2")]


@pytest.mark.slow
def test_the_same_run_is_computed_whether_somebody_looks_or_not(world, tmp_path):
    scores = []
    for name, watched in (("one", True), ("other", False)):
        here = world()
        here.folder = tmp_path / name
        here.run(*([here.look(here.feed())] if watched else []))
        scores.append({event.peer: event.scores for event in here.events if type(event).__name__ == "Done"})
    assert scores[0] == scores[1]
    assert len(scores[0]) == 3
