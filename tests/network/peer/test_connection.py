"""Effects of a session, carried out over a channel."""

import asyncio
import contextlib

import pytest
import torch

from p2pfl.core.errors import PeerError, RunError, foremost
from p2pfl.network.peer.connection import Connection
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.interface.effects import Flush, Gathered, Missing, Publish
from p2pfl.network.protocol.interface.requests import Begin, Expect, Gather, Leave, Open
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.total_messages import Again
from p2pfl.network.protocol.wire.wire_codec import decode
from p2pfl.network.protocol.wire.wire_rows import row_bytes
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.topology import path
from waiting import DEADLINE, pass_turns

GRAPH = path(2).named(("ada", "bob"))


def connection(channel, name="ada"):
    me, other = Announcement(name, 1, "up"), {"ada": "bob", "bob": "ada"}[name]
    session = Session(
        MessageCodec("s", me),
        membership=Membership(me, frozenset({other})),
        mailbox=Mailbox(),
        edges=Edges(name, GRAPH),
        row_bytes=row_bytes(8, torch.float32),
        chunk=1024,
        patience=5.0,
    )
    return Connection(channel, session)


class Slow:
    """A channel whose publishes wait for a word."""

    limit, away, lost, grace = 2**20, 0.0, False, 0.0

    def __init__(self):
        self.word = asyncio.Event()
        self.sent = []

    async def publish(self, _topic, data, *, retain=False):
        """Wait for the word, then send."""
        await self.word.wait()
        assert retain
        self.sent.append(decode(data).status if data else "cleared")


class Interrupted:
    """A channel that is away for a moment while an announcement is on its way."""

    limit, lost, grace, away = 2**20, False, 0.0, 0.0

    def __init__(self, channel):
        self.channel = channel
        self.subscribe = channel.subscribe

    def __aiter__(self):
        """Iterate over what arrives."""
        return aiter(self.channel)

    async def publish(self, topic, data, *, retain=False):
        """Publish; the first that is retained is what the connection is lost with."""
        await self.channel.publish(topic, data, retain=retain)
        if retain and not self.away:
            self.away = 0.25


class Uneven:
    """A channel on which some publishes take longer than others, and which notes their order."""

    limit, away, lost, grace = 2**20, 0.0, False, 0.0

    def __init__(self):
        self.sent = []

    async def publish(self, _topic, data, *, retain=False):
        """Note the message, and take a few turns of the loop."""
        assert not retain
        self.sent.append(decode(data).number)
        await pass_turns(self.sent[-1] % 7)


async def test_messages_leave_in_the_order_in_which_they_are_posted():
    channel = Uneven()
    end = connection(channel)
    async with asyncio.TaskGroup() as tasks:
        end._tasks = tasks
        for number in range(200):
            end.post("in/bob", Again(1, 0, number, 0))
            if number % 3 == 0:
                await pass_turns(number % 4)
        await end._perform(Flush())
        end.close()
    assert channel.sent == [*range(200)]


async def test_a_goodbye_is_the_last_word_though_an_announcement_is_still_on_its_way():
    channel = Slow()
    end = connection(channel)
    async with asyncio.TaskGroup() as tasks:
        end._tasks = tasks
        end._carry_out(Publish("state", end.session.shared.codec.announcement("up"), retain=True))
        leaving = tasks.create_task(end.ask(Leave(done=True, until=0.0)))
        await pass_turns(3)
        channel.word.set()
        await leaving
        end.session.presence.come_back()
        assert not end.session.shared.effects
        end.close()
    assert channel.sent == ["up", "left", "cleared"]


async def test_nothing_is_retained_of_who_has_left():
    async def retained():
        transport = MemoryTransport()
        async with transport.join("ada") as channel, asyncio.TaskGroup() as tasks:
            end = connection(channel)
            await end.enter(tasks)
            await end.leave()
            end.session.presence.announce()
            end.close()
        async with transport.join("bob") as channel:
            await channel.subscribe("#")
            await channel.publish("end", b"")
            async for message in channel:
                return message.topic
        return None

    assert await retained() == "end"


async def test_two_ends_gather_and_who_expects_one_that_leaves_is_told_that_it_is_gone():
    async def gone():
        transport = MemoryTransport()
        async with transport.join("ada") as one, transport.join("bob") as two, asyncio.TaskGroup() as tasks:
            ada, bob = connection(one), connection(two, "bob")
            await asyncio.gather(ada.enter(tasks), bob.enter(tasks))
            gathering = Gather(quorum=1.0, within=5.0)
            assert await asyncio.gather(ada.ask(gathering), bob.ask(gathering)) == [Gathered(), Gathered()]
            ada.submit(Begin(0))
            bob.submit(Begin(0))
            ada.submit(Open((0, 0), ("bob",), since=0))
            answer, _ = await asyncio.gather(ada.ask(Expect("bob")), bob.leave(done=False))
            ada.close()
            bob.close()
            return answer

    assert await asyncio.wait_for(gone(), DEADLINE) == Missing("bob", "gone")


def test_whoever_was_cut_off_while_it_announced_itself_says_that_it_is_back():
    """Outages count from before the announcement: its neighbours may have heard the Last Will that came with it."""

    async def turns():
        transport = MemoryTransport()
        async with transport.join("ada") as inner, transport.join("bob") as bob, asyncio.TaskGroup() as tasks:
            await bob.subscribe("p2pfl/v1/s/peer/ada/state")
            channel = Interrupted(inner)
            end = connection(channel)
            await end.enter(tasks)
            found = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(3.5):
                    async for message in bob:
                        found.append(decode(message.data).turn)  # noqa: PERF401 (the last ones are cut off)
            end.close()
        return found

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(turns()) == [0, 1]


async def test_only_one_thing_is_asked_for_at_a_time():
    async with MemoryTransport().join("ada") as channel, asyncio.TaskGroup() as tasks:
        end = connection(channel)
        await end.enter(tasks)
        first = tasks.create_task(end.ask(Gather(quorum=1.0, within=30.0)))
        await pass_turns()
        with pytest.raises(RunError, match="answers one request at a time"):
            await end.ask(Expect("bob"))
        first.cancel()
        end.close()


async def test_a_peer_whose_name_is_taken_fails_with_the_reason():
    async def second():
        transport = MemoryTransport()
        async with transport.join("one") as one, transport.join("two") as two, asyncio.TaskGroup() as tasks:
            first, namesake = connection(one), connection(two)
            namesake.session.membership.me = namesake.session.shared.codec.me = Announcement("ada", 2, "up")
            await first.enter(tasks)
            try:
                async with asyncio.TaskGroup() as others:
                    await namesake.enter(others)
            except BaseExceptionGroup as group:
                error = foremost(group)
            first.close()
        return error

    with pytest.raises(PeerError, match="already in use"):
        raise await asyncio.wait_for(second(), DEADLINE)
