"""A peer in a process of its own, that may live in a namespace and take its time over training."""

import asyncio
import ctypes
import os
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Unpack

import torch

from p2pfl.core.errors import P2PFLError
from p2pfl.core.rows import Rows
from p2pfl.experiment import check, plan
from p2pfl.learning import Fitted, Fitting
from p2pfl.network.peer.launch.worker import earlier, live
from p2pfl.network.peer.storage.credentials import Credentials
from p2pfl.network.peer.updates import Failed
from p2pfl.network.virtual.timed_learner import Timed
from p2pfl.privacy.keys import Identity, Roster

_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Life:
    """What a process is to be.

    Attributes
    ----------
    name, table, urls, folder, roster
        As :func:`p2pfl.network.peer.launch.worker.main` takes them.
    takes
        Seconds of each round's training: it sleeps after what its own processor takes, which may be longer.
    inside
        A network namespace.
    again
        Whether a life came before.
    """

    name: str
    table: Mapping[str, Any]
    urls: tuple[str, ...]
    folder: str
    roster: Mapping[str, bytes]
    takes: float = 0.0
    inside: str | None = None
    again: bool = False


class Sleepy(Timed):
    """Learner whose training lasts as long as it should, where its processor is fast enough."""

    def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Train, and sleep for the rest of the time."""
        began = time.perf_counter()
        fitted = self.learner.fit(rows, **options)
        left = max(self.takes(peer, options["round"]) for peer in options["peers"]) - (time.perf_counter() - began)
        if left > 0:
            self.spend(left)
        return fitted


def main(life: Life, pipe: Connection) -> None:
    """Live from what an earlier life kept, if there was one; everything there is to say goes through the pipe."""
    if life.inside is not None:
        enter(life.inside)
    torch.set_num_threads(1)
    folder = Path(life.folder)
    try:
        resolved = plan(check(life.table), only=[life.name])
        resolved = replace(resolved, learner=Sleepy(resolved.learner, takes=lambda *_: life.takes, spend=time.sleep))
        owned = Credentials(Identity.load(folder / "keys" / f"{life.name}.pem"), Roster(life.roster))
        former = earlier(folder, life.name, notify=pipe.send) if life.again else None
        errand = live(resolved, life.name, urls=life.urls, folder=folder, owned=owned, notify=pipe.send, former=former)
        asyncio.run(errand)
    except P2PFLError as error:
        pipe.send(Failed(life.name, str(error), error.status))
        raise SystemExit(error.status) from None
    except Exception as error:
        pipe.send(Failed(life.name, f"{type(error).__name__}: {error}", 1))
        raise


def enter(namespace: str) -> None:
    """Move this thread, and those that it starts, into a network namespace."""
    with Path("/run/netns", namespace).open("rb") as place:
        _set(place.fileno())


@contextmanager
def inside(namespace: str):
    """Be there for a while."""
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        enter(namespace)
        try:
            yield
        finally:
            _set(home.fileno())


def _set(number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(number, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def drift(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss of the same gradient everywhere, so that each training adds the same to a row wherever it is, ``[B]``.

    What peers have learned together is then known however they mixed: the start, and of each what it adds as often as
    it trained.
    """
    return -outputs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
