"""The first rounds of a peer that comes late, or comes back: it learns where the others are, and counts nothing.

There is one such round, or one for each fragment of a model that is sent in fragments.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from p2pfl.algorithms import Algorithm, AsyncLearner, Idle, State, train_while
from p2pfl.core.neighbourhood import Neighbourhood, Public, Released, Wrapped
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.learning import Fitted, Fitting, Learner, Sloping
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood

Result = TypeVar("Result")


class SkipTraining:
    """A learner that does not train in some rounds.

    Parameters
    ----------
    learner
        Trains in all others.
    rounds
        Those.
    """

    def __init__(self, learner: AsyncLearner, *, rounds: range) -> None:
        self._learner = learner
        self._idle = Idle(learner.learner)
        self._rounds = rounds

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
        return self._idle if round in self._rounds else self._learner


class ForgetMoments:
    """An algorithm that begins some rounds without moments, which would take a late peer past the others' average.

    Parameters
    ----------
    algorithm
        Algorithm of the peer.
    moments
        Their names, by its traits.
    rounds
        Those rounds.
    """

    def __init__(self, algorithm: Algorithm, moments: tuple[str, ...], *, rounds: range) -> None:
        self._algorithm, self._moments, self._rounds = algorithm, frozenset(moments), rounds

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of the algorithm."""
        if round in self._rounds:
            state = replace(state, extra={name: state.extra[name] for name in {*state.extra} - self._moments})
        return await self._algorithm.round(state, learner, net, round)


class LateArrival(Wrapped):
    """A neighbourhood for whose others this peer is not there yet, although it passes on what it hears.

    Where rows carry masses its own is 0, and mixing gives it the average of the others'. Where they do not, it waits
    for the rows of the first gossip step before it says its own, which is their average. Under masks it cannot, because
    those of the others cancel only with its own: its own model counts as it is.

    Parameters
    ----------
    net
        Hides rows.
    live
        Below it, the neighbours.
    masked
        True if rows are released under masks.
    """

    def __init__(self, net: Neighbourhood, live: LiveNeighbourhood, *, masked: bool) -> None:
        super().__init__(net)
        self._live, self._masked = live, masked

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release nothing of one's own, if that is possible."""
        if masses is not None:
            return await self._net.release(rows, since=since, masses=torch.zeros_like(masses))
        waits = self._live.begins and not self._masked
        received = await self._live.receive_first(rows) if waits else None
        if received is not None:
            rows, since = received, Released(received).public
        return await self._net.release(rows, since=since)
