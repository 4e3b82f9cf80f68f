""":class:`Statistic`, what models have in common that predict nothing."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.rows import Layout
from p2pfl.learning.exact_model import ExactModel, Part, Tensors, zeros


class Tensored(nn.Module):
    """Holder of named numbers, so that statistics are saved as models are.

    Parameters
    ----------
    layout
        Names and shapes.
    what
        Name of the numbers with an article, for the error.
    """

    def __init__(self, layout: Layout, *, what: str) -> None:
        super().__init__()
        self.what = what
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Raise :class:`ModelError`, as there is nothing to predict.

        Raises
        ------
        ModelError
            Always.
        """
        del features
        raise ModelError(f"{self.what} predicts nothing; choose another model")


class Statistic(ExactModel):
    """Model that states something about all data and predicts nothing about a sample; its start is all zeros."""

    subject: ClassVar[str]
    """The statistic with its article, for errors."""

    @property
    def scored(self) -> str:
        """Kind of the score."""
        return "nothing"

    def module(self) -> nn.Module:
        """Return the torch module that holds the tensors; it predicts nothing."""
        return Tensored(self.layout, what=self.subject)

    def start(self) -> Tensors:
        """Return the numbers of no samples."""
        return zeros(self.layout)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Raise :class:`ModelError`, as a statistic predicts nothing about a sample.

        Raises
        ------
        ModelError
            Always.
        """
        del tensors, part
        raise ModelError(f"{self.subject} predicts nothing about a sample; choose another model")
