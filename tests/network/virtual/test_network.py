"""Connections that are late, narrow and forgetful."""

import asyncio
import math
from contextvars import copy_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import BrokerError, TransportError
from p2pfl.network.transport import Will
from p2pfl.network.transport.channel import KEEPALIVE
from p2pfl.network.virtual.clock import WHO
from p2pfl.network.virtual.virtual_network import FRAME
from worlds.network import Conditions, FaultyLoop, FaultyPipe, FaultyTransport, Restart


def world(lives, conditions=None, **settings):
    """Run ``lives[name](transport)`` for all names at once; what they return, and the transport."""
    loop = FaultyLoop()
    transport = FaultyTransport(loop, conditions or {}, **settings)

    async def main():
        tasks = {}
        for name, life in lives.items():
            context = copy_context()
            context.run(WHO.set, name)
            tasks[name] = loop.create_task(life(transport), context=context)
        return {name: await task for name, task in tasks.items()}

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main()), transport


async def receive(channel, count):
    return [(bytes((await anext(channel)).data), asyncio.get_running_loop().now) for _ in range(count)]


def listener(count, *topics):
    async def life(transport):
        async with transport.join("bob") as bob:
            await bob.subscribe(*topics)
            return await receive(bob, count)

    return life


def speaker(*said, wait=1.0, gap=0.0):
    async def life(transport):
        async with transport.join("ada") as ada:
            await asyncio.sleep(wait)
            for topic, data in said:
                await ada.publish(topic, data)
                await asyncio.sleep(gap)
            return asyncio.get_running_loop().now

    return life


def test_a_message_takes_both_latencies_and_its_size_over_both_bandwidths():
    size = 1000 + 1 + FRAME
    conditions = {"ada": Conditions(latency=0.2, up=size / 3), "bob": Conditions(latency=0.5, down=size / 4)}
    lives = {"ada": speaker(("t", bytes(1000)), wait=9.2), "bob": listener(1, "t")}
    ((_, when),) = world(lives, conditions)[0]["bob"]
    assert when == pytest.approx(10.0 + 3.0 + 0.2 + 4.0 + 0.5)


@given(st.integers(0, 99), st.floats(0, 0.9), st.floats(0, 0.9))
def test_messages_of_one_topic_stay_in_order_whatever_overtakes_whom(seed, overtaken, jitter):
    conditions = {"bob": Conditions(jitter=jitter, overtaken=overtaken)}
    said = [(f"t{number % 2}", bytes([number])) for number in range(20)]
    heard = world({"ada": speaker(*said, wait=99.0), "bob": listener(20, "t0", "t1")}, conditions, seed=seed)[0]["bob"]
    numbers = [data[0] for data, _ in heard]
    assert sorted(numbers) == list(range(20))
    assert [n for n in numbers if n % 2] == list(range(1, 20, 2))
    assert [n for n in numbers if not n % 2] == list(range(0, 20, 2))


def test_some_overtake_some_are_lost_and_some_come_twice():
    conditions = {"bob": Conditions(loss=0.3, twice=0.3, overtaken=0.5)}
    said = [(f"t{number % 2}", bytes([number])) for number in range(100)]

    async def some(transport):
        async with transport.join("bob") as bob:
            await bob.subscribe("t0", "t1")
            heard = []
            try:
                async with asyncio.timeout(60):
                    while True:
                        heard += await receive(bob, 1)
            except TimeoutError:
                return [data[0] for data, _ in heard]

    ended, transport = world({"ada": speaker(*said), "bob": some}, conditions)
    numbers = ended["bob"]
    counts = transport.counts
    assert len(set(numbers)) == 100 - counts["lost"] < 100
    assert len(numbers) == 100 - counts["lost"] + counts["twice"] > len(set(numbers))
    assert numbers != sorted(numbers)


def test_a_short_cut_delays_and_loses_nothing():
    conditions = {"bob": Conditions(latency=0.1, cuts=((5.0, 15.0),))}
    lives = {"ada": speaker(("t", b"1"), ("t", b"2"), wait=6.0), "bob": listener(2, "t")}
    assert [when for _, when in world(lives, conditions)[0]["bob"]] == pytest.approx([15.1, 15.1])


def test_a_long_cut_ends_the_connection_at_both_ends_and_leaves_the_will():
    start = 5.0
    conditions = {"ada": Conditions(cuts=((start, start + 3 * KEEPALIVE),))}

    async def mute(transport):
        async with transport.join("ada", will=Will("will", b"gone")) as ada:
            await asyncio.sleep(6.0)
            with pytest.raises(TransportError, match="join again"):
                await ada.publish("t", b"lost")
            with pytest.raises(BrokerError):
                await transport.join("ada").__aenter__()
            await asyncio.sleep(3 * KEEPALIVE)
            async with transport.join("ada") as again:
                await again.publish("will", b"back")

    heard = world({"ada": mute, "bob": listener(2, "will")}, conditions)[0]["bob"]
    assert [data for data, _ in heard] == [b"gone", b"back"]
    assert heard[0][1] == pytest.approx(start + 1.5 * KEEPALIVE)


@pytest.mark.parametrize("kept", [True, False])
def test_a_broker_that_restarts_ends_all_connections_and_may_forget(kept):
    async def ada(transport):
        async with transport.join("ada", will=Will("will", b"gone")) as channel:
            await channel.publish("state", b"up", retain=True)
            with pytest.raises(TransportError):
                await anext(channel)
            with pytest.raises(BrokerError):
                await transport.join("ada").__aenter__()
        await asyncio.sleep(2.0)
        async with transport.join("ada") as channel:
            await channel.subscribe("#")
            try:
                async with asyncio.timeout(1.0):
                    return await anext(channel)
            except TimeoutError:
                return None

    found = world({"ada": ada}, restarts=(Restart(3.0, 1.0, kept=kept),))[0]["ada"]
    assert (found is not None and bytes(found.data) == b"up") is kept


def test_a_device_without_power_is_missed_by_the_keepalive_and_one_that_crashes_at_once():
    for crash, wait in (("lose_power", 1.5 * KEEPALIVE), ("abort", 0.0)):

        async def ada(transport, crash=crash):
            async with transport.join("ada", will=Will("will", b"gone")) as channel:
                await asyncio.sleep(4.0)
                getattr(channel, crash)()

        ((_, when),) = world({"ada": ada, "bob": listener(1, "will")})[0]["bob"]
        assert when == pytest.approx(4.0 + wait)


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(0, 5000)), max_size=30), st.integers(0, 9))
def test_what_is_sent_over_a_pipe_arrives_in_order_and_never_early(sent, seed):
    conditions = Conditions(latency=0.05, jitter=0.1, cuts=((10.0, 20.0), (22.0, 23.0)))
    pipe = FaultyPipe(conditions, bandwidth=1000.0, seed=seed, name="up")
    last = 0.0
    for now, size in sorted(sent):
        came = pipe.arrival(now, size=size)
        assert math.isfinite(came)
        assert came >= max(last, now + size / 1000.0 + 0.05 - 1e-9)
        assert not any(start <= came < end for start, end in conditions.cuts)
        last = came


def test_what_was_said_is_kept_only_where_somebody_is_to_know():
    def watched(transport):
        transport.said = {}
        return speaker(("news", b"one"))(transport)

    assert world({"ada": speaker(("news", b"one"))})[1].said is None
    assert world({"ada": watched})[1].said == {"ada": {b"one"}}
