"""Events of real runs give the state that their summary has."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from p2pfl.experiment import read
from p2pfl.network.virtual.forecast import forecast, network
from p2pfl.results.notices.kinds import PeerFailed, PhaseBegan
from p2pfl.results.pages.run_page import run_page
from p2pfl.results.run import Run
from p2pfl.results.swarm.headline import headline
from p2pfl.results.swarm.state import swarm_of
from p2pfl.results.swarm.timeline import alerts_of_run, find_start, merge_entries, setting_of, swarm_of_run
from p2pfl.simulation import simulate
from swarms import SMALL

BEGAN = datetime(2026, 11, 23, tzinfo=UTC)


def test_a_simulation_ends_with_the_scores_of_its_summary(tmp_path):
    run = simulate(read(SMALL), folder=tmp_path / "run")
    swarm = swarm_of_run(Run.load(tmp_path / "run"))
    assert {name: peer.scores[swarm.metric] for name, peer in swarm.peers.items()} == {
        name: scores["together"] for name, scores in run.summary["per_peer"].items()
    }
    assert swarm.at == SMALL["rounds"]
    assert swarm.history.curves(swarm.metric).rounds == [1, 2, 3]


@pytest.mark.slow
def test_a_live_run_is_told_in_order(tmp_path):
    run = forecast(read(SMALL), network("wan"), folder=tmp_path / "run", baselines=False)
    loaded = Run.load(tmp_path / "run")
    began = find_start(None, [*loaded.events, *loaded.metrics])
    timeline = merge_entries([*loaded.events, *loaded.metrics], began=began)
    times = [at for at, _ in timeline]
    assert times == sorted(times)
    assert len(timeline) == len(loaded.events) + len(loaded.metrics)
    assert all(record.time is not None for record in loaded.metrics)
    swarm = swarm_of(setting_of(run.experiment), timeline)
    assert {peer.rounds for peer in swarm.peers.values()} == {SMALL["rounds"]}
    assert len(swarm.setting.edges) == 12


def test_the_times_of_a_run_count_from_its_beginning():
    first, second = (
        msgspec.structs.replace(PhaseBegan(peer=peer, phase="learning", round=0), time=BEGAN + timedelta(seconds=at))
        for peer, at in (("ada", 3.0), ("bob", 1.5))
    )
    assert [(at, entry.peer) for at, entry in merge_entries([first, second], began=BEGAN)] == [
        (1.5, "bob"),
        (3.0, "ada"),
    ]


def test_an_interrupted_run_shows_the_same_alerts_on_its_page():
    run = Run(read(SMALL))
    run.log([PeerFailed(peer="peer1", error="StorageError", message="the disk is full", status=1, time=BEGAN)])
    [alert] = alerts_of_run(run)
    assert f"{alert.peer}: {alert.sentence}" == "peer1: the disk is full"
    assert "peer1: the disk is full" in run_page(run)
    assert headline(swarm_of_run(run), now=1.0).sentence == "peer1 has failed: the disk is full"
