""":class:`Linear`, the torch module of regressions."""

from __future__ import annotations

import torch
from torch import nn

from p2pfl.plugins.exact.regression.links import IdentityLink, Link, Log, Logit


class Linear(nn.Module):
    """Linear predictors: features in, logits or predicted means out.

    Parameters
    ----------
    features
        Number of features.
    family
        Family.
    link
        Link; by default that of the family.
    exposure
        Position of the feature whose logarithm is added to the predictor; ``None`` for none.
    shapes
        Shapes of the tensors of the model, some of which predictions do not need.

    Examples
    --------
    >>> Linear(2, family="binomial")(torch.zeros(3, 2)).tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """

    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(
        self,
        features: int,
        *,
        family: str,
        link: Link | None = None,
        exposure: int | None = None,
        shapes: dict[str, tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__()
        self.classes = family in {"binomial", "multinomial"}
        self.link = link or (Logit() if self.classes else IdentityLink() if family == "gaussian" else Log())
        self.exposure = exposure
        every: dict[str, tuple[int, ...]] = {"weight": (1, features), "bias": (1,)} | (shapes or {})
        for name, shape in every.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits ``[n, C]``, or predicted means ``[n, 1]``, for features ``[n, F]``."""
        flat = features.flatten(1).double()  # [n, F]
        predictor = flat @ self.weight.T + self.bias  # [n, K]
        if self.exposure is not None:
            predictor = predictor + flat[:, self.exposure, None].log()
        found = self.link.tensor(predictor)
        return torch.cat([torch.zeros_like(found[:, :1]), found], dim=1) if self.classes else found
