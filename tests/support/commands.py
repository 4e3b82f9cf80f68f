"""The real command, in its own process or in this one."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from forked_command import play
from p2pfl.cli import main
from p2pfl.network.peer.launch import fork_server
from processes import has_ended
from wine_files import wine_file

DEADLINE = 300.0
"""Seconds in which anything that a test waits for must have happened."""

SMALL = wine_file("small")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty working directory with a small experiment in it."""
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return tmp_path


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str


@pytest.fixture
def p2pfl(place, capsys):  # noqa: ARG001 (it runs in that place)
    """Run a command in this process."""

    def call(*arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse
            status = end.code
        return Said(status, *capsys.readouterr())

    return call


@pytest.fixture
def gone():
    """Wait for the end of processes."""
    return ended


def ended(family):
    """Wait until all these processes have ended."""
    deadline = time.monotonic() + DEADLINE
    alive = family
    while alive and time.monotonic() < deadline:
        _, alive = psutil.wait_procs(alive, timeout=0.05)
        alive = [process for process in alive if not has_ended(process)]
    return not alive


class Command:
    """A command in its own session, as a terminal starts it."""

    def __init__(self, *arguments, **options):
        self.process = psutil.Popen(
            [sys.executable, "-P", "-m", "p2pfl", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )
        self._follow(self.process.stdout, self.process.stderr)

    def _follow(self, out, err):
        self.out, self.err = out, err
        self.lines = []
        self.news = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        """Read standard error, so that it never fills up."""
        for line in self.err:
            self.lines.append(line)
            self.news.put(line)
        self.news.put(None)

    def until(self, text):
        """Wait for a line with this text on standard error."""
        while (line := self.news.get(timeout=DEADLINE)) is not None:
            if text in line:
                return line
        raise AssertionError(f"never said {text!r}, but {''.join(self.lines)}")

    def family(self):
        """Return all its processes, itself first; itself alone if it has ended."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self.process, *self.process.children(recursive=True)]
        return [self.process]

    def ctrl_c(self):
        """What a terminal sends: a signal to all in the foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self):
        """Wait for the end."""
        out = self.out.read()
        status = self.status()
        self.reader.join(DEADLINE)
        return Said(status, out, "".join(self.lines))

    def status(self):
        """Wait for the exit status."""
        return self.process.wait(DEADLINE)

    def kill(self):
        """Kill all its processes, and wait until none is left."""
        assert ended(self._killed())

    def _killed(self):
        """Kill all its processes, of which some may end by themselves in this moment."""
        family = self.family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return family

    def close(self):
        """Kill what is left."""
        self._killed()
        self.status()
        self.reader.join(DEADLINE)
        self.out.close()
        self.err.close()


class ForkedCommand(Command):
    """A command whose process need not import torch again, since a server forks it."""

    def __init__(self, *arguments):
        server = fork_server.start()
        pipes = [server.Pipe(duplex=False) for _ in range(2)]
        known, know = server.Pipe(duplex=False)
        words, ends = [str(each) for each in arguments], [theirs for _, theirs in pipes]
        given = (words, Path.cwd(), dict(os.environ), *ends)
        self._forked = server.Process(target=play, args=given, kwargs={"known": known})
        self._forked.start()
        self.process = psutil.Process(self._forked.pid)
        know.send(True)
        for end in (*ends, known, know):
            end.close()
        self._follow(*(os.fdopen(os.dup(ours.fileno())) for ours, _ in pipes))
        for ours, _ in pipes:
            ours.close()

    def status(self):
        """Wait for the exit status."""
        self._forked.join(DEADLINE)
        return self._forked.exitcode


@pytest.fixture
def start(place):  # noqa: ARG001 (they run in that place)
    """Start commands in their own processes; none outlives the test."""
    with contextlib.ExitStack() as left:

        def begin(*arguments, kind=Command, **options):
            command = kind(*arguments, **options)
            left.callback(command.close)
            return command

        yield begin


@pytest.fixture
def fork(start):
    """Fork commands where how a process begins is not the point; ``run`` and ``sweep`` need servers of their own."""
    return partial(start, kind=ForkedCommand)
