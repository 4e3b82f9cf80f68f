"""The state of a run directory, while it grows and at any time afterwards."""

import json
import os

import pytest

from growing import PEERS, at, began, ended, waits
from p2pfl.core.errors import InputError
from p2pfl.plugins.watch import frames
from p2pfl.plugins.watch.feed import Feed
from p2pfl.results.lock import RUN_LOCK, alive, own_directory
from p2pfl.results.notices.kinds import WaitEnded
from p2pfl.simulation import simulate


def frame_of(feed):
    feed.refresh()
    return frames.frame(feed.swarm, now=feed.at, stage=feed.stage)


@pytest.fixture
def feed(growing):
    with Feed(growing.folder, now=growing.now) as opened:
        yield opened


def scene(growing):
    """A run in which peer2 blocks the others for a while."""
    growing.log(*(began(peer) for peer in PEERS))
    growing.learn(4)
    growing.log(waits("peer1", "peer2", seconds=9.0, round=4), waits("peer0", "peer1", seconds=9.5, round=4))
    growing.log(WaitEnded(peer="peer1", time=at(25.0)), WaitEnded(peer="peer0", time=at(25.1)))
    growing.learn(1, first=12)


def test_a_folder_without_an_experiment_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not a run directory"):
        Feed(tmp_path)


def test_the_state_grows_with_the_files(growing, feed):
    assert frame_of(feed)["headline"]["sentence"] == "no peer has begun yet"
    growing.log(*(began(peer) for peer in PEERS))
    growing.seconds = 1.0
    assert frame_of(feed)["counts"] == {"learning": 4}
    growing.learn(3)
    growing.seconds = 7.0
    assert frame_of(feed)["rounds"] == [3, 3, 3]
    growing.log(waits("peer1", "peer2", seconds=7.0))
    growing.seconds = 8.5
    found = frame_of(feed)
    assert found["headline"]["peers"] == ["peer2"]
    assert found["peers"]["peer1"]["waits_for"] == ["peer2"]
    assert found["at"] == 8.5


def test_an_entry_of_this_moment_waits_for_what_the_other_file_holds(growing, feed):
    growing.log(began("peer0"))
    growing.seconds = 5.0
    feed.refresh()
    growing.record(ended("peer0", 0, seconds=5.0))
    feed.refresh()
    assert feed.swarm.peers["peer0"].rounds == 0
    growing.log(waits("peer0", "peer1", seconds=4.9))
    feed.refresh()
    assert (feed.swarm.peers["peer0"].rounds, feed.swarm.peers["peer0"].activity) == (1, "learning")


def test_a_replay_goes_through_the_states_that_were_seen_live(growing, feed):
    steps = [
        lambda: growing.log(*(began(peer) for peer in PEERS)),
        lambda: growing.learn(1),
        lambda: growing.log(waits("peer1", "peer2", seconds=4.0, round=1)),
        lambda: growing.log(WaitEnded(peer="peer1", time=at(6.0))),
    ]
    seen = []
    for second, step in zip((1.0, 3.0, 5.0, 7.0), steps, strict=True):
        step()
        growing.seconds = second
        seen.append((second, frame_of(feed)))
    for second, before in [*seen, *reversed(seen)]:
        assert frames.frame(feed.replay().swarm(second), now=second, stage="running") == before


def test_a_summary_ends_the_run(growing, feed):
    scene(growing)
    growing.seconds = 100.0
    feed.refresh()
    assert (feed.stage, feed.at) == ("running", 100.0)
    (growing.folder / "summary.json").write_text(json.dumps({"schema": 1}))
    feed.refresh()
    assert (feed.stage, feed.at) == ("ended", 26.0)
    assert feed.replay().span == 26.0


def test_the_peers_of_a_simulation_that_is_over_have_finished(tmp_path):
    table = {"rounds": 3, "data": {"name": "wine"}, "topology": {"kind": "complete", "peers": 3}}
    simulate(table, folder=tmp_path / "run", baselines=False)
    with Feed(tmp_path / "run") as feed:
        found = frame_of(feed)
    assert found["counts"] == {"finished": 3}
    assert found["headline"]["sentence"].startswith("3 peers have finished; median accuracy")


def test_a_run_whose_processes_are_gone_is_interrupted(growing, feed):
    growing.log(began("peer0"))
    with own_directory(growing.folder / RUN_LOCK):
        growing.seconds = 60.0
        feed.refresh()
        assert alive(growing.folder / RUN_LOCK)
        assert feed.stage == "running"
    (growing.folder / RUN_LOCK).write_text(f"{2**22 - 1}\n")  # no process has this number
    assert not alive(growing.folder / RUN_LOCK)
    assert feed.stage == "interrupted"
    growing.seconds = 5.0
    assert feed.stage == "running"  # it may have been started a moment ago


def test_a_lock_is_looked_at_without_being_taken(tmp_path):
    with own_directory(tmp_path / RUN_LOCK):
        before = (tmp_path / RUN_LOCK).read_bytes()
        assert alive(tmp_path / RUN_LOCK)
        assert (tmp_path / RUN_LOCK).read_bytes() == before == f"{os.getpid()}\n".encode()
    assert not alive(tmp_path / "no.lock")


def test_a_run_without_its_graph_is_shown_without_edges(growing):
    path = growing.folder / "experiment.toml"
    text = path.read_text().replace('kind = "ring"', 'kind = "gone.graphml"')
    path.write_text(text.replace("peers = 4\n", ""))
    with Feed(growing.folder, now=growing.now) as feed:
        growing.log(began("peer0"))
        growing.seconds = 1.0
        assert frame_of(feed)["counts"] == {"learning": 1}
        assert feed.places == {}


def test_a_sink_is_called_with_each_entry_once(growing):
    seen = []
    growing.log(began("peer0"))
    growing.record(ended("peer0", 0, seconds=1.0))
    growing.seconds = 3.0
    with Feed(growing.folder, now=growing.now, sink=seen.append) as feed:
        for _ in range(3):
            feed.refresh()
    assert seen == [began("peer0"), ended("peer0", 0, seconds=1.0)]


def test_a_dense_graph_is_sent_without_edges(growing, feed, monkeypatch):
    assert len(frames.about(feed.setting, feed.places)["edges"]) == 4
    monkeypatch.setattr(frames, "MAX_EDGES", 3)
    assert frames.about(feed.setting, feed.places)["edges"] == []
    assert len(frames.about(feed.setting, feed.places)["places"]) == 4
    assert growing.folder.is_dir()


def test_what_a_page_is_sent_twice_is_what_changed():
    before = {"at": 1.0, "counts": {"learning": 2}, "peers": {"ada": [1], "bob": [2]}}
    now = {"at": 2.0, "counts": {"learning": 2}, "peers": {"ada": [1], "bob": [3], "cy": [0]}}
    assert frames.changes({}, now) == now
    assert frames.changes(before, now) == {"at": 2.0, "peers": {"bob": [3], "cy": [0]}}
