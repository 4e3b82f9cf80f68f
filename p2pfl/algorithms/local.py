"""Amount of local training per round, for algorithms that set it instead of the learner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Local:
    """Parameters of algorithms that define the amount of local training.

    Parameters
    ----------
    epochs
        Passes over the data per round; those of the learner if ``None``.
    steps
        Optimiser steps per round instead of epochs.

    Examples
    --------
    >>> from p2pfl.algorithms import FedAvg
    >>> FedAvg(epochs=5).epochs
    5
    """

    epochs: int | None = None
    steps: int | None = None
