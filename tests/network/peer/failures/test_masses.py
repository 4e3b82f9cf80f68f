"""Live peers of running sums of which one dies, or comes back: what they state of it at their end."""

import asyncio
from operator import attrgetter

import pytest
import torch

from lives import Held, Lives, begun
from p2pfl.experiment import read
from p2pfl.network.peer.storage.checkpoint import Store
from p2pfl.network.transport import MemoryTransport
from p2pfl.results.notices.damage import WeightLost
from p2pfl.results.notices.masses import account
from swarms import SMALL

RING = ["topology.kind=ring", "topology.peers=4", "rounds=6", "learning.algorithm=robust_sgp"]


async def outcome(changes, folder, *, silently=False, again=False):
    """Learn in a ring whose peer1 dies in the training of round 3, and comes back once the others are in round 5."""
    experiment = read(SMALL, changes=[*RING, *changes])

    async with asyncio.timeout(60):
        lives = Lives(experiment, MemoryTransport(), folder)
        lives.start()
        held = Held(lives.now["peer1"], round=3)
        others = [Held(lives.now[name], round=5) for name in ("peer0", "peer2", "peer3")]
        await held.reached.wait()
        await lives.until(lambda _now: all(len(records) == 3 for records in lives.records.values()))
        await lives.kill("peer1", silently=silently)
        del lives.tasks["peer1"]
        for each in others:
            await each.reached.wait()
        if again:
            lives.start("peer1", resume=True)
            await lives.until(lambda now: begun(now["peer1"]))
        for each in others:
            each.go.set()
        return await lives.end(), lives


def masses(state):
    return float(state.extra["mass"])


@pytest.mark.slow
@pytest.mark.parametrize("silently", [False, True], ids=["the broker tells", "nobody tells"])
async def test_survivors_state_what_a_death_took(silently, tmp_path):
    ended, lives = await outcome([f"transport.patience={2.0 if silently else 20.0}"], tmp_path, silently=silently)
    said = {name: end.peer.ended.given for name, end in ended.items()}
    assert {name: end.peer.ended.vanished for name, end in ended.items()} == {
        "peer0": {"peer1"},
        "peer2": {"peer1"},
        "peer3": set(),
    }
    lost = [each for each in lives.notices if isinstance(each, WeightLost)]
    assert sorted(lost, key=attrgetter("peer")) == [
        WeightLost(peer=name, neighbour="peer1", weight=said[name]["peer1"]) for name in ("peer0", "peer2")
    ]
    found = account(ended["peer0"].peer.plan, said)
    assert found["held"] == pytest.approx(sum(masses(end.state) for end in ended.values()))
    assert found["on_its_way"] == pytest.approx(0.0)
    dead = Store(tmp_path, "peer1").former().kept[0].state  # as it was after three rounds
    assert dead.extra["seen"][0, :, -1].tolist() != [0.0, 0.0]
    total = {name: float(end.state.extra["total"][0, -1]) for name, end in ended.items()}
    way = total["peer0"] + total["peer2"] - float(dead.extra["seen"][0, :, -1].sum())  # to it; all of its own came
    assert found["lost"] == [{"peers": ["peer1"], "mass": pytest.approx(masses(dead) + way)}]
    assert found["statement"].startswith("of a total weight of 4 the death of peer1 took ")


@pytest.mark.slow
async def test_who_comes_back_is_no_loss_and_has_what_it_had(tmp_path):
    """It holds the same model as all: no step moves any row, and whatever is given moves none either."""
    ended, lives = await outcome(["learning.rate=1e-14"], tmp_path, again=True)
    assert [record.round for record in lives.records["peer1"]] == [0, 1, 2, 5]
    assert not any(isinstance(each, WeightLost) for each in lives.notices)
    assert not any(end.peer.ended.vanished for end in ended.values())
    begin = ended["peer0"].peer.plan.learner.start(("peer0",))
    for end in ended.values():
        assert torch.allclose(end.state.rows, begin, rtol=0, atol=1e-10)
    found = account(ended["peer0"].peer.plan, {name: end.peer.ended.given for name, end in ended.items()})
    assert found["lost"] == []
    assert sum(masses(end.state) for end in ended.values()) + found["on_its_way"] == pytest.approx(4.0)


@pytest.mark.slow
async def test_where_nobody_dies_nothing_is_said_and_all_masses_are_held(tmp_path):
    experiment = read(SMALL, changes=[*RING, "rounds=2"])

    async with asyncio.timeout(60):
        lives = Lives(experiment, MemoryTransport(), tmp_path)
        lives.start()
        ended = await lives.end()
    assert not any(isinstance(each, WeightLost) for each in lives.notices)
    found = account(ended["peer0"].peer.plan, {name: end.peer.ended.given for name, end in ended.items()})
    assert found == {"of": 4, "held": pytest.approx(4.0), "on_its_way": pytest.approx(0.0), "lost": [], "statement": ""}
