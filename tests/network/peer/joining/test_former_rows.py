"""Former models of peers that come back late, and the flows that were owed to them."""

import asyncio

import pytest

from virtual_fleet import Fleet, run

COMPLETE = ["topology.kind=complete", "topology.peers=3", "gossip.steps=1", "rounds=56", "model.name=linear"]
PACE = 'transport.pace={every = "10 min"}'

pytestmark = pytest.mark.slow


async def killed_often(changes, folder):
    """Kill one of three after three rounds each time, before it reports to its partners what it has applied."""
    fleet = Fleet([*COMPLETE, PACE, *changes], folder)
    fleet.start()
    await asyncio.sleep(1500)
    for _ in range(10):
        await fleet.kill("peer1")
        await asyncio.sleep(1260)  # two rounds without it
        fleet.start("peer1", resume=True)
        await asyncio.sleep(1740)
    await fleet.end()
    return fleet


@pytest.mark.parametrize("weighted", ["true", "false"])
def test_who_comes_back_every_few_rounds_has_the_models_of_the_others(weighted, tmp_path):
    apart = run(killed_often, [f"learning.weighted={weighted}"], tmp_path).apart()
    assert len(apart) > 30
    assert max(apart.values()) <= 1e-9, apart  # on a complete graph each has the mean of all


async def killed_once(folder):
    """Kill one of three; it comes back in the pause after the one round that it missed."""
    fleet = Fleet([*COMPLETE, "rounds=8", PACE], folder)
    fleet.start()
    await asyncio.sleep(1500)
    await fleet.kill("peer1")
    await asyncio.sleep(660)
    fleet.start("peer1", resume=True)
    await fleet.end()
    return fleet


def test_who_comes_back_in_the_pause_after_the_round_it_missed_keeps_up_with_the_others(tmp_path):
    fleet = run(killed_once, tmp_path)
    ends = {
        name: {each.round: round(at) for each, at in zip(fleet.records[name], fleet.seconds(name), strict=True)}
        for name in fleet.names
    }
    assert ends["peer0"] == ends["peer2"] == {each: 600 * each for each in range(8)}
    assert ends["peer1"] == {each: at for each, at in ends["peer0"].items() if each != 3}
