"""Division of peers among processes."""

import pytest

from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.network.peer.launch import process_groups
from p2pfl.network.peer.launch.process_groups import (
    MAX_OWN_PROCESSES,
    check_masked_peers,
    check_open_files,
    count_processes,
    count_threads,
    count_turns,
)
from p2pfl.network.peer.launch.swarm import run


def test_more_peers_than_processes_can_serve_share_one_for_each_core(monkeypatch):
    monkeypatch.setattr(process_groups, "processors", lambda: 3)
    assert count_processes(MAX_OWN_PROCESSES, None) == MAX_OWN_PROCESSES
    assert count_processes(MAX_OWN_PROCESSES + 1, None) == 3
    assert count_processes(1000, 5) == 5


def test_a_run_that_needs_more_open_files_than_the_system_permits_is_one_sentence(monkeypatch):
    monkeypatch.setattr(process_groups, "raise_file_limit", lambda: 1024)
    check_open_files(1000, 4)
    sentence = "1000 peers in a process need up to 3064 open files, but the system permits 1024; use more --workers"
    with pytest.raises(InputError, match=sentence):
        check_open_files(1000, 1)


def test_more_masked_peers_than_one_machine_starts_are_one_sentence_before_the_run(tmp_path):
    check_masked_peers(process_groups.MAX_MASKED_PEERS, masks=True)
    check_masked_peers(1000, masks=False)
    table = {
        "topology": {"kind": "circulant", "degree": 4, "peers": process_groups.MAX_MASKED_PEERS + 1},
        "data": {"name": "digits", "split": "iid"},
        "model": {"name": "linear"},
        "gossip": {"steps": 1},
        "privacy": {"mode": "pairwise", "mask": 1.0},
    }
    sentence = "129 live peers under masks are too many for one machine, which starts at most 128, .*; use p2pfl"
    with pytest.raises(InputError, match=sentence):
        run(read(table), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_peer_waits_longer_the_more_peers_share_its_core(monkeypatch):
    monkeypatch.setattr(process_groups, "processors", lambda: 2)
    assert [count_turns(40, workers) for workers in (1, 2, 39, 40, 41)] == [40, 20, 20, 20, 20]
    assert count_turns(40, None) == count_turns(MAX_OWN_PROCESSES, None) == 1
    assert count_turns(1000, None) == 500
    monkeypatch.setattr(process_groups, "processors", lambda: 64)
    assert [count_turns(40, workers) for workers in (1, 39, 40)] == [40, 2, 1]


def test_processes_share_the_cores_that_this_one_may_keep_busy(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert count_threads(1) == count_threads(100) == 1
    monkeypatch.setattr(process_groups, "cores", lambda: 8)
    assert [count_threads(processes) for processes in (1, 3, 100)] == [8, 2, 1]
