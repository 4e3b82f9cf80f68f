"""The quality of service that a transport asks of its broker."""

import asyncio
from contextlib import asynccontextmanager, closing
from urllib.parse import urlsplit

import pytest

from p2pfl.core.errors import BrokerError
from p2pfl.network.transport.mqtt import MqttTransport

PUBLISH, SUBSCRIBE = 3, 8


@asynccontextmanager
async def overheard(url):
    """A relay to a broker; yields its URL, and what clients have sent through it."""
    sent, tasks = bytearray(), set()

    async def pass_on(reader, writer, kept):
        with closing(writer):
            while data := await reader.read(2**16):
                kept += data
                writer.write(data)

    async def relay(reader, writer):
        theirs, ours = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
        for way in (pass_on(reader, ours, sent), pass_on(theirs, writer, bytearray())):
            tasks.add(asyncio.ensure_future(way))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}", sent
        await asyncio.gather(*tasks)  # both ends have closed their connections


def packets(sent):
    """The packets of MQTT in some bytes, each with its type, its flags and its content; all are short."""
    while sent:
        kind, length = sent[0], sent[1]
        yield kind >> 4, kind & 0xF, bytes(sent[2 : 2 + length])
        sent = sent[2 + length :]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [4, 5])
async def test_packets_and_subscriptions_have_the_quality_of_service_that_was_asked_for(mosquitto_url, qos, version):
    async with (
        asyncio.timeout(60),
        overheard(mosquitto_url) as (url, sent),
        MqttTransport(url, version=version, qos=qos).join("ada") as ada,
    ):
        await ada.subscribe("quality/news")
        await ada.publish("quality/news", b"hello")
        message = await anext(ada)
    assert message.data == b"hello"
    found = [*packets(sent)]
    assert [flags >> 1 & 3 for kind, flags, _ in found if kind == PUBLISH] == [qos]
    assert [content[-1] & 3 for kind, _, content in found if kind == SUBSCRIBE] == [qos]


def test_a_third_quality_of_service_is_refused():
    with pytest.raises(BrokerError, match="2 is not a quality of service that p2pfl uses"):
        MqttTransport("mqtt://127.0.0.1", qos=2)
