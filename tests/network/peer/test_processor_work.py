"""Work that heartbeats state: processor time of computations, and not of the event loop."""

import asyncio
import threading
import time

import pytest

from p2pfl.network.peer.connection import work_of
from p2pfl.network.virtual.clock import VirtualLoop


@pytest.mark.slow
async def test_work_grows_while_a_thread_computes_and_not_while_it_hangs_and_the_loop_is_busy():
    work = work_of(asyncio.get_running_loop())
    before, hung = work(), threading.Event()

    def compute():
        own = time.thread_time()
        while time.thread_time() < own + 0.5:
            sum(range(1000))

    await asyncio.to_thread(compute)
    assert work() >= before + 4
    hanging = asyncio.create_task(asyncio.to_thread(hung.wait))
    await asyncio.sleep(0)
    before = work()
    compute()
    assert work() <= before + 1
    hung.set()
    await hanging


def test_work_in_virtual_time_is_virtual_time():
    loop = VirtualLoop()
    work = work_of(loop)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(asyncio.sleep(7.0))
    assert work() == 70
