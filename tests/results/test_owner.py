"""One process at a time, with the peers that it has started, has a run directory."""

import multiprocessing
import os
import signal

import pytest

from p2pfl.core.errors import InputError
from p2pfl.results.lock import LOCK_PAUSE, LOCK_SECONDS, RUN_LOCK, own_directory


@pytest.fixture
def forks():
    """As peers are started."""
    return multiprocessing.get_context("forkserver")


def hold(path, pipe):
    """Have a run directory, and say so."""
    with own_directory(path):
        pipe.send("mine")
        pipe.recv()


def begin(path, pipe):
    """Have it, start a peer that has it too, and be killed."""
    with own_directory(path) as owner:
        process = multiprocessing.get_context("forkserver").Process(target=go_on, args=(owner, pipe))
        process.start()
        signal.pause()


def go_on(owner, pipe):
    """A peer whose parent may be gone."""
    del owner
    pipe.send(os.getpid())
    pipe.recv()


def began(forks, errand, path):
    ours, theirs = forks.Pipe()
    process = forks.Process(target=errand, args=(path, theirs))
    process.start()
    theirs.close()
    return process, ours


def refused(path, **options):
    with pytest.raises(InputError) as caught, own_directory(path, **options):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_second_owner_is_refused_and_told_the_first_also_in_one_process(tmp_path):
    with own_directory(tmp_path / RUN_LOCK):
        assert f"run directory {tmp_path} is in use by process {os.getpid()}; wait until" in refused(
            tmp_path / RUN_LOCK
        )
    with own_directory(tmp_path / RUN_LOCK):
        pass


@pytest.mark.slow
def test_a_run_directory_is_free_when_its_owner_was_killed(forks, tmp_path):
    process, pipe = began(forks, hold, tmp_path / RUN_LOCK)
    with pipe:
        assert pipe.recv() == "mine"
        assert f"in use by process {process.pid};" in refused(tmp_path / RUN_LOCK)
        process.kill()
        process.join()
    with own_directory(tmp_path / RUN_LOCK):
        assert (tmp_path / RUN_LOCK).read_text() == f"{os.getpid()}\n"


@pytest.mark.slow
def test_a_peer_that_goes_on_without_its_parent_keeps_others_out(forks, tmp_path):
    process, pipe = began(forks, begin, tmp_path / RUN_LOCK)
    with pipe:
        peer = pipe.recv()
        assert f"in use by process {process.pid};" in refused(tmp_path / RUN_LOCK)
        process.kill()
        process.join()
        assert f"in use by process {peer};" in refused(tmp_path / RUN_LOCK)
        pipe.send("end")
        with pytest.raises(EOFError):
            pipe.recv()  # it has ended, and closed all it had


@pytest.mark.slow
def test_a_lock_that_another_process_releases_in_time_is_taken(forks, tmp_path):
    process, pipe = began(forks, hold, tmp_path / RUN_LOCK)
    pauses = []

    def end_at_the_third(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            pipe.send("end")
            process.join()

    with pipe:
        assert pipe.recv() == "mine"
        with own_directory(tmp_path / RUN_LOCK, within=LOCK_SECONDS, pause=end_at_the_third):
            assert (tmp_path / RUN_LOCK).read_text() == f"{os.getpid()}\n"
    assert pauses == [LOCK_PAUSE] * 3


@pytest.mark.slow
def test_a_lock_that_is_never_released_is_refused_after_five_seconds_with_the_process_that_holds_it(forks, tmp_path):
    process, pipe = began(forks, hold, tmp_path / RUN_LOCK)
    pauses = []
    with pipe:
        assert pipe.recv() == "mine"
        said = refused(tmp_path / RUN_LOCK, within=LOCK_SECONDS, pause=pauses.append)
        pipe.send("end")
        process.join()
    assert said == f"run directory {tmp_path} is in use by process {process.pid}; wait until it ends, or end it"
    assert sum(pauses) == pytest.approx(5.0)


def test_what_is_started_otherwise_does_not_inherit_it(tmp_path):
    with own_directory(tmp_path / RUN_LOCK) as owner:
        assert not os.get_inheritable(owner.descriptor)


def test_a_folder_that_cannot_be_written_or_locked_is_told(tmp_path, monkeypatch):
    assert "cannot be written (No such file or directory)" in refused(tmp_path / "nowhere" / RUN_LOCK)

    def unlockable(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", unlockable)
    assert "cannot lock files (No locks available); choose another folder with --runs" in refused(tmp_path / RUN_LOCK)
