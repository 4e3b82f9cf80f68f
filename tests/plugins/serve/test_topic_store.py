"""Rows of a topic reach a table over a real broker: each once, whatever ends in between."""

import asyncio
import contextlib
import json
import sqlite3
from contextlib import closing

import psutil
import pytest

from p2pfl.core.errors import AccessError
from p2pfl.data.tables.cells import read
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.broker import Program, embedded, mosquitto, run_program
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.plugins.serve import topic_store
from p2pfl.plugins.serve.stored_rows import RowStore
from p2pfl.plugins.serve.topic_store import TopicStore
from waiting import wait_until

TOPIC = "plant/hall"


def program(*, replace=("", "")):
    found = mosquitto() or pytest.skip("mosquitto is not installed")
    return Program(found.kind, found.command, lambda *place: found.configuration(*place).replace(*replace))


@pytest.fixture
def url():
    with run_program(program(), host="127.0.0.1", port=0) as broker:
        yield broker.url


@pytest.fixture
def store(tmp_path):
    return RowStore(tmp_path / "readings.sqlite")


def kept(url):
    return MqttTransport(url, kept=True)


def stored(store):
    """Return the numbers in the table; none before its first row."""
    with closing(sqlite3.connect(store.path)) as database, contextlib.suppress(sqlite3.OperationalError):
        return [number for (number,) in database.execute("SELECT n FROM rows")]
    return []


@contextlib.asynccontextmanager
async def storing(store, notes, transports):
    task = asyncio.create_task(TopicStore(store, TOPIC, notify=notes.append).keep_storing(transports))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def publish(url, *numbers, retain=False):
    async with MqttTransport(url).join("sensor") as channel:
        for number in numbers:
            await channel.publish(TOPIC, json.dumps({"n": number}).encode(), retain=retain)


async def test_rows_that_come_while_nobody_stores_wait_at_the_broker(store, notes, url):
    async with storing(store, notes, {url: kept(url)}):
        await wait_until(lambda: notes, "it has subscribed", every=0.01)
        await publish(url, 1, 2)
        await wait_until(lambda: stored(store) == [1, 2], "two rows", every=0.01)
    await publish(url, 3, 4)
    async with storing(store, notes, {url: kept(url)}):
        await publish(url, 5)
        await wait_until(lambda: len(stored(store)) >= 5, "five rows", every=0.01)
    assert stored(store) == [1, 2, 3, 4, 5]
    assert notes == [
        f"stores the rows of {TOPIC} in {store.path}",
        f"{store.path} has the columns of its first row: n",
        f"stores the rows of {TOPIC} in {store.path}",
    ]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_row_whose_acknowledgement_is_lost_is_stored_once(store, notes, url, committed):
    async with kept(url).join(store.client()) as channel:
        await channel.subscribe(TOPIC)
        await publish(url, 1)
        first = await anext(channel)
        assert not first.repeated
        if committed:  # and then the process is killed
            store.add(first.data, topic=TOPIC, broker=url, number=first.number, repeated=False)
        channel.abort()
        first.acknowledge()  # too late
    async with kept(url).join(store.client()) as channel, asyncio.timeout(60):
        again = await anext(channel)
        assert (again.data, again.number, again.repeated) == (first.data, first.number, True)
        channel.abort()
    async with storing(store, notes, {url: kept(url)}):
        await publish(url, 1)  # an equal row of another message
        await wait_until(lambda: len(stored(store)) >= 2, "both rows", every=0.01)
        await publish(url, 2)
        await wait_until(lambda: 2 in stored(store), "the last row", every=0.01)
    assert stored(store) == [1, 1, 2]


async def test_a_retained_row_is_not_stored_again_with_each_connection(store, notes, url):
    for number in range(3):
        async with storing(store, notes, {url: kept(url)}):
            await wait_until(lambda: len(notes) > number, "it has subscribed", every=0.01)  # noqa: B023
            await publish(url, number, retain=True)
            await wait_until(lambda: number in stored(store), "the row", every=0.01)  # noqa: B023
    assert stored(store) == [0, 1, 2]


async def test_messages_that_are_no_rows_are_left_out_and_counted(store, notes, url):
    async with storing(store, notes, {url: kept(url)}):
        await wait_until(lambda: notes, "it has subscribed", every=0.01)
        await publish(url, 1, *[[]] * 10, 2)
        await wait_until(lambda: 2 in stored(store), "the last row", every=0.01)
    reason = "the last because the column 'n' holds several values; send one"
    assert stored(store) == [1, 2]
    assert notes[2:] == [
        f"left out 1 message of {TOPIC} so far, {reason}",
        f"left out 10 messages of {TOPIC} so far, {reason}",
    ]
    async with kept(url).join(store.client()) as channel, asyncio.timeout(60):
        await publish(url, 3)
        waiting = [json.loads((await anext(channel)).data)]
        while waiting[-1] != {"n": 3}:
            waiting.append(json.loads((await anext(channel)).data))
    assert waiting[:-1] in ([], [{"n": 2}])  # whose acknowledgement may not have left


async def test_a_broker_that_is_away_is_said_once_and_tried_again(store, notes, monkeypatch):
    monkeypatch.setattr(topic_store, "PAUSE_SECONDS", 0.01)
    with embedded(kind="mosquitto") as broker:
        url, port = broker.url, int(broker.url.rpartition(":")[2])
        async with storing(store, notes, {url: kept(url)}):
            await wait_until(lambda: notes, "it has subscribed", every=0.01)
            await publish(url, 1)
            await wait_until(lambda: stored(store) == [1], "a row", every=0.01)
            psutil.Process(broker.pid).kill()
            await wait_until(lambda: len(notes) >= 4, "it says that the broker is away", every=0.01)
            assert len(read(store.path)) == 1  # what a peer goes on with
            with run_program(program(), host="127.0.0.1", port=port):

                async def published():
                    await publish(url, 2)
                    return 2 in stored(store)

                async with asyncio.timeout(60):
                    while not await published():  # the new broker has forgotten the session
                        pass
    lost, away = notes[2:4]
    assert "is lost" in lost
    assert "nothing listens there" in away
    assert away.endswith("; rows of plant/hall are not stored until a new attempt succeeds")
    assert len([note for note in notes if note == away]) == 1


async def test_a_refused_login_is_said_once_and_tried_again(store, notes, monkeypatch):
    monkeypatch.setattr(topic_store, "PAUSE_SECONDS", 0.01)
    closed = program(replace=("allow_anonymous true", "allow_anonymous false"))
    joined = []

    class Counted(MqttTransport):
        def join(self, client, *, will=None):
            joined.append(client)
            return super().join(client, will=will)

    with run_program(closed, host="127.0.0.1", port=0) as broker:
        with pytest.raises(AccessError):
            await TopicStore(store, TOPIC, notify=notes.append).store(broker.url, kept(broker.url))
        async with storing(store, notes, {broker.url: Counted(broker.url, kept=True)}):
            await wait_until(lambda: len(joined) > 2, "it tries again", every=0.01)
    assert len(notes) == 1
    assert "denies access" in notes[0]
    assert {*joined} == {store.client()}


async def test_a_table_that_cannot_be_written_leaves_the_rows_at_the_broker(store, notes, url, monkeypatch):
    monkeypatch.setattr(topic_store, "PAUSE_SECONDS", 0.01)
    async with storing(store, notes, {url: kept(url)}):
        await wait_until(lambda: notes, "it has subscribed", every=0.01)
        with closing(sqlite3.connect(store.path)) as database, database:
            database.execute("CREATE TABLE rows (n)")
            database.execute("CREATE TRIGGER full BEFORE INSERT ON rows BEGIN SELECT RAISE(ABORT, 'full'); END")
        await publish(url, 1, 2)
        await wait_until(lambda: len(notes) > 1, "it says so", every=0.01)
        with closing(sqlite3.connect(store.path)) as database, database:
            database.execute("DROP TRIGGER full")
        await wait_until(lambda: len(stored(store)) >= 2, "both rows", every=0.01)
    assert stored(store) == [1, 2]
    assert notes[1:] == [
        f"{store.path} cannot be written (full); rows of {TOPIC} are not stored until a new attempt succeeds"
    ]


async def test_a_broker_that_keeps_nothing_is_refused(store, notes):
    broker = MemoryTransport()
    async with storing(store, notes, {"memory://a": broker}), broker.join("sensor") as channel:
        await wait_until(lambda: notes, "it has subscribed")
        await channel.publish(TOPIC, b'{"n": 1}')
        await wait_until(lambda: len(notes) > 1, "it is refused")
    assert notes[1].startswith("memory://a does not keep messages until they are stored; use mqtt://")
    assert stored(store) == []
