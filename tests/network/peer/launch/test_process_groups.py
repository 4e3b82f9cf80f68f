"""How peers are divided among processes."""

import pytest

from p2pfl.core.errors import InputError
from p2pfl.network.peer.launch import process_groups
from p2pfl.network.peer.launch.process_groups import MAX_OWN_PROCESSES, check_open_files, count_processes


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
