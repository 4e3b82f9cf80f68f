"""Baselines to which learning together is compared."""

from __future__ import annotations

import torch

from p2pfl.learning import Learner, home
from p2pfl.learning.checks import check_losses
from p2pfl.rows import placed


def alone(learner: Learner, peers: tuple[str, ...], *, rounds: int) -> dict[str, torch.Tensor]:
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
    rows = placed(learner.start(peers), home(learner))
    memory = None
    for round in range(rounds):
        fitted = learner.fit(rows, peers=peers, round=round, memory=memory)
        rows, memory = fitted.rows, fitted.memory
    if rounds and rows.device.type != "cpu":  # the learner has not checked; a row that is not finite stays so
        check_losses(fitted.report.loss.cpu(), peers=peers, round=rounds - 1)
    return {name: score.cpu() for name, score in learner.evaluate(rows, peers=peers).items()}
