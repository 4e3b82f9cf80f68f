"""What a peer says of itself, in order."""

import asyncio

from p2pfl.peer.line import Line
from p2pfl.protocol.wire.codec import decode
from p2pfl.protocol.wire.messages import Hello
from p2pfl.transport import MemoryTransport


class Slow:
    """A channel whose publishes wait for a word."""

    limit = 2**20

    def __init__(self):
        self.word = asyncio.Event()
        self.sent = []

    async def publish(self, _topic, data, *, retain=False):
        """Wait for the word, then send."""
        await self.word.wait()
        assert retain
        self.sent.append(decode(data).status if data else "cleared")


def test_a_goodbye_is_the_last_word_though_a_hello_is_still_on_its_way():
    async def said():
        channel = Slow()
        line = Line(channel, swarm="s", me=Hello("ada", 1, "up"))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(line.say("up"))
            tasks.create_task(line.leave(done=True, kept=False))
            tasks.create_task(line.come_back())
            await asyncio.sleep(0)  # all three have begun
            channel.word.set()
        return channel.sent

    assert asyncio.run(said()) == ["up", "left", "cleared"]


def test_nothing_is_retained_of_who_has_left():
    async def retained():
        transport = MemoryTransport()
        async with transport.join("ada") as channel:
            line = Line(channel, swarm="s", me=Hello("ada", 1, "up"))
            await line.say("up")
            await line.leave(done=True, kept=False)
            await line.say("up")
        async with transport.join("bob") as channel:
            await channel.subscribe("#")
            await channel.publish("end", b"")
            async for message in channel:
                return message.topic
        return None

    assert asyncio.run(retained()) == "end"
