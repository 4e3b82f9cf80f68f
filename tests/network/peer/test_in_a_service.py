"""A peer inside a service: it never holds up the loop, and a service may observe and cancel it.

Time is that of the processor in the loop's thread, as a busy machine makes a clock useless.
"""

import asyncio
import gc
import time
from asyncio import events

import pytest

from p2pfl import MemoryTransport, Peer, plan, read
from p2pfl.core.errors import P2PFLError
from waiting import wait_until

MAX_BLOCK = 0.05
"""Seconds of the processor for which one turn may hold up the loop."""

LINEAR = {
    "name": "service",
    "rounds": 6,
    "data": {"name": "synthetic"},
    "model": {"name": "linear"},
    "topology": {"kind": "ring", "peers": 3},
    "learning": {"device": "cpu"},
}
NETWORK = {"data": {"name": "digits"}, "model": {"name": "mlp", "hidden": [64]}, "privacy": {"mode": "pairwise"}}
TOTALS = {
    "data": {"name": "wine"},
    "model": {"name": "forest"},
    "privacy": {"mode": "pairwise"},
    "rounds": 4,
    "topology": {"kind": "complete", "peers": 3},
    "learning": {},
}


@pytest.fixture
def blocks(monkeypatch):
    """Return the seconds of the processor that each turn of a loop takes, longest first, with what it ran."""
    found = []
    turn = events.Handle._run

    def timed(handle):
        begun = time.thread_time()
        try:
            return turn(handle)
        finally:
            found.append((time.thread_time() - begun, repr(handle)[:200]))

    monkeypatch.setattr(events.Handle, "_run", timed)
    gc.collect()
    gc.freeze()  # what other tests have left takes the collector longer than a service of its own
    return found


async def start(experiment, names, **options):
    """Prepare the peers off the loop, and return their tasks."""
    transport = MemoryTransport()

    def prepare(name):
        return Peer(name, plan(experiment, only=[name]), transport=transport, **options.get(name, {}))

    async def live(prepared):
        async with prepared as peer:
            return await peer.run()

    prepared = {name: await asyncio.to_thread(prepare, name) for name in names}
    return {name: asyncio.create_task(live(each)) for name, each in prepared.items()}


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, NETWORK, TOTALS], ids=["linear", "masked network", "model from totals"])
async def test_planning_starting_and_learning_never_hold_up_the_loop(blocks, changes):
    experiment = read(LINEAR | changes)
    blocks.clear()
    tasks = await start(experiment, [f"peer{number}" for number in range(3)])
    async with asyncio.timeout(300):
        await asyncio.gather(*tasks.values())
    assert blocks
    assert max(blocks)[0] < MAX_BLOCK, max(blocks)


async def test_a_service_observes_rounds_and_cancels_its_peer_while_the_others_go_on():
    seen = []

    def observe(record, state):
        seen.append((record.round, state.rows.shape[0]))

    changes = {"rounds": 3000, "transport": {"patience": 5.0, "gather": {"quorum": 0.3}}}
    tasks = await start(read(LINEAR | changes), ["peer0", "peer1", "peer2"], peer0={"observe": observe})
    await wait_until(lambda: len(seen) > 2, "the peer learns")
    assert seen[:2] == [(0, 1), (1, 1)]
    tasks["peer0"].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks["peer0"]
    assert not tasks["peer1"].done()
    for name in ("peer1", "peer2"):
        tasks[name].cancel()
    ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError | P2PFLError) for each in ended)
