"""Live peers that wait for nobody."""

import asyncio
import threading
from functools import cache

import pytest
import torch

from model_messages import message_of
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.protocol.incoming.mailbox import Newest
from p2pfl.network.protocol.wire.envelope import CONTROL, SEALED
from p2pfl.network.protocol.wire.wire_rows import Head, encode_row, read_row
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.broker import embedded
from swarms import DEADLINE, SMALL, live

UNHURRIED = {key: value for key, value in SMALL.items() if key != "gossip"}
GOSSIP = ["learning.algorithm=gossip_learning", "rounds=8"]
TURNS = ["topology.kind=one_peer_exponential", "topology.peers=8"]
ROW = torch.ones(1)

# ---------------------------------------------------------------------- the mailbox


def head(round, step=0):
    return Head(round, step, "float32", 1)


@pytest.fixture
def mailbox():
    box = Newest()
    for sender in ("ada", "bob"):
        box.know(sender)
    box.open((3, 0), ["bob", "ada"])
    return box


def test_whatever_cycle_a_row_is_of_it_is_taken_once(mailbox):
    assert mailbox.deliver("ada", head(0), ROW) == "kept"
    assert mailbox.deliver("bob", head(90), ROW) == "kept"
    assert [(sender, came.head.round) for sender, came in mailbox.collect().items()] == [("ada", 0), ("bob", 90)]
    assert mailbox.collect() == {}


def test_a_newer_row_takes_the_place_of_one_that_waits(mailbox):
    assert [mailbox.deliver("ada", head(cycle), ROW) for cycle in range(100)] == ["kept"] * 100
    assert [came.head.round for came in mailbox.collect().values()] == [99]


def test_the_next_life_of_a_sender_may_count_from_lower(mailbox):
    mailbox.deliver("ada", head(500), ROW)
    mailbox.forget("ada")
    mailbox.know("ada")
    assert mailbox.deliver("ada", head(101), ROW) == "kept"


@pytest.mark.parametrize("taken", [False, True])
def test_an_older_row_is_late_and_the_same_a_duplicate(mailbox, taken):
    mailbox.deliver("ada", head(5), ROW)
    if taken:
        mailbox.collect()
    assert mailbox.deliver("ada", head(4), ROW) == "late"
    assert mailbox.deliver("ada", head(5), ROW) == "duplicate"
    assert len(mailbox.collect()) == (not taken)


def test_what_waits_outlives_the_own_cycle(mailbox):
    mailbox.deliver("ada", head(1), ROW)
    mailbox.close()
    mailbox.open((4, 0), ["bob", "ada"])
    assert list(mailbox.collect()) == ["ada"]


@pytest.mark.parametrize("large", [False, True])
def test_all_neighbours_may_always_send_and_none_is_waited_for(mailbox, large):
    mailbox.large = large
    for cycle in range(50):
        mailbox.deliver("ada", head(cycle), ROW)
    assert mailbox.may_send("ada")
    assert mailbox.may_send("bob")
    assert not mailbox.may_send("eve")
    assert mailbox.deliver("eve", head(0), ROW) == "stranger"
    assert mailbox.missing() == []


def test_two_rows_of_one_cycle_prove_a_lie_however_far_ahead_the_sender_is(mailbox):
    def tell(cycle, value):
        parts = encode_row(torch.full((5,), float(value)), round=cycle, step=0)
        head, row, said, *_ = read_row(message_of(parts))
        return mailbox.deliver("ada", head, row, signed=said)

    assert {tell(cycle, 1) for cycle in range(1000, 1030)} == {"kept"}
    assert tell(1029, 1) == "duplicate"
    assert tell(1029, 2) == "equivocation"
    assert set(mailbox.proofs) == {"ada"}
    assert mailbox.collect() == {}
    assert not mailbox.may_send("ada")


# ---------------------------------------------------------------------- peers


@pytest.fixture(scope="module")
def broker():
    with embedded() as running:
        yield running


def replayed(resolved, arrivals, peer, cycles):
    """The model of a peer, from who heard which rows when: every cycle by itself, in no order of time."""

    @cache
    def trained(peer, cycle):
        row, age = merged(peer, cycle - 1)
        fitted = resolved.learner.fit(row, peers=(peer,), round=cycle)
        return fitted.rows, age + int(fitted.report.steps)

    @cache
    def merged(peer, cycle):
        if cycle < 0:
            return resolved.learner.start((peer,)), 0
        models = [trained(peer, cycle), *(trained(*sent) for sent in arrivals[peer][cycle])]
        ages = [age for _, age in models]
        return sum(row * age for row, age in models) / sum(ages), max(ages)

    return merged(peer, cycles - 1)


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("changes", [[], TURNS, ["transport.chunk=1024"]], ids=["graph", "one at a time", "chunks"])
@pytest.mark.parametrize("carrier", ["memory", "broker"])
async def test_live_peers_end_where_the_arrivals_that_they_had_lead(monkeypatch, broker, carrier, changes):
    experiment = read(UNHURRIED, changes=[*GOSSIP, *changes])
    collect, arrivals = Newest.collect, {}

    def recorded(mailbox):
        came = collect(mailbox)
        owner = next(name for name, peer in alive.items() if peer.mailbox is mailbox)
        arrivals.setdefault(owner, []).append([(sender, row.head.round) for sender, row in came.items()])
        return came

    monkeypatch.setattr(Newest, "collect", recorded)
    alive = {}
    transport = MemoryTransport() if carrier == "memory" else connect(experiment, urls=[broker.url], peer="all")
    ended = await live(experiment, transport, alive=alive)
    resolved = plan(experiment)
    assert any(came for cycles in arrivals.values() for came in cycles)
    for name, end in ended.items():
        assert [record.round for record in end.records] == list(range(8))
        assert [record.received for record in end.records] == [len(came) for came in arrivals[name]]
        row, age = replayed(resolved, arrivals, name, 8)
        assert (end.state.rows - row).abs().max() < 1e-10
        assert end.state.extra["age"].item() == age


class Held:
    """A learner that does not go on before it is told."""

    def __init__(self, learner):
        self.inner = learner
        self.free = threading.Event()

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def fit(self, *args, **kwargs):
        assert self.free.wait(DEADLINE)
        return self.inner.fit(*args, **kwargs)


@pytest.mark.slow
async def test_a_peer_that_hangs_in_training_slows_nobody_and_ends_its_cycles_when_the_others_have_gone():
    experiment = read(UNHURRIED, changes=[*GOSSIP, "topology.kind=complete", "transport.patience=inf"])
    heard = []

    async def main():
        transport, slow, done = MemoryTransport(), None, {}

        async def one(name, life):
            nonlocal slow
            peer = Peer(name, plan(experiment, only=[name]), transport=transport, incarnation=life)
            if name == "peer0":
                slow = peer.training.learner = Held(peer.training.learner)
                peer.observe = lambda record, _: heard.append(record.received)
            async with peer:
                done[name] = await peer.run()

        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(f"peer{life}", life)) for life in range(6)]
            await asyncio.wait(running[1:])
            assert sorted(done) == [f"peer{number}" for number in range(1, 6)]
            slow.free.set()
        return done

    done = await main()
    assert len(done) == 6
    assert heard == [5, *[0] * 7]  # the last row of each neighbour waits for the first cycle, and none comes twice
    others = max(done[name].extra["age"].item() for name in done if name != "peer0")
    assert done["peer0"].extra["age"].item() > others


@pytest.mark.slow
async def test_rows_that_never_arrive_hold_nobody_up():
    experiment = read(UNHURRIED, changes=[*GOSSIP, "transport.patience=inf"])

    def lose(client, message):
        sealed = message.data[:1] == bytes([SEALED]) and message.data[1:5] != CONTROL.to_bytes(4, "little")
        return sealed and client.split("-")[1] == "peer0"

    transport, records = MemoryTransport(lose=lose), []
    finished = asyncio.Event()

    def note(record, _):
        records.append(record.round)
        if records.count(7) == 6:
            finished.set()

    async def one(name, life):
        peer = Peer(name, plan(experiment, only=[name]), transport=transport, incarnation=life, observe=note)
        async with peer:
            await peer.run()

    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(f"peer{life}", life)) for life in range(6)]
        await finished.wait()
        for task in running:  # goodbyes wait for what is under way, as long as patience lasts
            task.cancel()
    assert sorted(records) == sorted(list(range(8)) * 6)
