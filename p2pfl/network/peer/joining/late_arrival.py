"""The first round of a peer that comes late, or comes back: it learns where the others are, and counts nothing."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar, Unpack

import torch

from p2pfl.algorithms import AsyncLearner, Idle, train_while
from p2pfl.core.neighbourhood import Neighbourhood, Public, Released, Wrapped
from p2pfl.core.rows import Rows
from p2pfl.learning import Fitted, Fitting, Learner, Sloping
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood

Result = TypeVar("Result")


class SkipTraining:
    """A learner that does not train in one round.

    Parameters
    ----------
    learner
        Trains in all others.
    round
        The one.
    """

    def __init__(self, learner: AsyncLearner, *, round: int) -> None:
        self._learner = learner
        self._idle = Idle(learner.learner)
        self._round = round

    @property
    def learner(self) -> Learner:
        """The learner itself."""
        return self._learner.learner

    async def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Train the rows, or return them."""
        return await self._one(options["round"]).fit(rows, **options)

    def train_while(
        self, training: Coroutine[Any, Any, Fitted], exchange: Coroutine[Any, Any, Result]
    ) -> Coroutine[Any, Any, tuple[Fitted, Result]]:
        """Train during an exchange as the learner itself does."""
        return train_while(self._learner, training, exchange)

    async def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        """Return gradients of the rows, or none."""
        return await self._one(options["round"]).gradient(rows, **options)

    def _one(self, round: int) -> AsyncLearner:
        return self._idle if round == self._round else self._learner


class LateArrival(Wrapped):
    """A neighbourhood for whose others this peer is not there yet, although it passes on what it hears.

    Where rows carry masses its own is 0, and mixing gives it the average of the others'. Where they do not, it waits
    for the rows of the first gossip step before it says its own, which is their average.

    Parameters
    ----------
    net
        Hides rows.
    live
        Below it, the neighbours.
    """

    def __init__(self, net: Neighbourhood, live: LiveNeighbourhood) -> None:
        super().__init__(net)
        self._live = live

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release nothing of one's own."""
        if masses is not None:
            return await self._net.release(rows, since=since, masses=torch.zeros_like(masses))
        received = None if self._live.step else await self._live.receive_first(rows)
        if received is not None:
            rows, since = received, Released(received).public
        return await self._net.release(rows, since=since)
