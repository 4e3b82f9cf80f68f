"""One peer in its own process, as ``run`` spawns it and ``peer`` is it.

The fork server imports this module, and torch with it, once; every peer is a fork of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import torch

from p2pfl.algorithms import State
from p2pfl.errors import P2PFLError, RunError
from p2pfl.experiment import Experiment, check, plan
from p2pfl.peer.peer import Peer, Progress
from p2pfl.report import Record
from p2pfl.report.run import save
from p2pfl.transport import Transport
from p2pfl.transport.mqtt import MqttTransport

REPORT = 0.25
"""Seconds between two reports of what a peer is waiting for."""


class Done(msgspec.Struct, frozen=True):
    """A peer's last word: its final scores and its private memory in bytes."""

    peer: str
    scores: dict[str, float]
    memory: int | None


class Failed(msgspec.Struct, frozen=True):
    """Why a peer ended early: one sentence and an exit status."""

    peer: str
    reason: str
    status: int


Event = Record | Progress | Done | Failed


def connect(experiment: Experiment, *, url: str) -> Transport:
    """The transport of an experiment."""
    settings = experiment.transport
    return MqttTransport(
        url,
        ca=_path(settings.ca),
        certificate=_path(settings.certificate),
        key=_path(settings.key),
        version=settings.version,
    )


async def live(
    experiment: Experiment, name: str, *, url: str, folder: Path | None, tell: Callable[[Event], None]
) -> None:
    """Run one peer to its end and keep its checkpoint."""
    resolved = plan(experiment, only=[name])
    last = 0

    def observe(record: Record, state: State) -> None:
        nonlocal last
        del state
        last = record.round
        tell(record)

    async with Peer(name, resolved, transport=connect(experiment, url=url), observe=observe) as peer:
        watching = asyncio.create_task(_watch(peer, tell))
        try:
            state = await peer.run()
        finally:
            watching.cancel()
    if folder is not None:
        tensors = {key: value[0] for key, value in state.tensors().items()}
        save(folder / "peers", name, resolved.learner.state_dict(state.rows[0]), tensors, round=last)
    evaluated = resolved.learner.evaluate(state.rows, peers=(name,))
    tell(Done(name, {key: float(value[0]) for key, value in evaluated.items()}, private_memory()))


async def _watch(peer: Peer, tell: Callable[[Event], None]) -> None:
    """Report what the peer does whenever it changes."""
    told: Progress | None = None
    while True:
        if peer.progress != told:
            told = peer.progress
            tell(told)
        await asyncio.sleep(REPORT)


def main(name: str, *, table: Mapping[str, Any], url: str, folder: str, threads: int, pipe: Connection) -> None:
    """Entry of a spawned process: everything it has to say goes through ``pipe``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends us
    torch.set_num_threads(threads)

    def tell(event: Event) -> None:
        with contextlib.suppress(BrokenPipeError):  # the parent is gone, and so are we in a moment
            pipe.send(event)

    async def body() -> None:
        asyncio.get_running_loop().add_reader(pipe.fileno(), os._exit, 1)  # readable only when the parent is gone
        await live(check(table), name, url=url, folder=Path(folder), tell=tell)

    try:
        asyncio.run(body())
    except P2PFLError as error:
        tell(Failed(name, str(error), error.status))
        raise SystemExit(error.status) from None
    except Exception as error:  # the parent prints one sentence; a defect of ours keeps its traceback
        tell(Failed(name, f"{type(error).__name__}: {error}", RunError.status))
        raise


def private_memory() -> int | None:
    """Bytes of memory that this process shares with no other, where the system tells (Linux)."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
