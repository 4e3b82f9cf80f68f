"""Rounds without training."""

from __future__ import annotations

import torch

from p2pfl.learning import Correction, Fitted, Learner, Memory, Report
from p2pfl.rows import Rows


class Idle:
    """A learner that leaves all rows as they are.

    Parameters
    ----------
    learner
        Whose rows they are.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    async def fit(
        self,
        rows: Rows,
        *,
        peers: tuple[str, ...],
        round: int,
        memory: Memory | None = None,
        active: torch.Tensor | None = None,
        correction: Correction | None = None,
    ) -> Fitted:
        """Return the rows."""
        del peers, round, active, correction
        none = torch.zeros(len(rows))
        return Fitted(rows, dict(memory or {}), Report(none.double(), none.long()))

    async def gradient(
        self,
        rows: Rows,
        *,
        peers: tuple[str, ...],
        round: int,
        step: int = 0,
        whole: bool = False,
        active: torch.Tensor | None = None,
    ) -> Rows:
        """Return no slope."""
        del peers, round, step, whole, active
        return torch.zeros_like(rows)
