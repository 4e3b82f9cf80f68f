"""A burst to a listener that is stopped, on a mosquitto with its own defaults, at both qualities of service."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from certificates import authority, reachable
from listener import connected, send
from p2pfl.core.errors import BrokerError
from p2pfl.network.protocol.interface.requests import Gather
from p2pfl.network.transport.mqtt import MqttTransport
from ports import reserved_port
from waiting import DEADLINE

COUNT, LENGTH = 4000, 1000
"""Messages of 4 KB, of which a default mosquitto queues 1,000."""

FEW, LONG = 60, 1_000_000
"""Models of 4 MB, in chunks."""

FEWER, LONGER = 4, 10_000_000
"""Models of 40 MB, more than sockets hold."""

NARROW = ["max_queued_messages 2", "max_inflight_messages 2", "sys_interval 1"]
"""A mosquitto that queues two messages for a client, and counts each second what it has dropped."""

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed"),
]


@dataclass(frozen=True)
class Default:
    """A mosquitto with nothing set but its address and, with TLS, its certificate; and how clients reach it."""

    url: str
    qos: int
    ca: Path | None
    file: Path

    def transport(self):
        return MqttTransport(self.url, qos=self.qos, ca=self.ca)

    @contextlib.asynccontextmanager
    async def running(self, *more):
        """Run it, with more lines in its configuration."""
        with self.file.open("a") as file:
            file.writelines(f"{line}\n" for line in more)
        process = await asyncio.create_subprocess_exec("mosquitto", "-c", self.file, stderr=subprocess.DEVNULL)
        try:
            await asyncio.wait_for(self._reached(), DEADLINE)
            yield
        finally:
            process.terminate()
            await process.wait()

    @contextlib.contextmanager
    def listener(self, kind, *, count, length):
        """A listener that has subscribed."""
        script = Path(__file__).parents[3] / "support" / "listener.py"
        command = [sys.executable, script, self.url, kind, str(count), str(length), str(self.qos)]
        command += [] if self.ca is None else [self.ca]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                process.send_signal(signal.SIGCONT)
                process.kill()

    async def dropped(self):
        """Wait until the broker says that it has dropped messages; return how many."""
        async with self.transport().join("probe") as channel:
            await channel.subscribe("$SYS/broker/publish/messages/dropped")
            count = 0
            while not count:
                count = int((await anext(channel)).data)
            return count

    async def _reached(self):
        """Wait until the broker lets us in."""
        while True:
            with contextlib.suppress(BrokerError):
                async with self.transport().join("probe"):
                    return


@pytest.fixture(
    params=[(1, "bare"), (0, "bare"), (1, "TLS"), (0, "TLS")], ids=lambda given: f"QoS {given[0]} {given[1]}"
)
def broker(request, tmp_path):
    with reserved_port() as port:
        yield configured(*request.param, port, tmp_path)


def configured(qos, how, port, tmp_path):
    """A mosquitto that listens on a port."""
    lines, ca = [f"listener {port} 127.0.0.1", "allow_anonymous true"], None
    if how == "TLS":
        ca, certificate, key = authority(tmp_path)
        reachable(tmp_path)
        lines += [f"certfile {certificate}", f"keyfile {key}"]
    found = Default(f"{'mqtt' if ca is None else 'mqtts'}://127.0.0.1:{port}", qos, ca, tmp_path / "mosquitto.conf")
    found.file.write_text("\n".join(lines) + "\n")
    return found


async def test_mosquittos_defaults_lose_a_burst_although_every_publish_was_acknowledged(broker):
    async def burst(process):
        async with broker.transport().join("sender") as channel:
            process.send_signal(signal.SIGSTOP)
            for index in range(COUNT):
                await channel.publish(f"burst/{index % 7}", bytes(4 * LENGTH))
            process.send_signal(signal.SIGCONT)
            while process.poll() is None:  # what ends the count may be dropped too
                await channel.publish("burst/end", b"end")

    async with broker.running():
        with broker.listener("plain", count=COUNT, length=LENGTH) as process:
            await asyncio.wait_for(burst(process), 300)
            assert int(process.stdout.readline()) < COUNT


async def through_a_link(broker, *, count, length):
    """Send a burst; return how many models were sent before the listener went on, and how many arrived."""

    async def burst(process):
        async with broker.transport().join("burst-ada-1") as channel, asyncio.TaskGroup() as tasks:
            end = connected(channel, "ada", 1, length=length)
            await end.enter(tasks)
            await end.ask(Gather(quorum=1.0, within=20.0))
            process.send_signal(signal.SIGSTOP)
            sent = 0
            while True:  # until credit is used up
                try:
                    await asyncio.wait_for(send(end, sent, length=length), 4.0)
                    sent += 1
                except TimeoutError:
                    break
            process.send_signal(signal.SIGCONT)
            for round in range(sent, count):
                await send(end, round, length=length)
            await end.leave()
            end.close()
            return sent

    with broker.listener("link", count=count, length=length) as process:
        before = await asyncio.wait_for(burst(process), 300)
        return before, int(process.stdout.readline())


@pytest.mark.parametrize(("count", "length"), [(COUNT, LENGTH), (FEW, LONG)], ids=["small models", "large models"])
async def test_the_same_burst_through_a_link_loses_nothing(broker, count, length):
    async with broker.running():
        before, arrived = await through_a_link(broker, count=count, length=length)
    assert before < count
    assert arrived == count


async def test_what_a_broker_drops_of_large_models_is_sent_again(broker):
    async with broker.running(*NARROW):
        _, arrived = await through_a_link(broker, count=FEWER, length=LONGER)
        assert await asyncio.wait_for(broker.dropped(), DEADLINE) > 0
    assert arrived == FEWER
