"""A channel that outlives its connections, over brokers in memory; peer/failures/test_restarts.py has real ones."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from p2pfl.core.errors import AccessError, BrokerError, BusyError, RefusedError, TransportError
from p2pfl.network.transport import lasting
from p2pfl.network.transport.backoff import Backoff
from p2pfl.network.transport.channel import Message, Will
from p2pfl.network.transport.lasting import MAX_CONNECTIONS, LastingTransport
from p2pfl.network.transport.memory import MemoryChannel, MemoryTransport
from waiting import DEADLINE, pass_turns, wait_until

SOON = Backoff(first=0.001, largest=0.004, outage=60.0)


async def test_what_was_subscribed_retained_and_willed_is_there_again_after_a_restart():
    async with asyncio.timeout(DEADLINE):
        broker = MemoryTransport()
        lasts = LastingTransport([broker], backoff=SOON)
        async with lasts.join("ada", will=Will("ada/state", b"dead")) as ada, lasts.join("bob") as bob:
            await ada.subscribe("bob/+", "news")
            await ada.publish("ada/state", b"up", retain=True)
            await ada.publish("ada/old", b"x", retain=True)
            await ada.publish("ada/old", b"", retain=True)
            broker.restart()
            await bob.publish("bob/word", b"hello")
            await ada.publish("news", b"news")
            await ada.publish("gone", b"never")
            async with broker.join("cyd") as cyd:
                await cyd.subscribe("ada/#")
                assert await anext(cyd) == Message("ada/state", b"up", retained=True)
                heard = {(await anext(ada)).data}
                while b"news" not in heard:  # bob may have been back before ada could hear him
                    heard.add((await anext(ada)).data)
                assert heard <= {b"hello", b"news"}
                ada.abort()
                assert await anext(cyd) == Message("ada/state", b"dead", retained=False)


async def test_publishes_and_subscriptions_wait_until_the_broker_is_there_again():
    async with asyncio.timeout(DEADLINE):
        broker = MemoryTransport()
        async with LastingTransport([broker], backoff=SOON).join("ada") as ada:
            broker.stop()
            calls = [asyncio.ensure_future(call) for call in (ada.subscribe("b"), ada.publish("a", b"x"), anext(ada))]
            await pass_turns(50)
            assert not any(call.done() for call in calls)
            assert ada.away > 0
            broker.start()
            await asyncio.gather(*calls[:2])
            await ada.publish("b", b"y")
            assert (await calls[2]).data == b"y"
            assert ada.outages == 1


async def test_a_peer_that_starts_before_its_broker_waits_and_says_so_once():
    async with asyncio.timeout(DEADLINE):
        said = []
        broker = MemoryTransport()
        broker.stop()

        async def join():
            async with LastingTransport([broker], backoff=SOON, notice=said.append).join("ada") as ada:
                await ada.subscribe("a")
                await ada.publish("a", b"x")
                return (await anext(ada)).data, ada.outages, ada.lost

        joining = asyncio.create_task(join())
        await wait_until(lambda: said, "the wait for a broker is reported")
        await pass_turns(50)
        assert not joining.done()
        broker.start()
        assert await joining == (b"x", 0, False)
        [wait] = said
        assert isinstance(wait.error, BrokerError)
        assert wait.seconds == 60


async def test_a_peer_that_starts_without_a_broker_gives_up_after_the_outage():
    async with asyncio.timeout(DEADLINE):
        broker = MemoryTransport()
        broker.stop()
        short = Backoff(first=0.001, largest=0.004, outage=0.02)
        with pytest.raises(
            TransportError,
            match=r"the memory broker is stopped; start it; this peer gave up after 0\.02 s \(transport\.outage\)",
        ) as caught:
            async with LastingTransport([broker], backoff=short).join("ada"):
                pass
        assert caught.value.status == 1


async def test_without_an_outage_the_first_failure_to_connect_counts():
    async with asyncio.timeout(DEADLINE):
        said = []
        broker = MemoryTransport()
        broker.stop()
        with pytest.raises(BrokerError, match="the memory broker is stopped; start it") as caught:
            async with LastingTransport([broker], backoff=Backoff(outage=0.0), notice=said.append).join("ada"):
                pass
        assert caught.value.status == 2
        assert said == []


async def test_without_an_outage_a_lost_connection_is_not_opened_again():
    async with asyncio.timeout(DEADLINE):
        broker = MemoryTransport()
        async with LastingTransport([broker], backoff=Backoff(outage=0.0)).join("ada") as ada:
            broker.restart()
            with pytest.raises(TransportError, match=r"raise transport.outage"):
                await ada.publish("a", b"x")


@pytest.mark.parametrize("kind", [AccessError, RefusedError])
async def test_a_broker_that_refuses_us_at_the_first_connection_is_not_asked_again(kind):
    async with asyncio.timeout(DEADLINE):
        said = []
        strict = Strict(kind("expected to be let in, got: Not authorized"))
        strict.asked = 1
        with pytest.raises(kind, match="Not authorized"):
            async with LastingTransport([strict, MemoryTransport()], backoff=SOON, notice=said.append).join("ada"):
                pass
        assert (strict.asked, said) == (2, [])


class Busy:
    """A broker whose channels refuse so many subscriptions."""

    def __init__(self, refusals):
        self.broker, self.refusals = MemoryTransport(), refusals

    @asynccontextmanager
    async def join(self, client, *, will=None):
        async with self.broker.join(client, will=will) as channel:
            subscribe = channel.subscribe

            async def refuse(*filters):
                if self.refusals:
                    self.refusals -= 1
                    raise BusyError(f"mqtt://broker refuses the subscription {filters[0]} (Unspecified error)")
                await subscribe(*filters)

            channel.subscribe = refuse
            yield channel


async def test_a_subscription_that_a_busy_broker_refuses_is_asked_for_again():
    async with asyncio.timeout(DEADLINE):
        said = []
        busy = Busy(3)
        async with LastingTransport([busy], backoff=SOON, notice=said.append).join("ada") as ada:
            await ada.subscribe("a", "b")
            await ada.publish("b", b"x")
            assert (await anext(ada)).data == b"x"
            assert ada.outages == 0
        [wait] = said
        assert isinstance(wait.error, BusyError)
        assert wait.seconds == 60


async def test_a_subscription_that_is_refused_all_the_time_fails_after_the_outage():
    async with asyncio.timeout(DEADLINE):
        short = Backoff(first=0.001, largest=0.004, outage=0.02)
        async with LastingTransport([Busy(10**9)], backoff=short).join("ada") as ada:
            with pytest.raises(TransportError, match=r"refuses the subscription a .*gave up after 0.02 s"):
                await ada.subscribe("a")
        async with LastingTransport([Busy(1)], backoff=Backoff(outage=0.0)).join("ada") as ada:
            with pytest.raises(BusyError, match=r"refuses the subscription a"):
                await ada.subscribe("a")


async def test_a_broker_that_is_busy_after_its_restart_is_asked_again():
    async with asyncio.timeout(DEADLINE):
        busy = Busy(0)
        async with LastingTransport([busy], backoff=SOON).join("ada") as ada:
            await ada.subscribe("a")
            busy.refusals = 3
            busy.broker.restart()
            await ada.publish("a", b"x")
            assert (await anext(ada)).data == b"x"
            assert busy.refusals == 0


async def test_hope_is_given_up_after_the_outage_and_everybody_is_told():
    async with asyncio.timeout(DEADLINE):
        broker = MemoryTransport()
        short = Backoff(first=0.001, largest=0.004, outage=0.02)
        async with LastingTransport([broker], backoff=short).join("ada") as ada:
            broker.stop()
            for call in (ada.publish("a", b"x"), ada.subscribe("a"), anext(ada)):
                with pytest.raises(
                    TransportError,
                    match=(
                        r"there was no steady connection for 0\.02 s \(the memory broker is stopped; start it\); "
                        r"check the broker, or raise transport\.outage"
                    ),
                ):
                    await call


class Strict:
    """A broker that lets us in once, and then says no, or lets in and refuses."""

    def __init__(self, error):
        self.broker, self.error, self.asked = MemoryTransport(), error, 0

    @asynccontextmanager
    async def join(self, client, *, will=None):
        self.asked += 1
        if self.asked > 1:
            raise self.error
        async with self.broker.join(client, will=will) as channel:
            yield channel


@pytest.mark.parametrize("kind", [AccessError, RefusedError])
async def test_a_broker_that_refuses_us_is_not_asked_again(kind):
    async with asyncio.timeout(DEADLINE):
        strict = Strict(kind("expected to be let in, got: Not authorized"))
        async with LastingTransport([strict, MemoryTransport()], backoff=SOON).join("ada") as ada:
            await ada.subscribe("a")
            strict.broker.restart()
            for call in (anext(ada), ada.publish("a", b"x")):
                with pytest.raises(kind, match="Not authorized"):
                    await call
            await pass_turns(10)
        assert strict.asked == 2


async def test_a_refused_publish_is_no_loss(monkeypatch):
    async def refuse(*_, **__):
        raise RefusedError("expected to publish, got: Not authorized")

    async with asyncio.timeout(DEADLINE), LastingTransport([MemoryTransport()], backoff=SOON).join("ada") as ada:
        with monkeypatch.context() as patch:
            patch.setattr(MemoryChannel, "publish", refuse)
            with pytest.raises(RefusedError):
                await ada.publish("a", b"x")
        await ada.publish("a", b"x")
        assert ada.outages == 0


async def test_a_packet_that_ends_every_connection_is_named_with_the_setting(monkeypatch):
    publish = MemoryChannel.publish

    async def cut(channel, topic, data, **options):
        if len(data) > 100_000:
            channel.abort()
        await publish(channel, topic, data, **options)

    monkeypatch.setattr(MemoryChannel, "publish", cut)

    async with asyncio.timeout(DEADLINE), LastingTransport([MemoryTransport()], backoff=SOON).join("ada") as ada:
        with pytest.raises(
            TransportError,
            match=f"{MAX_CONNECTIONS} connections ended while publishing 200000 bytes on a .*lower transport.chunk",
        ):
            await ada.publish("a", bytes(200_000))
        await ada.publish("a", bytes(1000))


async def test_where_the_first_broker_is_gone_peers_meet_on_the_second_and_go_home_once_it_is_back(monkeypatch):
    monkeypatch.setattr(lasting, "RETURN_INTERVAL", 0.01)

    async with asyncio.timeout(DEADLINE):
        first, second = MemoryTransport(), MemoryTransport()
        lasts = LastingTransport([first, second], backoff=SOON)
        async with lasts.join("ada") as ada, lasts.join("bob") as bob:
            await bob.subscribe("news")
            first.stop()
            await bob.subscribe("more")  # there again
            await ada.publish("news", b"second")
            assert (await anext(bob)).data == b"second"
            assert set(second._broker.channels) == {"ada", "bob"}
            first.start()
            await wait_until(
                lambda: set(first._broker.channels) == {"ada", "bob"} and not second._broker.channels, "both are home"
            )
            await ada.publish("news", b"first")
            assert (await anext(bob)).data == b"first"
            assert ada.outages == 1


async def test_a_broker_that_takes_less_than_the_first_is_said_at_the_publish():
    async with asyncio.timeout(DEADLINE):
        first, second = MemoryTransport(limit=1000), MemoryTransport(limit=100)
        async with LastingTransport([first, second], backoff=SOON).join("ada") as ada:
            assert ada.limit == 1000
            first.stop()
            await ada.subscribe("a")
            assert ada.limit == 100
            with pytest.raises(
                TransportError, match="the payload of 500 bytes on a is over the limit of 100; send it in chunks"
            ):
                await ada.publish("a", bytes(500))


@pytest.mark.parametrize("count", range(12))
async def test_leaving_in_the_middle_of_an_outage_leaves_no_task_behind(count):
    async with asyncio.timeout(DEADLINE):
        others = asyncio.all_tasks()
        broker = MemoryTransport()
        async with LastingTransport([broker], backoff=Backoff(first=1e-9, largest=1e-9)).join("ada") as ada:
            reader = asyncio.ensure_future(anext(ada))
            await pass_turns(1)
            broker.restart()
            await pass_turns(count)
        with pytest.raises(TransportError, match="left"):
            await reader
        assert asyncio.all_tasks() <= others
        assert not broker._broker.channels
