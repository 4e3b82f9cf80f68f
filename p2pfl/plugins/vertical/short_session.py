"""Short sessions of live peers that ask questions and learn nothing, such as an alignment or a prediction."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Self

from p2pfl.core.rows import Layout, Rows
from p2pfl.core.tensors import torch
from p2pfl.core.traits import LearnerTraits
from p2pfl.data import Federation
from p2pfl.experiment import Plan
from p2pfl.learning.additive import Asking
from p2pfl.learning.learner import SequentialLearner
from p2pfl.network.peer.updates import Event
from p2pfl.privacy.keys import SecretSource, Source


class SessionLearner(SequentialLearner):
    """Learner of a session; its model is one public number.

    Parameters
    ----------
    run
        Name of the session.
    """

    traits: ClassVar[LearnerTraits] = LearnerTraits(additive=True, converges=True)
    layout = Layout(("number",), ((1,),))
    dtype = torch.float64
    gradients_missing = "a session that learns nothing has none"

    def __init__(self, *, run: str) -> None:
        self.run = run
        self._source: Source = SecretSource()

    def on(self, federation: Federation) -> Self:
        """Return the learner itself."""
        del federation
        return self

    def drawing(self, source: Source) -> Self:
        """Return the learner that takes its secrets from a source."""
        other = copy(self)
        other._source = source  # noqa: SLF001
        return other

    def start(self, peers: Sequence[str]) -> Rows:
        """Return zeros, ``[R, 1]``."""
        return torch.zeros(len(peers), 1, dtype=torch.float64)

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return zeros, ``[R]``, as nothing is learned from samples."""
        return torch.zeros(len(peers), dtype=torch.int64)

    def train(self, row: torch.Tensor, *, peer: str, round: int) -> tuple[torch.Tensor, float]:
        """Return the model as it is."""
        del peer, round
        return row, math.nan

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return no scores."""
        del rows, peers, part
        return {}

    @abstractmethod
    def asking(self, row: torch.Tensor, *, round: int) -> Asking:
        """Return the questions of the session."""


def join_session(resolved: Plan, peer: str, *, urls: Sequence[str], notify: Callable[[Event], None]) -> None:
    """Take part in a session until it is over or interrupted; its keys and checkpoints are deleted.

    Parameters
    ----------
    resolved
        Plan of the session.
    peer
        Name of the local peer.
    urls
        Addresses of the brokers.
    notify
        Function that is called with what the peer does.
    """
    from p2pfl.cli.interrupts import run_until_interrupted  # noqa: PLC0415 (with its network)
    from p2pfl.network.peer.launch.worker import live  # noqa: PLC0415
    from p2pfl.network.peer.storage.credentials import credentials  # noqa: PLC0415

    with TemporaryDirectory(prefix="p2pfl-session-") as place:
        folder = Path(place)
        (folder / "peers").mkdir()
        owned = credentials(resolved.experiment.trust, peer=peer, folder=folder / "keys")
        run_until_interrupted(live(resolved, peer, urls=urls, folder=folder, owned=owned, notify=notify))
