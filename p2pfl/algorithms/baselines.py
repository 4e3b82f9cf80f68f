"""What learning together is measured against."""

from __future__ import annotations

import torch

from p2pfl.learning import Learner


def alone(learner: Learner, peers: tuple[str, ...], *, rounds: int) -> dict[str, torch.Tensor]:
    """Scores ``[R]`` of peers that train as many rounds and never exchange anything.

    With the peer ``pooled`` of a pooled federation this is the score of one model on all data.
    """
    rows = learner.start(peers)
    memory = None
    for round in range(rounds):
        fitted = learner.fit(rows, peers=peers, round=round, memory=memory)
        rows, memory = fitted.rows, fitted.memory
    return learner.evaluate(rows, peers=peers)
