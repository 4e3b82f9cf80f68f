""":class:`Tensored`, a torch module of results that predict nothing."""

from __future__ import annotations

import torch
from torch import nn

from p2pfl.errors import ModelError
from p2pfl.rows import Layout


class Tensored(nn.Module):
    """Holder of named numbers, so that statistics are saved as models are.

    Parameters
    ----------
    layout
        Names and shapes.
    what
        What the numbers are, for the error.
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
