"""``transport.prefix``: all topics of an experiment lie below the one prefix that a broker permits."""

import asyncio

import pytest

from certificates import reachable
from p2pfl.core.errors import BrokerError, ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.experiment.approval import experiment_digest
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.protocol.wire.message_codec import rights
from p2pfl.network.transport import Access, MemoryTransport, opened
from p2pfl.network.transport.channel import Message, Will
from p2pfl.network.transport.hardened import acl
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.network.transport.schemes import SCHEMES
from p2pfl.network.transport.topic_prefix import PrefixedTransport
from waiting import DEADLINE

PEERS = ("ada", "bob", "cleo")
SMALL = {
    "name": "small",
    "rounds": 2,
    "topology": {"kind": "complete", "peers": PEERS},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "transport": {"gather": 30.0, "patience": 20.0},
}


@pytest.mark.parametrize("prefix", ["plant7/", "sites/plant-7/hall_2/", "v1.0/a:b@c=d~e/", "p2pfl/v1/", "x" * 63 + "/"])
def test_a_prefix_is_levels_that_end_in_a_slash_each(prefix):
    assert read({"transport": {"prefix": prefix}}).transport.prefix == prefix


@pytest.mark.parametrize(
    "prefix",
    [
        "plant7",
        "/plant7/",
        "plant//7/",
        "/",
        "#/",
        "a/+/",
        "$SYS/",
        "$share/x/",
        "a b/",
        "%u/",
        "a\n/",
        "ä/",
        "x" * 64 + "/",
    ],
)
def test_an_invalid_prefix_is_refused_in_one_sentence(prefix):
    with pytest.raises(ExperimentError, match=r'transport.prefix is .*; set it to levels of .*, such as "plant7/"'):
        read({"transport": {"prefix": prefix}})


async def test_below_a_prefix_topics_filters_and_wills_are_those_of_a_broker_of_its_own():
    broker = MemoryTransport()
    below = PrefixedTransport(broker, "plant7/")
    async with broker.join("listener") as listener, asyncio.timeout(DEADLINE):
        await listener.subscribe("#")
        async with below.join("ada", will=Will("ada/state", b"dead")) as ada:
            await ada.subscribe("+/news", "ada/state")
            await ada.publish("ada/news", b"hello", retain=True)
            await listener.publish("ada/news", b"not below it")
            await listener.publish("plant8/ada/news", b"below another")
            assert await anext(ada) == Message("ada/news", b"hello", retained=False)
            arrived = [await anext(listener) for _ in range(3)]
            ada.abort()
            arrived.append(await anext(listener))
    assert [each.topic for each in arrived] == ["plant7/ada/news", "ada/news", "plant8/ada/news", "plant7/ada/state"]
    assert arrived[-1].data == b"dead"


async def test_a_transport_that_wraps_another_scheme_has_the_prefix_once(monkeypatch):
    monkeypatch.setitem(SCHEMES, "zlib+memory", lambda url, access: opened(url.removeprefix("zlib+"), access))
    async with (
        opened("zlib+memory://wrapped", Access(prefix="plant7/")).join("ada") as ada,
        opened("memory://wrapped").join("listener") as listener,
        asyncio.timeout(DEADLINE),
    ):
        await listener.subscribe("#")
        await ada.publish("ada/news", b"hello")
        assert (await anext(listener)).topic == "plant7/ada/news"


async def test_peers_of_different_prefixes_do_not_meet():
    async with (
        opened("memory://prefixes", Access(prefix="plant7/")).join("ada") as ada,
        opened("memory://prefixes", Access(prefix="plant8/")).join("bob") as bob,
        opened("memory://prefixes").join("cleo") as cleo,
        asyncio.timeout(DEADLINE),
    ):
        for each in (ada, bob, cleo):
            await each.subscribe("news")
        for each, name in ((ada, b"ada"), (bob, b"bob"), (cleo, b"cleo")):
            await each.publish("news", name)
        assert [(await anext(each)).data for each in (ada, bob, cleo)] == [b"ada", b"bob", b"cleo"]


def test_a_prefix_is_no_part_of_what_neighbours_agree_on_or_owners_approve():
    ours, theirs = read(SMALL), read(SMALL, changes=["transport.prefix=plant7/"])
    assert plan(ours).facts == plan(theirs).facts
    assert experiment_digest(ours) == experiment_digest(theirs)


def test_an_access_list_keeps_swarms_below_all_prefixes_apart():
    text = acl(rights("alpha", prefix="plant7/"), names=["ada"])
    assert {line.split()[-1].startswith("plant7/p2pfl/v1/alpha/") for line in text.splitlines()[1:]} == {True}
    text = acl(rights("beta", prefix="plant7/"), names=["bob"], before=text)
    text = acl(rights("alpha"), names=["cleo"], before=text)
    moved = acl(rights("alpha", prefix="plant7/"), names=["dan"], before=text)
    clients = {
        swarm: [part.split("\n")[0] for part in moved.split("user ")[1:] if f" {swarm}/" in part]
        for swarm in ("plant7/p2pfl/v1/alpha", "plant7/p2pfl/v1/beta", "p2pfl/v1/alpha")
    }
    assert clients == {
        "plant7/p2pfl/v1/alpha": ["ada", "dan"],
        "plant7/p2pfl/v1/beta": ["bob"],
        "p2pfl/v1/alpha": ["cleo"],
    }


@pytest.fixture
def fenced(tmp_path, configured_broker):
    """The URL of a mosquitto on which nobody may read or write but below plant7/."""
    folder = tmp_path / "fence"
    folder.mkdir()
    (folder / "acl").write_text("topic readwrite plant7/#\n")
    reachable(folder)
    with configured_broker(f"acl_file {folder / 'acl'}") as broker:
        yield broker.url


@pytest.mark.slow
async def test_three_peers_learn_on_a_broker_that_permits_one_prefix_alone(fenced):
    experiment = read(SMALL, changes=["transport.prefix=plant7/"])
    topics, ended = set(), {}

    async def listen():
        async with MqttTransport(fenced).join("listener") as listener:
            await listener.subscribe("#")
            listening.set()
            async for message in listener:
                topics.add(message.topic)

    async def learn(name):
        transport = connect(experiment, urls=[fenced], peer=name)
        async with Peer(name, plan(experiment, only=[name]), transport=transport) as peer:
            await peer.run()
            ended[name] = peer

    listening = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        ear = tasks.create_task(listen())
        await listening.wait()
        async with asyncio.TaskGroup() as peers:
            for name in PEERS:
                peers.create_task(learn(name))
        ear.cancel()
    assert {name: (peer.done, bool(peer.ended.unsettled)) for name, peer in ended.items()} == dict.fromkeys(
        PEERS, (2, False)
    )
    assert {f"plant7/p2pfl/v1/small/peer/ada/{place}" for place in ("state", "account", "in/bob")} <= topics


@pytest.mark.slow
async def test_a_peer_with_the_url_alone_publishes_below_the_prefix_of_its_experiment(fenced):
    experiment = read(SMALL, changes=["transport.prefix=plant7/"])

    async def learn(name):
        async with Peer(name, plan(experiment, only=[name]), transport=fenced) as peer:
            await peer.run()
            return peer.done

    async with asyncio.timeout(60):
        assert await asyncio.gather(*map(learn, PEERS)) == [2, 2, 2]


@pytest.mark.parametrize("placed", [MemoryTransport, lambda: PrefixedTransport(MemoryTransport(), "plant7/")])
async def test_a_peer_with_a_transport_publishes_below_the_prefix_of_its_experiment_once(placed):
    experiment, transport = read(SMALL, changes=["transport.prefix=plant7/"]), placed()
    broker = getattr(transport, "transport", transport)
    async with broker.join("listener") as listener, asyncio.timeout(DEADLINE):
        await listener.subscribe("#")
        async with Peer("ada", plan(experiment, only=["ada"]), transport=transport) as peer:
            peer.connection.channel.abort()  # its will
            assert (await anext(listener)).topic == "plant7/p2pfl/v1/small/peer/ada/state"


def test_a_transport_below_another_prefix_than_that_of_the_experiment_is_refused():
    experiment = read(SMALL, changes=["transport.prefix=plant7/"])
    elsewhere = PrefixedTransport(MemoryTransport(), "plant8/")
    with pytest.raises(BrokerError, match=r'this transport is below "plant8/" and transport\.prefix is "plant7/"; '):
        Peer("ada", plan(experiment, only=["ada"]), transport=elsewhere)
