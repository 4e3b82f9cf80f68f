"""The clock of a loop with several peers: it never decreases, and leaves out delays that all of them share."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.network.peer.launch import shared_loop, worker
from p2pfl.network.peer.launch.shared_loop import MAX_STEP, LoadClock, SharedLoop
from p2pfl.network.peer.updates import Alive

SECONDS = st.floats(0.0, 100.0)


@given(st.lists(st.tuples(SECONDS, st.none() | st.floats(-1.0, 10.0), SECONDS)))
def test_a_clock_never_decreases_and_never_runs_faster_than_time(turns):
    clock, now, last = LoadClock(0.0), 0.0, 0.0
    for busy, timeout, late in turns:
        for seconds in (busy / 2, busy / 2):
            now += seconds
            assert last <= clock.read(now) <= last + seconds + 1e-9
            last = clock.read(now)
        clock.sleep(now)
        assert clock.read(now) == pytest.approx(last)
        slept = late if timeout is None else max(timeout, 0.0) + late
        now += slept
        clock.wake(now, timeout=timeout)
        assert last - 1e-9 <= clock.read(now) <= last + slept + 1e-9
        last = clock.read(now)


def test_a_turn_and_a_delay_count_little_and_a_wait_counts_fully():
    clock = LoadClock(0.0)
    clock.sleep(20.0)
    clock.wake(25.0, timeout=5.0)
    assert clock.read(25.0) == pytest.approx(5.0 + MAX_STEP)
    clock.sleep(25.0)
    clock.wake(100.0, timeout=1.0)
    assert clock.read(100.0) == pytest.approx(6.0 + 2 * MAX_STEP)


@pytest.fixture
def work(monkeypatch):
    """Return a function after which so many seconds have passed, as if the loop had been busy."""
    passed = [0.0]
    for module in (shared_loop, worker):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: sum(passed)))
    return passed.append


def test_a_timeout_leaves_out_the_time_in_which_its_loop_was_busy(work):
    async def wait_for_an_answer():
        answer = asyncio.get_running_loop().create_future()
        time_left = asyncio.get_running_loop().time() + 2 * MAX_STEP
        async with asyncio.timeout_at(time_left):
            await asyncio.sleep(0)
            work(3 * MAX_STEP)
            asyncio.get_running_loop().call_soon(answer.set_result, "arrived")
            return await answer

    with asyncio.Runner(loop_factory=SharedLoop) as runner:
        assert runner.run(wait_for_an_answer()) == "arrived"


def test_a_process_whose_turns_are_long_gives_signs_of_life_in_the_time_of_its_parent(monkeypatch, work):
    monkeypatch.setattr(shared_loop, "MAX_STEP", 0.001)  # of each turn of 0.02 s
    monkeypatch.setattr(worker, "LIFE_SIGN_INTERVAL", 0.05)
    said = []

    async def learn():
        for _ in range(12):
            work(0.02)
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=worker.choose_loop(["ada", "bob"], 1, said.append)) as runner:
        runner.run(learn())
    assert said == [Alive("ada")] * 4  # after each third turn
    assert worker.choose_loop(["ada"], 1, said.append) is None
