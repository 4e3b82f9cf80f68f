"""A broker that refuses something ends neither the server nor the answers."""

import asyncio
import contextlib
import json

import pytest

from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.serve import mqtt_server
from p2pfl.plugins.serve.answers import Answers
from p2pfl.plugins.serve.mqtt_server import MqttServer


@pytest.fixture
async def server(following, model_file, notes):
    newest = following(model_file)
    await newest.look()
    answers = Answers(newest, notify=notes.append)
    yield MqttServer(answers, prefix="plant/ml")
    answers.close()


class Brokers:
    """Brokers of which each takes the place of the one before at the next attempt."""

    def __init__(self, *brokers):
        self.brokers = [*brokers]

    def join(self, client, *, will=None):
        return self.brokers.pop(0).join(client, will=will)


@contextlib.asynccontextmanager
async def served(server, transport, notes):
    task = asyncio.create_task(server.keep_serving(transport, notify=notes.append))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def described(broker):
    async with broker.join("client") as client, asyncio.timeout(60):
        await client.subscribe("plant/ml/model")
        return json.loads((await anext(client)).data)


async def test_a_description_above_the_limit_is_published_without_columns(server, notes):
    about = server._answers.describe()
    broker = MemoryTransport(limit=len(json.dumps(about)) - 1)
    async with served(server, broker, notes):
        assert await described(broker) == about | {"columns": None}
    assert notes == []


async def test_a_broker_that_refuses_is_a_notice_and_is_tried_again(server, notes, monkeypatch):
    monkeypatch.setattr(mqtt_server, "RETRY_SECONDS", 0.01)
    small, large = MemoryTransport(limit=10), MemoryTransport()
    async with served(server, Brokers(small, small, large), notes):
        assert (await described(large))["round"] == 3
    assert len(notes) == 1
    assert "is over the limit of 10" in notes[0]
    assert notes[0].endswith("; HTTP answers on, and the broker is tried again every 0.01 s")
