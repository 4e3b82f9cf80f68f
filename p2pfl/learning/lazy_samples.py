"""Learners of clients whose samples are loaded where they train."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Protocol, Self, TypeVar

from p2pfl.core.tensors import torch
from p2pfl.data import Federation, LazyFederation


class RebindableLearner(Protocol):
    """Learner that is the same on other data, such as :class:`p2pfl.learning.TorchLearner`."""

    federation: Federation
    proof: Any
    perceptrons: Any
    engine: Any

    def on(self, federation: Federation, /) -> Self:
        """Return the same learner on other data of the same shape."""
        ...


Kind = TypeVar("Kind", bound=RebindableLearner)
"""Class of a learner."""


@contextlib.contextmanager
def having(learner: Kind, peers: Sequence[str], active: torch.Tensor | None = None) -> Iterator[Kind]:
    """Load the samples of the peers that are active, for as long as a learner of them is in use.

    Parameters
    ----------
    learner
        Learner of a lazy federation.
    peers, active
        Arguments of :meth:`p2pfl.learning.TorchLearner.fit`.
    """
    federation = learner.federation
    assert isinstance(federation, LazyFederation)  # noqa: S101 (asked by the caller)
    awake = peers if active is None else [*compress(peers, active.tolist())]
    near = learner.on(federation.gathered(awake, idle=peers))
    near.proof = learner.proof
    yield near
    learner.perceptrons, learner.engine = near.perceptrons, near.engine  # plain torch, where others were wrong
