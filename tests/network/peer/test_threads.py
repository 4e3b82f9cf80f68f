"""Times of training and idle times."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
import torch

from p2pfl.network.peer import threads
from p2pfl.network.peer.launch import shared_loop
from p2pfl.network.peer.launch.shared_loop import SharedLoop
from p2pfl.network.peer.threads import Threaded
from waiting import DEADLINE, wait_until

SECONDS = 0.05


class Slow:
    """A learner whose work ends when it is told, and then has taken a while."""

    def __init__(self):
        self.now = 0.0
        self.end = threading.Semaphore(0)

    def clock(self):
        return self.now

    def work(self):
        assert self.end.acquire(timeout=DEADLINE)
        self.now += SECONDS

    def fit(self, rows, **options):
        del options
        self.work()
        return SimpleNamespace(rows=rows)

    def gradient(self, rows, **options):
        del options
        self.work()
        return rows


def test_the_wait_for_a_thread_is_no_training_and_is_not_idle_either(monkeypatch):
    slow = Slow()
    for module in (threads, shared_loop):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=slow.clock, perf_counter=slow.clock))
    peers = [Threaded(slow) for _ in range(4)]
    rows = torch.zeros(1, 2)

    def trained():
        return sum(peer.seconds for peer in peers)

    async def train(peer):
        before = peer.idle_clock()
        await peer.fit(rows, round=0)
        await peer.gradient(rows)
        return peer.idle_clock() - before

    async def train_all():
        training = asyncio.gather(*map(train, peers))
        for ended in range(2 * len(peers)):
            await wait_until(lambda all=ended * SECONDS: trained() > all - SECONDS / 2, "a training ends")
            slow.end.release()
        return await training

    with asyncio.Runner(loop_factory=lambda: SharedLoop(1)) as runner:
        idle = runner.run(train_all())
    assert [peer.seconds for peer in peers] == pytest.approx([2 * SECONDS] * 4)
    assert trained() == pytest.approx(slow.now)  # they share one thread
    assert idle == pytest.approx([0.0] * 4)
