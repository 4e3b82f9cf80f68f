"""Contract of transports, as checks that any implementation can run.

The promises are those of MQTT at QoS 1 with a clean session, see :mod:`p2pfl.network.transport.channel`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial

from p2pfl.core.errors import TransportError
from p2pfl.network.transport.channel import Channel, Message, Transport, Will
from p2pfl.testing.contract import Contract, equal, named, raising, require

DEADLINE = 60.0
"""Seconds that one check may take."""

TRANSPORT_CHECKS: Contract[Callable[[Transport, str], Awaitable[None]]] = Contract()
"""Every check by name: ``await check(transport, room)``, where ``room`` is a prefix of topics and of client names."""


async def check_transport(make: Callable[[], Transport], *, keeps_oldest: bool = False) -> None:
    """Run all checks, each on a new transport.

    Parameters
    ----------
    make
        Returns a transport; it may lead to the same broker each time.
    keeps_oldest
        Set this for a transport that reconnects by itself: of two channels under one name, the older one comes back,
        so the check that the younger one stays is left out.

    Raises
    ------
    ContractError
        A promise is broken; the message names it.

    Examples
    --------
    >>> from p2pfl.network.transport.memory import MemoryTransport
    >>> asyncio.run(check_transport(MemoryTransport))
    """
    for number, name in enumerate(TRANSPORT_CHECKS):
        if not (keeps_oldest and name == "of_two_channels_under_one_name_the_younger_stays"):
            await run_check(name, make(), room=f"contract{number}")


async def run_check(name: str, transport: Transport, *, room: str) -> None:
    """Run one check within :data:`DEADLINE`.

    Raises
    ------
    ContractError
        The promise is broken.
    """
    with named(name):
        async with asyncio.timeout(DEADLINE):
            await TRANSPORT_CHECKS[name](transport, room)


async def _take(channel: Channel, count: int) -> list[Message]:
    return [await anext(channel) for _ in range(count)]


async def _data(channel: Channel, count: int) -> list[bytes]:
    return [bytes(message.data) for message in await _take(channel, count)]


@TRANSPORT_CHECKS.add
async def messages_on_one_topic_arrive_in_the_order_of_publication(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada, transport.join(f"{room}b") as bob:
        await bob.subscribe(f"{room}/news")
        sent = [str(i).encode() for i in range(300)]
        for data in sent[:50]:
            await ada.publish(f"{room}/news", data)
        await asyncio.gather(*[ada.publish(f"{room}/news", data) for data in sent[50:]])
        equal(await _data(bob, 300), sent)


@TRANSPORT_CHECKS.add
async def every_subscriber_receives_a_message_and_the_publisher_does_too(transport: Transport, room: str) -> None:
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(transport.join(f"{room}p{i}")) for i in range(12)]
        for channel in channels:
            await channel.subscribe(f"{room}/news")
        await channels[0].publish(f"{room}/news", b"hello")
        for channel in channels:
            equal(await anext(channel), Message(f"{room}/news", b"hello", retained=False))


@TRANSPORT_CHECKS.add
async def wildcards_stand_for_one_level_or_for_the_rest(transport: Transport, room: str) -> None:
    topics = ["a", "a/x", "a/x/y", "b/x", "b/x/y"]
    covered = {
        "+": ["a"],
        "+/x": ["a/x", "b/x"],
        "a/#": ["a", "a/x", "a/x/y"],
        "#": topics,
        "+/+/y": ["a/x/y", "b/x/y"],
    }
    async with transport.join(f"{room}a") as ada:
        for number, (pattern, expected) in enumerate(covered.items()):
            async with transport.join(f"{room}b{number}") as bob:
                await bob.subscribe(f"{room}/{pattern}", f"{room}end")
                for topic in topics:
                    await ada.publish(f"{room}/{topic}", b"")
                await ada.publish(f"{room}end", b"")
                # Brokers keep the order within a topic but not across topics, so the end may come early.
                received = {message.topic for message in await _take(bob, len(expected) + 1)}
                equal(received, {*(f"{room}/{topic}" for topic in expected), f"{room}end"})


@TRANSPORT_CHECKS.add
async def one_call_subscribes_to_many_filters(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        topics = [f"{room}/{i}" for i in range(30)]
        await ada.subscribe(*topics)
        for topic in topics:
            await ada.publish(topic, b"x")
        equal({message.topic for message in await _take(ada, 30)}, set(topics))


@TRANSPORT_CHECKS.add
async def a_late_subscriber_receives_the_last_retained_message_marked_as_such(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada, transport.join(f"{room}b") as bob:
        await ada.subscribe(f"{room}/ada/state")
        await ada.publish(f"{room}/ada/state", b"old", retain=True)
        await ada.publish(f"{room}/ada/state", b"new", retain=True)
        await ada.publish(f"{room}/ada/state", b"passing")
        equal([message.retained for message in await _take(ada, 3)], [False, False, False])
        await bob.subscribe(f"{room}/+/state")
        equal(await anext(bob), Message(f"{room}/ada/state", b"new", retained=True))


@TRANSPORT_CHECKS.add
async def an_empty_retained_message_clears_the_topic(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada, transport.join(f"{room}b") as bob:
        await ada.subscribe(f"{room}/state")
        await ada.publish(f"{room}/state", b"here", retain=True)
        await ada.publish(f"{room}/state", b"", retain=True)
        equal(await _data(ada, 2), [b"here", b""])
        await bob.subscribe(f"{room}/state")
        await ada.publish(f"{room}/state", b"first")
        equal(await _take(bob, 1), [Message(f"{room}/state", b"first", retained=False)])


@TRANSPORT_CHECKS.add
async def the_broker_publishes_and_retains_the_will_of_a_lost_channel(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada, transport.join(f"{room}b") as bob:
        await ada.subscribe(f"{room}/state")
        async with transport.join(f"{room}c", will=Will(f"{room}/state", b"dead")) as cyd:
            await cyd.publish(f"{room}/state", b"up", retain=True)
            cyd.abort()
            equal(await _data(ada, 2), [b"up", b"dead"])
        await bob.subscribe(f"{room}/state")
        equal(await anext(bob), Message(f"{room}/state", b"dead", retained=True))


@TRANSPORT_CHECKS.add
async def a_channel_that_leaves_has_no_will_even_after_an_error(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        await ada.subscribe(f"{room}/state")
        for error in (None, RuntimeError("in the body")):
            with suppress(RuntimeError):
                async with transport.join(f"{room}b", will=Will(f"{room}/state", b"dead")):
                    if error is not None:
                        raise error
            async with transport.join(f"{room}b") as bob:
                await bob.publish(f"{room}/state", b"next")
            equal(await _data(ada, 1), [b"next"])


@TRANSPORT_CHECKS.add
async def of_two_channels_under_one_name_the_younger_stays(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as older:
        await older.subscribe(f"{room}/news")
        async with transport.join(f"{room}a") as younger:
            with raising(TransportError):
                await anext(older)
            await younger.subscribe(f"{room}/news")
            await younger.publish(f"{room}/news", b"still here")
            equal(await _data(younger, 1), [b"still here"])


@TRANSPORT_CHECKS.add
async def any_bytes_arrive_unchanged(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        await ada.subscribe(f"{room}/news")
        for kind in (bytes, bytearray, memoryview):
            for data in (bytes(range(256)), b"", b"\0", "gr\u00fc\u00df".encode()):
                await ada.publish(f"{room}/news", kind(data))
                equal(await _data(ada, 1), [data])


@TRANSPORT_CHECKS.add
async def payloads_pass_up_to_the_limit_and_are_refused_beyond(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada, transport.join(f"{room}b") as bob:
        await bob.subscribe(f"{room}/chunks")
        largest = (bytes(range(251)) * (ada.limit // 251 + 1))[: ada.limit]  # 251 is prime: no two chunks are alike
        require(ada.limit >= 256 * 1024, f"the limit is {ada.limit} bytes, less than 256 KiB")
        with raising(TransportError):
            await ada.publish(f"{room}/chunks", largest + b"!")
        for _ in range(4):
            await ada.publish(f"{room}/chunks", memoryview(largest))
            equal(await _data(bob, 1), [largest])


@TRANSPORT_CHECKS.add
async def every_call_on_a_lost_channel_raises(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        ada.abort()
        ada.abort()
        for call in (
            partial(ada.publish, room, b"x"),
            partial(ada.subscribe, room),
            ada.__anext__,
            ada.__anext__,
        ):
            with raising(TransportError):
                await call()


@TRANSPORT_CHECKS.add
async def waiting_readers_learn_that_the_channel_is_lost(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        readers = [asyncio.ensure_future(anext(ada)) for _ in range(3)]
        async with transport.join(f"{room}b"):  # by now they wait
            ada.abort()
        for result in await asyncio.gather(*readers, return_exceptions=True):
            require(isinstance(result, TransportError), f"a waiting reader got {result!r} instead of a TransportError")


@TRANSPORT_CHECKS.add
async def a_waiting_publish_ends_when_the_channel_is_lost(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        large = bytes(ada.limit)
        waiting = [asyncio.ensure_future(ada.publish(f"{room}/news", large)) for _ in range(40)]
        await asyncio.sleep(0)
        ada.abort()
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            require(
                result is None or isinstance(result, TransportError),
                f"a waiting publish ended with {result!r} instead of a TransportError",
            )


@TRANSPORT_CHECKS.add
async def a_cancelled_publish_leaves_the_channel_usable(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        await ada.subscribe(f"{room}/end")
        for turns in (0, 1, 2, 3, 5):
            publishing = asyncio.ensure_future(ada.publish(f"{room}/news", bytes(100_000)))
            for _ in range(turns):
                await asyncio.sleep(0)
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
        await ada.publish(f"{room}/end", b"usable")
        equal(await _data(ada, 1), [b"usable"])


@TRANSPORT_CHECKS.add
async def a_subscriber_that_does_not_read_does_not_stop_others(transport: Transport, room: str) -> None:
    async with (
        transport.join(f"{room}a") as ada,
        transport.join(f"{room}b") as bob,
        transport.join(f"{room}c") as sleeper,
    ):
        for channel in (bob, sleeper):
            await channel.subscribe(f"{room}/news")
        sent = [bytes([i]) * 20_000 for i in range(100)]
        for data in sent:
            await ada.publish(f"{room}/news", data)
            equal(await _data(bob, 1), [data])


@TRANSPORT_CHECKS.add
async def every_call_on_a_channel_that_left_raises(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        pass
    with raising(TransportError):
        await anext(ada)
    with raising(TransportError):
        await ada.publish(room, b"x")


@TRANSPORT_CHECKS.add
async def messages_that_arrived_before_the_loss_can_still_be_read(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        await ada.subscribe(f"{room}/news")
        await ada.publish(f"{room}/news", b"one")
        await ada.publish(f"{room}/news", b"two")
        await ada.subscribe(f"{room}/more")  # its answer comes after both messages
        ada.abort()
        equal(await _data(ada, 2), [b"one", b"two"])
        with raising(TransportError):
            await anext(ada)


@TRANSPORT_CHECKS.add
async def joining_can_be_cancelled_at_any_time_and_leaves_nothing(transport: Transport, room: str) -> None:
    async def join(name: str) -> None:
        async with transport.join(name, will=Will(f"{room}/state", b"dead")):
            await asyncio.get_running_loop().create_future()

    async with transport.join(f"{room}b") as bob:
        await bob.subscribe(f"{room}/state")
        others = asyncio.all_tasks()
        for turns in (0, 1, 2, 3, 5, 8):
            # A name for each: rumqttd may take the end of an earlier connection for that of the next of its name.
            joining = asyncio.ensure_future(join(f"{room}a{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            joining.cancel()
            with raising(asyncio.CancelledError):
                await joining
            await bob.publish(f"{room}/state", b"next")
            equal(await _data(bob, 1), [b"next"])
            if left := asyncio.all_tasks() - others:  # one may still read the messages of bob, and ends
                _, pending = await asyncio.wait(left, timeout=DEADLINE / 2)
                require(not pending, "a cancelled join left tasks behind")


@TRANSPORT_CHECKS.add
async def topics_have_no_wildcards(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        for topic in ("", "a/+", "a/#", "a\0"):
            with raising(TransportError):
                await ada.publish(topic, b"x")


@TRANSPORT_CHECKS.add
async def filters_are_those_of_mqtt(transport: Transport, room: str) -> None:
    async with transport.join(f"{room}a") as ada:
        for pattern in ("", "a+", "a/#/b", "#/a", "a/b#"):
            with raising(TransportError):
                await ada.subscribe(pattern)


@TRANSPORT_CHECKS.add
async def peers_on_a_ring_exchange_many_large_chunks_at_once(transport: Transport, room: str) -> None:
    peers, chunks = 6, 8

    async def peer(channel: Channel, number: int) -> AsyncGenerator[None]:
        await channel.subscribe(f"{room}/{(number - 1) % peers}", f"{room}/{(number + 1) % peers}")
        yield
        data = [bytes([number, chunk]) * 50_000 for chunk in range(chunks)]
        await asyncio.gather(*[channel.publish(f"{room}/{number}", part) for part in data])
        received = await _take(channel, 2 * chunks)
        for neighbour in ((number - 1) % peers, (number + 1) % peers):
            chunks_received = [bytes(message.data) for message in received if message.topic == f"{room}/{neighbour}"]
            equal(chunks_received, [bytes([neighbour, chunk]) * 50_000 for chunk in range(chunks)])

    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(transport.join(f"{room}p{i}")) for i in range(peers)]
        turns = [peer(channel, number) for number, channel in enumerate(channels)]
        for turn in turns:
            await anext(turn)
        await asyncio.gather(*[anext(turn, None) for turn in turns])
