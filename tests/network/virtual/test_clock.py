"""Time that jumps."""

import asyncio
from contextvars import copy_context

import pytest

from p2pfl.network.virtual.clock import WHO, StuckError
from worlds.network import Clock, FaultyLoop


def run(main, **clocks):
    loop = FaultyLoop(clocks)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop)), loop


def spawn(loop, who, coroutine):
    context = copy_context()
    context.run(WHO.set, who)
    return loop.create_task(coroutine, context=context)


def test_an_hour_passes_at_once_and_timers_fire_in_their_order():
    async def main(loop):
        seen = []

        async def later(seconds):
            await asyncio.sleep(seconds)
            seen.append((seconds, loop.now))

        await asyncio.gather(*(later(seconds) for seconds in (3600, 1, 60)))
        return seen

    assert run(main)[0] == [(1, 1.0), (60, 60.0), (3600, 3600.0)]


def test_callbacks_of_one_moment_run_first_come_first_served():
    async def main(loop):
        order = []
        done = loop.create_future()
        for number in range(20):
            loop.call_soon(order.append, number)
        loop.call_soon(done.set_result, None)
        await done
        return order

    assert run(main)[0] == list(range(20))


def test_a_fast_clock_sleeps_shorter_and_shows_what_it_counts():
    async def main(loop):
        async def nap():
            before = loop.time()
            await asyncio.sleep(10.0)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout_at(loop.time() + 10.0):
                    await loop.create_future()
            return before, loop.time(), loop.now

        return await spawn(loop, "ada", nap())

    before, after, now = run(main, ada=Clock(rate=2.0, offset=100.0))[0]
    assert (before, after, now) == (100.0, 120.0, 10.0)


def test_a_thread_runs_at_once_and_takes_the_time_it_says():
    async def main(loop):
        def work(number):
            loop.spent(7.0)
            return number + 1

        found = await asyncio.to_thread(work, 1)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        return found, loop.now

    assert run(main)[0] == (2, 7.0)


def test_what_a_paused_process_would_have_done_comes_afterwards_in_order():
    async def main(loop):
        seen = []

        async def tick():
            for number in range(4):
                await asyncio.sleep(1.0)
                seen.append((number, loop.now))

        ticking = spawn(loop, "ada", tick())
        await asyncio.sleep(1.5)
        loop.pause("ada", 10.0)
        await ticking
        return seen

    assert run(main)[0] == [(0, 1.0), (1, 11.5), (2, 12.5), (3, 13.5)]


def test_a_deadlock_is_an_error_and_not_for_ever():
    async def main(loop):
        await loop.create_future()

    with pytest.raises(StuckError, match="all peers wait and no event is scheduled, which is a deadlock"):
        run(main)
