"""A peer trains alone after its run, so that its owner sees what learning together gained."""

import asyncio

import msgspec
import pytest

from p2pfl.experiment import plan, read
from p2pfl.network.peer.launch import worker
from p2pfl.network.peer.launch.ended import summarise_peer
from p2pfl.network.peer.storage.credentials import Credentials
from p2pfl.network.peer.updates import Alone, Done
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import Identity, Roster, SeededSource
from p2pfl.results import Run
from p2pfl.simulation import simulate
from swarms import SMALL
from waiting import wait_until

NAMES = ("peer0", "peer1")
CHANGES = ["topology.kind=path", "topology.peers=2", "transport.broker=mqtt://none", "transport.gather=20"]


async def lived(experiment, folder, *, compare=()):
    """Return the events of peers that learn over a transport in memory."""
    identities = {name: Identity.generate(SeededSource(number), peer=name) for number, name in enumerate(NAMES)}
    roster = Roster({name: identity.public for name, identity in identities.items()})
    transport, events = MemoryTransport(), []

    def begin(name):
        (folder / name / "peers").mkdir(parents=True)
        how = {"urls": [], "folder": folder / name, "owned": Credentials(identities[name], roster)}
        local = plan(experiment, only=[name])
        return worker.live(local, name, notify=events.append, transport=transport, compare=name in compare, **how)

    await asyncio.wait_for(asyncio.gather(*map(begin, NAMES)), 60)
    return events


@pytest.mark.slow
async def test_the_scores_alone_are_those_that_the_simulation_compares_with(tmp_path):
    experiment = read(SMALL, changes=CHANGES)
    events = await lived(experiment, tmp_path, compare=["peer0"])
    [found] = [event for event in events if isinstance(event, Alone)]
    [done] = [event for event in events if isinstance(event, Done) and event.peer == "peer0"]
    assert events.index(done) < events.index(found)
    expected = simulate(experiment).summary["per_peer"]["peer0"]
    assert found.peer == "peer0"
    assert found.scores["accuracy"] == expected["alone"]
    summary = summarise_peer(plan(experiment, only=["peer0"]), done, alarms=(), run=Run(experiment), alone=found)
    assert (summary.alone, summary.scores["accuracy"]) == (found.scores, expected["together"])
    assert summary.intervals.keys() == {"loss", "accuracy"}
    assert msgspec.to_builtins(summary.intervals["accuracy"]) == expected["interval"]


@pytest.mark.slow
async def test_the_summary_of_a_peer_has_the_importances_of_the_model(tmp_path):
    trees = ["data.name=breast_cancer", "model.name=boosting", "privacy.mode=none", "rounds=2"]
    experiment = read({}, changes=[*CHANGES, *trees])
    events = await lived(experiment, tmp_path)
    [done] = [event for event in events if isinstance(event, Done) and event.peer == "peer1"]
    summary = summarise_peer(plan(experiment, only=["peer1"]), done, alarms=(), run=Run(experiment))
    assert summary.explained.importances
    found = msgspec.json.decode(msgspec.json.encode(summary.explained))
    assert found == simulate(experiment, baselines=False).summary["explained"]


async def test_training_alone_can_be_cancelled_between_rounds(monkeypatch):
    made = []

    def training(learner, peers, *, rounds):
        del peers
        yield learner
        for round in range(rounds):
            made.append(round)
            yield learner

    monkeypatch.setattr(worker, "train_alone", training)
    task = asyncio.create_task(worker._train_alone("learner", "ada", rounds=10**9))
    await wait_until(lambda: made, "training begins")
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
