"""Times of training and idle times."""

import asyncio
import time

import torch

from p2pfl.network.peer.launch.shared_loop import SharedLoop
from p2pfl.network.peer.threads import Threaded

SECONDS = 0.05


class Slow:
    """A learner that takes a while."""

    def fit(self, rows, **options):
        del options
        time.sleep(SECONDS)
        return type("Fitted", (), {"rows": rows})

    def gradient(self, rows, **options):
        del options
        time.sleep(SECONDS)
        return rows


def test_the_wait_for_a_thread_is_no_training_and_is_not_idle_either():
    peers = [Threaded(Slow()) for _ in range(4)]
    rows = torch.zeros(1, 2)

    async def train(peer):
        before = peer.idle_clock()
        await peer.fit(rows, round=0)
        await peer.gradient(rows)
        return peer.idle_clock() - before

    async def train_all():
        begun = time.perf_counter()
        idle = await asyncio.gather(*map(train, peers))
        return time.perf_counter() - begun, idle

    with asyncio.Runner(loop_factory=lambda: SharedLoop(1)) as runner:
        whole, idle = runner.run(train_all())
    assert all(peer.seconds >= 2 * SECONDS for peer in peers)
    assert sum(peer.seconds for peer in peers) <= whole  # they share one thread
    assert all(abs(each) < SECONDS for each in idle)
