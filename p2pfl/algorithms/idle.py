"""A learner that does not train."""

from __future__ import annotations

from typing import Unpack

import torch

from p2pfl.core.rows import Rows
from p2pfl.learning import Fitted, Fitting, Learner, Report, Sloping


class Idle:
    """A learner that returns all models unchanged.

    Parameters
    ----------
    learner
        Learner of the models.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    async def fit(self, rows: Rows, **how: Unpack[Fitting]) -> Fitted:
        """Return the models unchanged, after zero steps."""
        none = torch.zeros(len(rows))
        return Fitted(rows, dict(how.get("memory") or {}), Report(none.double(), none.long()))

    async def gradient(self, rows: Rows, **how: Unpack[Sloping]) -> Rows:
        """Return zero gradients ``[R, P]``."""
        del how
        return torch.zeros_like(rows)
