"""Peers as processes that can be killed, and started again from what they kept."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Self

import safetensors.torch
import torch

from benchmarks.faults.worker import Life, main
from p2pfl.core.errors import RunError
from p2pfl.experiment import Experiment, plain, plan
from p2pfl.network.peer import Progress
from p2pfl.network.peer.launch import fork_server as server
from p2pfl.network.peer.updates import Done, Event, Failed
from p2pfl.privacy.keys import Identity, SecretSource
from p2pfl.results import Record
from p2pfl.results.notices.kinds import JoinsLate, Notice, StepsUnsettled

LOOK = 0.05
"""Seconds between two looks whether somebody is to be started."""

Models = Mapping[str, Mapping[str, torch.Tensor]]
"""By peer, its tensors by name."""


@dataclass
class Nursery:
    """The peers of one experiment.

    Parameters
    ----------
    experiment
        What they do.
    folder
        Where they keep what a next life goes on from.
    urls
        By peer, its broker.
    takes
        By peer, seconds that it trains in a round, at least.
    inside
        By peer, the network namespace that it lives in; none by default.

    Attributes
    ----------
    records
        By peer and round, the last word on it.
    said
        Sentences that people should read, by peer.
    done
        Who has ended, and how.
    phases
        By peer, what it does.
    began
        When the first round ended anywhere; a time of ``time.perf_counter``, as are
    began_at, heard_at
        by peer, when it began to learn, and when its last round ended.
    """

    experiment: Experiment
    folder: Path
    urls: Mapping[str, str]
    takes: Mapping[str, float] = field(default_factory=dict)
    inside: Mapping[str, str] = field(default_factory=dict)
    records: dict[tuple[str, int], Record] = field(default_factory=dict)
    said: list[Notice] = field(default_factory=list)
    done: dict[str, Done] = field(default_factory=dict)
    phases: dict[str, str] = field(default_factory=dict)
    began: float | None = None
    began_at: dict[str, float] = field(default_factory=dict)
    heard_at: dict[str, float] = field(default_factory=dict)
    observe: Callable[[Event], None] = lambda _event: None
    processes: dict[str, ForkServerProcess] = field(default_factory=dict)
    _pipes: dict[Connection, str] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    _roster: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the keys of all."""
        self.names = plan(self.experiment).topology.peers
        keys = self.folder / "keys"
        (self.folder / "peers").mkdir(parents=True)
        keys.mkdir(mode=0o700)
        for name in self.names:
            Identity.generate(SecretSource(), peer=name).save(keys / f"{name}.pem")
        self._roster = {name: Identity.load(keys / f"{name}.pem").public for name in self.names}

    def __enter__(self) -> Self:
        """Start all."""
        for name in self.names:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nobody behind."""
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
            process.join()

    def start(self, name: str, *, after: float = 0.0) -> None:
        """Begin a life, some seconds from now; it goes on from what the one before kept, if there was one."""
        if after:
            self._due[name] = time.perf_counter() + after
            return
        self.phases[name] = "starting"
        ours, theirs = server.start().Pipe()
        life = Life(
            name,
            plain(self.experiment),
            (self.urls[name],),
            str(self.folder),
            self._roster,
            self.takes.get(name, 0.0),
            self.inside.get(name),
            again=name in self.processes,
        )
        process = server.start().Process(target=main, args=(life, theirs), name=name, daemon=True)
        process.start()
        theirs.close()
        self.processes[name] = process
        self._pipes[ours] = name

    def kill(self, name: str) -> None:
        """``kill -9``."""
        process = self.processes[name]
        if process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        for pipe in [pipe for pipe, owner in self._pipes.items() if owner == name]:
            self._drain(pipe)
        self.phases[name] = "killed"

    def listen(self, seconds: float) -> bool:
        """Hear what they say for some time; return whether anybody still lives.

        Raises
        ------
        RunError
            One ended that should not have.
        """
        until = time.perf_counter() + seconds
        while (self._pipes or self._due) and (left := until - time.perf_counter()) > 0:
            for pipe in wait(list(self._pipes), timeout=min(left, LOOK if self._due else left)):
                if isinstance(pipe, Connection) and not self._receive(pipe):
                    self._ended(pipe)
            for name in [name for name, due in self._due.items() if due <= time.perf_counter()]:
                del self._due[name]
                self.start(name)
        return bool(self._pipes or self._due)

    def end(self, *, within: float) -> float:
        """Wait for all to end; return the seconds since the first round.

        Raises
        ------
        RunError
            They did not in time, or one ended that should not have.
        """
        if self.listen(within):
            last = {name: self.last(name) for name in self.names}
            raise RunError(f"expected the run to end within {within:g} s, got {self.phases} and last rounds {last}")
        return time.perf_counter() - (self.began or 0.0)

    def models(self) -> Models:
        """What they have learned."""
        return {name: safetensors.torch.load_file(self.folder / "peers" / f"{name}.safetensors") for name in self.names}

    @property
    def missed(self) -> int:
        """Rows that somebody went on without."""
        return sum(len(record.missed) for record in self.records.values())

    @property
    def left_out(self) -> int:
        """Rounds of a peer that it did not play."""
        return self.experiment.rounds * len(self.names) - len(self.records)

    def round(self) -> int:
        """The furthest that anybody has ended; -1 before."""
        return max(map(self.last, self.names))

    def last(self, name: str) -> int:
        """The last that a peer has ended; -1 before."""
        return max((at for who, at in self.records if who == name), default=-1)

    def _receive(self, pipe: Connection) -> bool:
        try:
            event = pipe.recv()
        except (EOFError, ConnectionResetError):
            return False
        match event:
            case Record():
                self._recorded(event, now=time.perf_counter())
            case Progress():
                self.phases[event.peer] = event.phase
            case Notice():
                self.said.append(event)
            case Done():
                self.done[event.peer] = event
            case Failed():
                raise RunError(f"{event.peer}: {event.reason}")
            case _:
                pass
        self.observe(event)
        return True

    def _recorded(self, record: Record, *, now: float) -> None:
        self.began = self.began or now
        self.began_at.setdefault(record.peer, now - record.seconds_training - record.seconds_waiting)
        self.heard_at[record.peer] = now
        self.records[record.peer, record.round] = record

    def _drain(self, pipe: Connection) -> None:
        while pipe.poll() and self._receive(pipe):
            pass
        del self._pipes[pipe]
        pipe.close()

    def _ended(self, pipe: Connection) -> None:
        name = self._pipes.pop(pipe)
        pipe.close()
        process = self.processes[name]
        process.join()
        if process.exitcode or name not in self.done:
            raise RunError(f"{name}: expected its process to end in order, got status {process.exitcode}")


def apart(one: Models, other: Models) -> float:
    """The largest difference of two numbers of the same name."""
    return max(float((one[name][key] - other[name][key]).abs().max()) for name in one for key in one[name])


def reported(nursery: Nursery) -> list[str]:
    """Return the notices of all peers, counted."""
    late = sum(isinstance(notice, JoinsLate) for notice in nursery.said)
    steps = sum(sum(notice.steps.values()) for notice in nursery.said if isinstance(notice, StepsUnsettled))
    found = [f"{late} incarnations came back in a later round"] if late else []
    return [*found, f"{steps} gossip steps open at one end" if steps else "nothing stays open"]
