""":class:`Learner`, the interface through which algorithms train and evaluate models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Required, Self, TypedDict

import torch

from p2pfl.data import Federation
from p2pfl.identity import Source
from p2pfl.rows import Layout, Rows

Memory = Mapping[str, torch.Tensor]
"""Optimiser state by name: ``[R, P]`` for state per parameter, ``[R]`` for state per row."""

Correction = Callable[[Rows, torch.Tensor], Rows]
"""Function ``correction(rows, indices)`` that returns ``[K, P]``, added to the gradients of the K rows ``indices``."""


@dataclass(frozen=True)
class Report:
    """Losses and steps of a round of local training.

    Attributes
    ----------
    loss
        ``[R]`` float64: mean training loss of the last epoch, 0 for idle rows.
    steps
        ``[R]`` int64: optimiser steps taken in this round.
    """

    loss: torch.Tensor
    steps: torch.Tensor


@dataclass(frozen=True)
class Fitted:
    """Rows after a round of local training, with optimiser state and a report.

    Attributes
    ----------
    rows
        ``[R, P]``; idle rows stay as they were, bit for bit.
    memory
        Optimiser state to pass to the next round; empty for optimisers without state.
    report
        Loss and steps; it may be kept without keeping the rows.
    """

    rows: Rows
    memory: Memory
    report: Report


class Fitting(TypedDict, total=False):
    """Keyword arguments of :meth:`Learner.fit` besides rows, for wrappers that pass them on."""

    peers: Required[Sequence[str]]
    round: Required[int]
    memory: Memory | None
    active: torch.Tensor | None
    correction: Correction | None


class Sloping(TypedDict, total=False):
    """Keyword arguments of :meth:`Learner.gradient` besides rows, for wrappers that pass them on."""

    peers: Required[Sequence[str]]
    round: Required[int]
    step: int
    whole: bool
    active: torch.Tensor | None


class Learner(Protocol):
    """Interface that trains and evaluates rows; R = 1 on a device, R = N in a simulation."""

    @property
    def layout(self) -> Layout:
        """Places of the trained tensors in a row."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the parameters."""
        ...

    @property
    def bare(self) -> "Learner":
        """The innermost learner, without wrappers; its class offers more than this interface."""
        ...

    def on(self, federation: Federation) -> Self:
        """Return the same learner on other data of the same shape."""
        ...

    def drawing(self, source: Source) -> Self:
        """Return the same learner with another source for the secrets that hide single samples, if it uses any."""
        ...

    def start(self, peers: Sequence[str]) -> Rows:
        """Return the common initial parameters, the same row for every peer, ``[R, P]``."""
        ...

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples of each peer, ``[R]`` int64."""
        ...

    def fit(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        memory: Memory | None = None,
        active: torch.Tensor | None = None,
        correction: Correction | None = None,
    ) -> Fitted:
        """Train each row on the data of its peer; rows that are not ``active`` do not move."""
        ...

    def gradient(
        self,
        rows: Rows,
        *,
        peers: Sequence[str],
        round: int,
        step: int = 0,
        whole: bool = False,
        active: torch.Tensor | None = None,
    ) -> Rows:
        r"""Return :math:`\nabla F_k(x_k; \xi)` of each row, ``[R, P]``, zero where a row is not ``active``.

        :math:`\xi` is the batch of a ``step`` of the round, or the ``whole`` training part.
        """
        ...

    def rate(self, round: int) -> float:
        """Return the step size of a round."""
        ...

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return scores by name, each ``[R]`` float64; ``loss`` is among them."""
        ...

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return one row ``[P]`` under the names of the model, including frozen tensors."""
        ...
