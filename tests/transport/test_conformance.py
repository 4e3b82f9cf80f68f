"""What every transport promises, held against each of them."""

import asyncio
import contextlib
import random

import pytest

from p2pfl.errors import TransportError
from p2pfl.transport.channel import Message, Will
from p2pfl.transport.lasting import Lasting

DEADLINE = 20.0


def played(scenario):
    async def within():
        async with asyncio.timeout(DEADLINE):
            return await scenario

    return asyncio.run(within())


async def take(channel, count):
    return [await anext(channel) for _ in range(count)]


async def take_data(channel, count):
    return [bytes(message.data) for message in await take(channel, count)]


def test_messages_on_one_topic_arrive_in_the_order_of_publication(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada, transport.join(f"{room}b") as bob:
            await bob.subscribe(f"{room}/news")
            sent = [str(i).encode() for i in range(300)]
            for data in sent[:50]:
                await ada.publish(f"{room}/news", data)
            await asyncio.gather(*[ada.publish(f"{room}/news", data) for data in sent[50:]])
            assert await take_data(bob, 300) == sent

    played(scenario())


def test_everyone_who_subscribed_hears_a_message_the_publisher_included(transport, room):
    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            channels = [await stack.enter_async_context(transport.join(f"{room}p{i}")) for i in range(12)]
            for channel in channels:
                await channel.subscribe(f"{room}/news")
            await channels[0].publish(f"{room}/news", b"hello")
            for channel in channels:
                assert await anext(channel) == Message(f"{room}/news", b"hello", retained=False)

    played(scenario())


def test_wildcards_stand_for_one_level_or_for_the_rest(transport, room):
    topics = ["a", "a/x", "a/x/y", "b/x", "b/x/y"]
    expected = {
        "+": ["a"],
        "+/x": ["a/x", "b/x"],
        "a/#": ["a", "a/x", "a/x/y"],
        "#": topics,
        "+/+/y": ["a/x/y", "b/x/y"],
    }

    async def scenario():
        async with transport.join(f"{room}a") as ada:
            for number, (pattern, covered) in enumerate(expected.items()):
                async with transport.join(f"{room}b{number}") as bob:
                    await bob.subscribe(f"{room}/{pattern}", f"{room}end")
                    for topic in topics:
                        await ada.publish(f"{room}/{topic}", b"")
                    await ada.publish(f"{room}end", b"")
                    # Brokers keep the order of a topic, not across topics, so the end may overtake.
                    heard = {message.topic for message in await take(bob, len(covered) + 1)}
                    assert heard == {*(f"{room}/{topic}" for topic in covered), f"{room}end"}

    played(scenario())


def test_many_filters_are_granted_in_one_call(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada:
            topics = [f"{room}/{i}" for i in range(30)]
            await ada.subscribe(*topics)
            for topic in topics:
                await ada.publish(topic, b"x")
            assert {message.topic for message in await take(ada, 30)} == set(topics)

    played(scenario())


def test_what_was_unsubscribed_arrives_no_more(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada:
            await ada.subscribe(f"{room}/a", f"{room}/b")
            await ada.unsubscribe(f"{room}/a", f"{room}/never")
            await ada.publish(f"{room}/a", b"no")
            await ada.publish(f"{room}/b", b"yes")
            assert await take_data(ada, 1) == [b"yes"]

    played(scenario())


def test_a_late_listener_gets_the_last_retained_message_marked_as_such(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada, transport.join(f"{room}b") as bob:
            await ada.subscribe(f"{room}/ada/state")
            await ada.publish(f"{room}/ada/state", b"old", retain=True)
            await ada.publish(f"{room}/ada/state", b"new", retain=True)
            await ada.publish(f"{room}/ada/state", b"passing")
            assert [message.retained for message in await take(ada, 3)] == [False, False, False]
            await bob.subscribe(f"{room}/+/state")
            assert await anext(bob) == Message(f"{room}/ada/state", b"new", retained=True)

    played(scenario())


def test_an_empty_retained_message_clears_the_topic(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada, transport.join(f"{room}b") as bob:
            await ada.subscribe(f"{room}/state")
            await ada.publish(f"{room}/state", b"here", retain=True)
            await ada.publish(f"{room}/state", b"", retain=True)
            assert await take_data(ada, 2) == [b"here", b""]
            await bob.subscribe(f"{room}/state")
            await ada.publish(f"{room}/state", b"first")
            assert await take(bob, 1) == [Message(f"{room}/state", b"first", retained=False)]

    played(scenario())


def test_a_lost_channel_leaves_its_will_and_the_will_is_retained(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada, transport.join(f"{room}b") as bob:
            await ada.subscribe(f"{room}/state")
            async with transport.join(f"{room}c", will=Will(f"{room}/state", b"dead")) as cyd:
                await cyd.publish(f"{room}/state", b"up", retain=True)
                cyd.abort()
                assert await take_data(ada, 2) == [b"up", b"dead"]
            await bob.subscribe(f"{room}/state")
            assert await anext(bob) == Message(f"{room}/state", b"dead", retained=True)

    played(scenario())


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_a_channel_that_leaves_has_no_will_not_even_because_of_an_error(transport, room, error):
    async def scenario():
        async with transport.join(f"{room}a") as ada:
            await ada.subscribe(f"{room}/state")
            with contextlib.suppress(RuntimeError):
                async with transport.join(f"{room}b", will=Will(f"{room}/state", b"dead")):
                    if error:
                        raise error
            async with transport.join(f"{room}b") as bob:
                await bob.publish(f"{room}/state", b"next")
            assert await take_data(ada, 1) == [b"next"]

    played(scenario())


def test_of_two_channels_under_one_name_the_younger_stays(transport, room):
    if isinstance(transport, Lasting):
        pytest.skip("the older comes back")

    async def scenario():
        async with transport.join(f"{room}a") as older:
            await older.subscribe(f"{room}/news")
            async with transport.join(f"{room}a") as younger:
                with pytest.raises(TransportError, match=r"expected .* but .*"):
                    await anext(older)
                await younger.subscribe(f"{room}/news")
                await younger.publish(f"{room}/news", b"still here")
                assert await take_data(younger, 1) == [b"still here"]

    played(scenario())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_pass_unchanged(transport, room, kind):
    async def scenario():
        async with transport.join(f"{room}a") as ada:
            await ada.subscribe(f"{room}/news")
            for data in (bytes(range(256)), b"", b"\0", "gr\u00fc\u00df".encode()):
                await ada.publish(f"{room}/news", kind(data))
                assert await take_data(ada, 1) == [data]

    played(scenario())


def test_payloads_pass_up_to_the_limit_and_are_refused_beyond(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada, transport.join(f"{room}b") as bob:
            await bob.subscribe(f"{room}/chunks")
            largest = random.Random(0).randbytes(ada.limit)
            assert ada.limit >= 256 * 1024
            with pytest.raises(
                TransportError, match=f"at most {ada.limit} bytes on {room}/chunks, got {ada.limit + 1}: "
            ):
                await ada.publish(f"{room}/chunks", largest + b"!")
            for _ in range(4):
                await ada.publish(f"{room}/chunks", memoryview(largest))
                assert await take_data(bob, 1) == [largest]

    played(scenario())


def test_a_lost_channel_says_so_whatever_it_is_asked(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada:
            ada.abort()
            ada.abort()
            for call in (ada.publish(room, b"x"), ada.subscribe(room), ada.unsubscribe(room), anext(ada), anext(ada)):
                with pytest.raises(TransportError, match="aborted"):
                    await call

    played(scenario())


def test_whoever_waits_learns_that_the_channel_is_lost(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada:
            readers = [asyncio.ensure_future(anext(ada)) for _ in range(3)]
            async with transport.join(f"{room}b"):  # by now they wait
                ada.abort()
            for result in await asyncio.gather(*readers, return_exceptions=True):
                assert isinstance(result, TransportError)

    played(scenario())


def test_a_left_channel_says_so(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada:
            pass
        with pytest.raises(TransportError, match="left"):
            await anext(ada)
        with pytest.raises(TransportError, match="left"):
            await ada.publish(room, b"x")

    played(scenario())


def test_what_had_arrived_before_the_loss_can_still_be_read(transport, room):
    async def scenario():
        async with transport.join(f"{room}a") as ada:
            await ada.subscribe(f"{room}/news")
            await ada.publish(f"{room}/news", b"one")
            await ada.publish(f"{room}/news", b"two")
            await ada.subscribe(f"{room}/more")  # its answer comes after both
            ada.abort()
            assert await take_data(ada, 2) == [b"one", b"two"]
            with pytest.raises(TransportError):
                await anext(ada)

    played(scenario())


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
def test_joining_can_be_cancelled_at_any_time_and_leaves_nothing(transport, room, turns):
    async def join():
        async with transport.join(f"{room}a", will=Will(f"{room}/state", b"dead")):
            await asyncio.get_running_loop().create_future()

    async def scenario():
        async with transport.join(f"{room}b") as bob:
            await bob.subscribe(f"{room}/state")
            others = asyncio.all_tasks()
            joining = asyncio.ensure_future(join())
            for _ in range(turns):
                await asyncio.sleep(0)
            joining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await joining
            await bob.publish(f"{room}/state", b"next")
            assert await take_data(bob, 1) == [b"next"]
            assert asyncio.all_tasks() <= others

    played(scenario())


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "a\0"])
def test_topics_have_no_wildcards(transport, room, topic):
    async def scenario():
        async with transport.join(f"{room}a") as ada:
            with pytest.raises(TransportError, match="' contains wildcards; publish to one topic"):
                await ada.publish(topic, b"x")

    played(scenario())


@pytest.mark.parametrize("pattern", ["", "a+", "a/#/b", "#/a", "a/b#"])
def test_filters_are_those_of_mqtt(transport, room, pattern):
    async def scenario():
        async with transport.join(f"{room}a") as ada:
            with pytest.raises(
                TransportError, match=r"' is not a topic filter; use one such as swarm/\+/state or swarm/#"
            ):
                await ada.subscribe(pattern)

    played(scenario())


def test_peers_on_a_ring_exchange_many_large_chunks_at_once(transport, room):
    peers, chunks = 6, 8

    async def peer(channel, number):
        await channel.subscribe(f"{room}/{(number - 1) % peers}", f"{room}/{(number + 1) % peers}")
        yield
        data = [bytes([number, chunk]) * 50_000 for chunk in range(chunks)]
        await asyncio.gather(*[channel.publish(f"{room}/{number}", part) for part in data])
        heard = await take(channel, 2 * chunks)
        for neighbour in ((number - 1) % peers, (number + 1) % peers):
            mine = [bytes(m.data) for m in heard if m.topic == f"{room}/{neighbour}"]
            assert mine == [bytes([neighbour, chunk]) * 50_000 for chunk in range(chunks)]

    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            channels = [await stack.enter_async_context(transport.join(f"{room}p{i}")) for i in range(peers)]
            turns = [peer(channel, number) for number, channel in enumerate(channels)]
            for turn in turns:
                await anext(turn)
            await asyncio.gather(*[anext(turn, None) for turn in turns])

    played(scenario())
