"""Learners whose models say something of their features."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch

from p2pfl.core.explanations import Explained


@runtime_checkable
class Explains(Protocol):
    """A learner whose models say something of their features."""

    def explained(self, row: torch.Tensor) -> Explained | None:
        """Return what a model ``[P]`` says of its features; ``None`` if that is nothing."""
        ...
