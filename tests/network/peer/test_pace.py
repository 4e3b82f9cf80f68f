"""Peers that pause between rounds, in virtual time."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
import torch

from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.privacy.keys import FIRST, SeededSource
from p2pfl.results.notices.kinds import JoinsLate
from p2pfl.simulation import simulate
from swarms import SMALL
from virtual_fleet import RING, Fleet, run
from waiting import wait_until

MASKS = ["privacy.mode=pairwise", "privacy.mask=30.0", "privacy.partners=1", "privacy.departures=go_on"]


async def played(changes, folder, **options):
    fleet = Fleet(changes, folder, **options)
    fleet.start(incarnation=FIRST)
    await fleet.end()
    return fleet


def models(fleet):
    return {name: end.peer.plan.learner.state_dict(end.state.rows[0]) for name, end in fleet.ended.items()}


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("masks", [[], MASKS], ids=["plain", "masks"])
def test_rounds_begin_at_the_pace_and_the_models_are_those_of_a_simulation(tmp_path, masks):
    changes = ['transport.pace={every = "10 min"}', *masks]
    fleet = run(played, changes, tmp_path)
    for name in fleet.names:
        assert [later - earlier for earlier, later in pairwise(fleet.seconds(name))] == pytest.approx(
            [600.0] * 3, abs=2
        )
    simulated = simulate(read(SMALL, changes=[*RING, *changes]), source=SeededSource(5), baselines=False).models
    for name, tensors in models(fleet).items():
        for key, tensor in tensors.items():
            torch.testing.assert_close(tensor, simulated[name][key], rtol=0, atol=2.0**-16 if masks else 1e-12)


def test_rounds_begin_within_the_hours_of_the_day(tmp_path):
    pace = 'transport.pace={every = "40 min", hours = "13:00-14:00"}'
    fleet = run(played, [pace, "topology.peers=2", "rounds=3"], tmp_path)
    hours = [each / 3600 + 12 for each in fleet.seconds()]
    assert hours == pytest.approx([13, 13 + 2 / 3, 37], abs=0.01)


def test_heartbeats_are_rare_in_a_pause_and_nobody_suspects_anybody(tmp_path):
    fleet = run(played, ['transport.pace={every = "1 h"}', "rounds=3"], tmp_path)
    assert all(not record.missed for records in fleet.records.values() for record in records)
    spent = fleet.records["peer0"][2].bytes_out - fleet.records["peer0"][1].bytes_out
    assert spent < 60_000  # an hour of heartbeats each second takes 300 kB


@pytest.mark.parametrize("skews", [{"peer1": 30.0}, {"peer1": -45.0, "peer2": 20.0}], ids=["ahead", "both"])
def test_peers_whose_clocks_differ_by_less_than_a_minute_play_all_rounds_together(tmp_path, skews):
    fleet = run(played, ['transport.pace={every = "1 h", hours = "13:00-16:00"}'], tmp_path, skews=skews)
    assert all(not record.missed for records in fleet.records.values() for record in records)
    apart = zip(*(fleet.seconds(name) for name in fleet.names), strict=True)
    assert all(max(each) - min(each) < 2 for each in apart)


def paused(peers):
    return all(peer.progress.phase == "paused" for peer in peers.values())


async def until(fleet, when):
    """Wait until a condition holds of the present peers, without a thousand turns of an idle loop each second."""
    await wait_until(lambda: when(fleet.now), "peers are where the test needs them", every=1.0)


@pytest.mark.parametrize("masks", [[], MASKS], ids=["plain", "masks"])
def test_a_pause_survives_a_restart_of_all(tmp_path, masks):
    async def restarted():
        fleet = Fleet(['transport.pace={every = "10 min"}', *masks], tmp_path)
        fleet.start()
        await until(fleet, lambda now: paused(now) and all(peer.done == 2 for peer in now.values()))
        await asyncio.sleep(200.0)
        await fleet.kill()
        fleet.start(resume=True)
        await fleet.end()
        return fleet

    fleet = run(restarted)
    for name in fleet.names:
        assert [later - earlier for earlier, later in pairwise(fleet.seconds(name))] == pytest.approx(
            [600.0] * 3, abs=2
        )


@pytest.mark.parametrize("masks", [[], MASKS], ids=["plain", "masks"])
def test_one_who_comes_back_in_a_pause_joins_the_next_round_and_does_not_begin_it_early(tmp_path, masks):
    async def one():
        fleet = Fleet(['transport.pace={every = "10 min"}', "rounds=5", *masks], tmp_path)
        fleet.start()
        await until(fleet, lambda now: paused(now) and all(peer.done == 2 for peer in now.values()))
        await fleet.kill("peer1")
        await asyncio.sleep(100.0)
        fleet.start("peer1", resume=True)
        await fleet.end()
        return fleet

    fleet = run(one)
    late = [notice.round for notice in fleet.notices if isinstance(notice, JoinsLate)]
    assert late == ([3] if masks else [])  # under masks it is a member once the others have agreed on it in a round
    assert fleet.ended["peer1"].peer.done == 5
    for name in ("peer0", "peer2", "peer3"):
        assert [later - earlier for earlier, later in pairwise(fleet.seconds(name))] == pytest.approx(
            [600.0] * 4, abs=5
        )


def test_a_pause_ends_at_once_when_the_peer_is_cancelled(tmp_path):
    async def cancelled():
        fleet = Fleet(['transport.pace={every = "2 h"}'], tmp_path)
        fleet.start()
        await until(fleet, paused)
        now = asyncio.get_running_loop().time()
        await fleet.kill()
        return asyncio.get_running_loop().time() - now, {name: peer.done for name, peer in fleet.now.items()}

    seconds, done = run(cancelled)
    assert seconds < 1
    assert set(done.values()) == {1}


def test_peers_without_a_last_round_go_on_until_they_are_stopped_and_again_when_they_are_resumed(tmp_path):
    async def stopped():
        fleet = Fleet(['transport.pace={every = "10 min"}', "rounds=endless", "topology.peers=3"], tmp_path)
        fleet.start()
        await until(fleet, lambda now: all(peer.done == 20 for peer in now.values()))
        await fleet.kill()
        fleet.start(resume=True)
        await until(fleet, lambda now: all(peer.done == 25 for peer in now.values()))
        await fleet.kill()
        return fleet

    fleet = run(stopped)
    assert [later - earlier for earlier, later in pairwise(fleet.seconds())] == pytest.approx([600.0] * 24, abs=2)


def test_a_clock_that_was_ahead_and_is_set_right_costs_a_peer_no_round(tmp_path):
    async def right():
        fleet = Fleet(['transport.pace={every = "10 min"}', "rounds=6", "topology.peers=3"], tmp_path)
        clock = fleet.clock
        ahead = timedelta(days=5)
        fleet.skews["peer1"] = ahead.total_seconds()
        fleet.start()
        await until(fleet, lambda now: all(peer.done == 2 for peer in now.values()) and paused(now))
        fleet.now["peer1"]._now = clock
        await fleet.end()
        return fleet

    fleet = run(right)
    assert all(not record.missed for records in fleet.records.values() for record in records)
    assert fleet.seconds("peer1") == pytest.approx(fleet.seconds("peer0"), abs=2)


@pytest.mark.nightly
async def test_rounds_over_mosquitto_begin_a_second_apart_at_least():
    """The first begin of a round is that of the leader; a loaded machine makes intervals longer, never shorter."""
    program = mosquitto() or pytest.skip("mosquitto is not installed")
    plain = Program(program.kind, program.command, lambda host, port: f"listener {port} {host}\nallow_anonymous true\n")
    experiment = read(SMALL, changes=[*RING, 'transport.pace={every = "1 s"}', "rounds=5", "topology.peers=3"])
    begins = {}

    def peer(name, transport):
        def observe(record, _):
            begins.setdefault(record.round, []).append(made.rounds.pauses.position.began)

        made = Peer(name, plan(experiment, only=[name]), transport=transport, incarnation=FIRST, observe=observe)
        return made

    async def played(name, transport):
        async with peer(name, transport) as made:
            await made.run()

    with run_program(plain, host="127.0.0.1", port=0) as broker:
        async with asyncio.timeout(240), asyncio.TaskGroup() as tasks:
            for name in ("peer0", "peer1", "peer2"):
                tasks.create_task(played(name, MqttTransport(broker.url)))
    assert {round: len(times) for round, times in begins.items()} == dict.fromkeys(range(5), 3)
    firsts = [min(begins[round]) for round in range(5)]
    assert min(after - before for before, after in pairwise(firsts)) >= 1.0
    assert firsts[-1] - firsts[0] < 120
