"""A burst to a listener that is stopped, on a mosquitto with its own defaults."""

import asyncio
import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from listener import LENGTH, connected, send
from p2pfl.errors import BrokerError
from p2pfl.protocol.interface.requests import Gather
from p2pfl.transport.mqtt import MqttTransport

COUNT = 4000
"""Messages of 4 KB, of which a default mosquitto queues 1,000."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed")]


@pytest.fixture
def default_broker(tmp_path):
    """A mosquitto with nothing set but its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    process = subprocess.Popen(["mosquitto", "-c", str(tmp_path / "mosquitto.conf")], stderr=subprocess.DEVNULL)
    yield f"mqtt://127.0.0.1:{port}"
    process.terminate()
    process.wait(10)


@contextlib.contextmanager
def listener(url, kind):
    """A listener that has subscribed."""
    script = Path(__file__).parents[2] / "support" / "listener.py"
    command = [sys.executable, str(script), url, kind, str(COUNT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


async def reached(url):
    """Wait until the broker lets us in."""
    while True:
        with contextlib.suppress(BrokerError):
            async with MqttTransport(url).join("probe"):
                return


@pytest.mark.nightly
async def test_mosquittos_defaults_lose_a_burst_although_every_publish_was_acknowledged(default_broker):
    async def burst(process):
        async with MqttTransport(default_broker).join("sender") as channel:
            process.send_signal(signal.SIGSTOP)
            for index in range(COUNT):
                await channel.publish(f"burst/{index % 7}", bytes(4 * LENGTH))
            process.send_signal(signal.SIGCONT)
            while process.poll() is None:  # what ends the count may be dropped too
                await channel.publish("burst/end", b"end")

    await asyncio.wait_for(reached(default_broker), 10)
    with listener(default_broker, "plain") as process:
        await asyncio.wait_for(burst(process), 300)
        assert int(process.stdout.readline()) < COUNT


@pytest.mark.nightly
async def test_the_same_burst_through_a_link_loses_nothing(default_broker):
    async def burst(process):
        async with MqttTransport(default_broker).join("burst-ada-1") as channel, asyncio.TaskGroup() as tasks:
            end = connected(channel, "ada", 1)
            await end.enter(tasks)
            await end.ask(Gather(quorum=1.0, within=20.0))
            process.send_signal(signal.SIGSTOP)
            sent = 0
            while True:  # until credit is used up
                try:
                    await asyncio.wait_for(send(end, sent), 4.0)
                    sent += 1
                except TimeoutError:
                    break
            process.send_signal(signal.SIGCONT)
            for round in range(sent, COUNT):
                await send(end, round)
            await end.leave()
            end.close()
            return sent

    await asyncio.wait_for(reached(default_broker), 10)
    with listener(default_broker, "link") as process:
        before = await asyncio.wait_for(burst(process), 120)
        assert before < COUNT
        assert int(process.stdout.readline()) == COUNT
