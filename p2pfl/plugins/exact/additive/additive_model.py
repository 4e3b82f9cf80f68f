""":class:`AdditiveModel`, the torch module of an additive model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from p2pfl.core.rows import Layout
from p2pfl.plugins.exact.additive.base_learners import DEGREE, BaseLearner

OWN = "own"
"""Name of the coefficients of a peer's own effects."""


class AdditiveModel(nn.Module):
    """Sum of functions of single columns.

    Parameters
    ----------
    layout
        Names and shapes of the tensors.
    learners
        Base learners.
    binary
        True if outputs are logits of two classes.
    own
        True if there are coefficients of a peer's own effects, which are added to the shared ones.
    """

    offset: torch.Tensor
    coefficients: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, layout: Layout, learners: Sequence[BaseLearner], *, binary: bool, own: bool = False) -> None:
        super().__init__()
        self._own = own
        self.learners, self.binary = tuple(learners), binary
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))
            if own and name == "coefficients":
                self.register_buffer(OWN, torch.zeros(shape, dtype=torch.float64))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits ``[n, 2]``, or predicted means ``[n, 1]``, for features ``[n, F]``."""
        wide = features.flatten(1).double()
        found = self.offset.expand(wide.shape[0])  # an export follows shape, not len
        for number, learner in enumerate(self.learners):
            found = found + self._effect(number, learner, wide)
        if self.binary:
            return torch.stack([torch.zeros_like(found), found], dim=1)
        return found.unsqueeze(1)

    def _effect(self, number: int, learner: BaseLearner, features: torch.Tensor) -> torch.Tensor:
        own = self.coefficients[number]  # [W]
        if self._own:
            own = own + self.get_buffer(OWN)[number]
        if learner.kind == "onehot":
            return features[:, learner.place : learner.place + learner.size] @ own[: learner.size]
        low, high = self.low[number], self.high[number]
        values = torch.minimum(torch.maximum(features[:, learner.place], low), high)
        if learner.kind == "linear":
            return own[0] + own[1] * values
        intervals = learner.size - DEGREE
        place = (values - low) / ((high - low) / intervals).clamp_min(1e-300)
        first = place.floor().clamp(0, intervals - 1)
        rest = place - first
        weights = (
            (1 - rest) ** 3 / 6,
            (3 * rest**3 - 6 * rest**2 + 4) / 6,
            (-3 * rest**3 + 3 * rest**2 + 3 * rest + 1) / 6,
            rest**3 / 6,
        )
        return sum(
            (weight * own[first.long() + offset] for offset, weight in enumerate(weights)), torch.zeros_like(values)
        )
