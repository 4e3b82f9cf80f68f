"""Baselines to which learning together is compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from p2pfl.algorithms.algorithm import start
from p2pfl.core.rows import Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.learning import Learner, home
from p2pfl.learning.data_checks import check_losses


def score_alone(learner: Learner, peers: tuple[str, ...], *, rounds: int) -> dict[str, torch.Tensor]:
    """Return the scores ``[R]`` of peers that train for as many rounds without any communication.

    For the peer ``pooled`` of a pooled federation this is the score of one model on all data.

    Parameters
    ----------
    learner
        Learner of the peers.
    peers
        Names of the R peers.
    rounds
        Number of rounds.

    Returns
    -------
    dict
        Scores ``[R]`` by the name of the metric.
    """
    return baseline(learner, peers, rounds=rounds).scores


@dataclass(frozen=True)
class Baseline:
    """Peers that trained without any communication.

    Attributes
    ----------
    scores
        Scores ``[R]`` by name.
    rows
        Their models ``[R, P]``; ``None`` where other processes hold them.
    """

    scores: dict[str, torch.Tensor]
    rows: Rows | None


def baseline(learner: Learner, peers: tuple[str, ...], *, rounds: int) -> Baseline:
    """Return the scores and the models of peers that train as for :func:`score_alone`."""
    *_, rows = train_alone(learner, peers, rounds=rounds)
    scores = {name: score.cpu() for name, score in learner.evaluate(rows, peers=peers).items()}
    return Baseline(scores, rows)


def train_alone(learner: Learner, peers: tuple[str, ...], *, rounds: int) -> Iterator[Rows]:
    """Yield the models of peers that train without any communication, at the start and after each round.

    Parameters
    ----------
    learner, peers, rounds
        As for :func:`score_alone`.

    Yields
    ------
    torch.Tensor
        ``[R, P]``, on the device of the learner.
    """
    rows, memory = to_device(start(learner, peers).rows, home(learner)), None
    yield rows
    for round in range(rounds):
        fitted = learner.fit(rows, peers=peers, round=round, memory=memory)
        rows, memory = fitted.rows, fitted.memory
        if round + 1 == rounds and rows.device.type != "cpu":  # the learner has not checked
            check_losses(fitted.report.loss.cpu(), peers=peers, round=round)
        yield rows
