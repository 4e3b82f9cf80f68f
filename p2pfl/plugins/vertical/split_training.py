r"""Steps of a split network: parties send parts of an embedding, and the label holder returns its gradient.

Each party p maps its columns by a module of its own, and the label holder alone learns the sum of the others' parts,

.. math:: h = \sum_p f_p(x_p), \qquad \ell(g(h), y),

in points of 2^-24. It sends :math:`\partial \ell / \partial h` of the rows of the step to each of the others, who go on
from there. The sum is that of one network of all columns, so the steps are those of that network, but for rounding.

References
----------
Vepakomma et al., Split learning for health, 2018; Ceballos et al., SplitNN-driven vertical partitioning, 2020.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import LearningError, PrivacyError
from p2pfl.learning.additive import Questions
from p2pfl.learning.steps.optimisers import StepClock
from p2pfl.plugins.vertical.party_network import PartyTraining, SplitSteps
from p2pfl.plugins.vertical.private_messages import PrivateMessage, collect, publish, send_floats
from p2pfl.plugins.vertical.statement import listed

EMBEDDING_BITS = 24
"""Fraction bits of embeddings."""

MAX_EMBEDDING = 2.0**20
"""Bound of a number of an embedding."""

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Function of outputs ``[B, K]`` and targets ``[B]`` that returns their mean loss."""


@dataclass(frozen=True, eq=False)
class SplitData:
    """Rows of one round, of which each party sees its own columns.

    Parameters
    ----------
    label, features
        Label holder, and parties without labels.
    rows, tested
        Numbers of training and test rows.
    width
        Numbers k of an embedding.
    columns
        Function that returns the training columns of a local party, or the test columns, ``[n, F]``.
    targets
        Function that returns the targets of the training rows at the label holder, ``[n]``.
    loss
        Mean loss of a batch.
    """

    label: str
    features: tuple[str, ...]
    rows: int
    tested: int
    width: int
    columns: Callable[..., torch.Tensor]
    targets: Callable[[], torch.Tensor]
    loss: Loss


class SplitRound:
    """One round of the steps of all parties.

    Parameters
    ----------
    data
        The rows.
    steps
        Steps on which the parties agree.
    training
        Function that returns the network of a local party.
    round
        Number of the round.
    """

    def __init__(
        self, data: SplitData, steps: SplitSteps, training: Callable[[str], PartyTraining], *, round: int
    ) -> None:
        self.data, self.steps, self.training, self.round = data, steps, training, round
        self.pending = {peer: deque[Callable[[], None]]() for peer in (data.label, *data.features)}
        self.gradient: Floats = np.zeros(0)
        self.losses: list[float] = []
        self.clock = StepClock(steps.count(data.rows))

    def ask(self) -> Questions[None]:
        """Take all steps."""
        count = self.clock.steps
        present = {peer: self.steps.present(peer, count, round=self.round) for peer in self.data.features}
        for number, rows in enumerate(self.steps.batches(self.data.rows, round=self.round)):
            yield from self._step(number, rows, [peer for peer in self.data.features if present[peer][number]])

    def _step(self, number: int, rows: Ints, among: Sequence[str]) -> Questions[None]:
        """Take one step, in which some of the other parties take part."""
        label, size = self.data.label, len(rows) * self.data.width
        parts = cache(partial(self._part, number, rows))
        foreign: Callable[[], Floats] = partial(np.zeros, size)
        if among:
            answer = cache(lambda peer: _points(peer, parts(peer)))
            foreign = _reading((yield from collect(answer, size=size, to=label, among=among)), among)
        self.pending[label].append(partial(self._learn, number, rows, foreign))
        for peer in among:
            read = yield from send_floats(self._newest_gradient, size=size, sender=label, to=peer)
            self.pending[peer].append(partial(self._go_back, peer, number, parts, read))

    def settle(self, peer: str) -> PartyTraining:
        """Return the network of a local party after all steps whose messages have arrived."""
        while self.pending[peer]:
            self.pending[peer].popleft()()
        return self.training(peer)

    def _newest_gradient(self) -> Floats:
        """Return the gradient of the embedding in the newest step, at the label holder."""
        self.settle(self.data.label)
        return self.gradient

    def loss(self) -> Questions[float]:
        """Ask the label holder for the mean loss of the steps."""

        def mean() -> Floats:
            self.settle(self.data.label)
            return np.array([np.mean(self.losses)])

        [loss] = yield from publish(mean, size=1, sender=self.data.label)
        return float(loss)

    def test(self) -> Questions[Callable[[], torch.Tensor]]:
        """Send the label holder the embeddings of the test rows, and return the function that returns its outputs."""
        data = self.data

        @cache
        def answer(peer: str) -> Ints:
            return _points(peer, self.settle(peer).embedding(data.columns(peer, test=True)))

        size = data.tested * data.width
        foreign = _reading((yield from collect(answer, size=size, to=data.label, among=data.features)), data.features)

        def outputs() -> torch.Tensor:
            training = self.settle(data.label)
            own = training.embedding(data.columns(data.label, test=True))
            return training.outputs(own + _as_part(foreign(), own))

        return outputs

    def _part(self, number: int, rows: Ints, peer: str) -> torch.Tensor:
        """Return a party's part of the embedding of the rows of a step, with its graph."""
        training = self.settle(peer)
        training.begin(number)
        return training.network.embed(self.data.columns(peer)[rows])

    def _learn(self, number: int, rows: Ints, foreign: Callable[[], Floats]) -> None:
        """Take the step of the label holder, and keep the gradient of the embedding, ``[B k]``."""
        label = self.data.label
        training = self.training(label)
        training.begin(number)
        own = training.network.embed(self.data.columns(label)[rows])  # [B, k]
        others = _as_part(foreign(), own).requires_grad_()
        loss = self.data.loss(training.network.output(own + others), self.data.targets()[rows])
        if not bool(torch.isfinite(loss)):
            raise LearningError(f"the loss is not finite in round {self.round}; set a lower learning.rate")
        self.losses.append(loss.item())
        *slopes, gradient = torch.autograd.grad(loss, [*training.parameters, others], allow_unused=True)
        training.move(slopes, number, self.clock)
        self.gradient = (torch.zeros_like(others) if gradient is None else gradient).cpu().double().numpy().ravel()

    def _go_back(
        self, peer: str, number: int, parts: Callable[[str], torch.Tensor], read: Callable[[], Floats]
    ) -> None:
        """Take the step of another party, by the gradient that it received."""
        training, part, gradient = self.training(peer), parts(peer), read()
        if not np.isfinite(gradient).all():
            raise PrivacyError(
                f"{peer} receives a gradient from {self.data.label} with numbers that are not finite; "
                f"{self.data.label} does not follow the protocol, so end the run"
            )
        inner = (part * _as_part(gradient, part)).sum()
        training.move(torch.autograd.grad(inner, training.parameters, allow_unused=True), number, self.clock)


def _points(peer: str, part: torch.Tensor) -> Ints:
    """Return a part of an embedding in points of the grid."""
    values: npt.NDArray[Any] = part.detach().cpu().double().numpy().ravel()
    if values.size and not np.abs(values).max() < MAX_EMBEDDING:
        raise LearningError(f"the embedding of {peer} grows beyond what a sum can hold; set a lower learning.rate")
    points: Ints = np.rint(np.ldexp(values, EMBEDDING_BITS)).astype(np.int64)
    return points


def _as_part(values: Floats, part: torch.Tensor) -> torch.Tensor:
    """Return numbers of a message with the shape, type and device of a part of an embedding."""
    return torch.from_numpy(values).to(part.dtype).to(part.device).view_as(part)


def _reading(message: PrivateMessage, among: Sequence[str]) -> Callable[[], Floats]:
    """Return the function by which the receiver reads a sum of embeddings, which refuses what no sum of them is."""

    def read() -> Floats:
        values = np.ldexp(message.read(message.receiver).astype(np.float64), -EMBEDDING_BITS)
        if values.size and np.abs(values).max() > len(among) * MAX_EMBEDDING:
            raise PrivacyError(
                f"{message.receiver} receives numbers from {listed(among)} beyond the range of embeddings; a party "
                "does not follow the protocol, so end the run"
            )
        return values

    return read
