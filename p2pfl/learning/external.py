"""Adapter for a training loop of the user, in any framework."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol, Self

import torch

from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.rows import Layout, Rows
from p2pfl.core.traits import LearnerTraits
from p2pfl.data import Federation
from p2pfl.learning.learner import SequentialLearner


class TrainRow(Protocol):
    """Function ``function(row, peer=..., round=...) -> row`` that trains the model of one peer."""

    def __call__(self, row: torch.Tensor, *, peer: str, round: int) -> torch.Tensor:
        """Return the trained row ``[P]``; the function may change its argument."""
        ...


class ExternalLearner(SequentialLearner):
    """Learner that calls a training loop, in any framework, for one row after the other.

    Parameters
    ----------
    function
        Function that trains one row; it may be called for many peers, and must not depend on their order.
    start
        Common initial parameters, ``[P]``.
    samples
        Number of training samples of each peer.
    evaluate
        Function ``evaluate(row, peer) -> scores by name``; no scores if ``None``.
    layout
        Names and shapes of the tensors of a row; one tensor called ``row`` if ``None``.

    Raises
    ------
    ModelError
        ``start`` does not fit ``layout``.

    Examples
    --------
    >>> def halve(row, *, peer, round):
    ...     return row / 2
    >>> learner = ExternalLearner(halve, start=torch.ones(2), samples={"ada": 3})
    >>> learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows
    tensor([[0.5000, 0.5000]])
    """

    traits: ClassVar[LearnerTraits] = LearnerTraits()
    gradients_missing = "a training loop of your own does not expose them; use FedAvg, or a torch model"

    def __init__(
        self,
        function: TrainRow,
        *,
        start: torch.Tensor,
        samples: Mapping[str, int],
        evaluate: Callable[[torch.Tensor, str], Mapping[str, float]] | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.layout = layout or Layout(("row",), ((start.numel(),),))
        if tuple(start.shape) != (self.layout.size,) or not start.is_floating_point():
            raise ModelError(
                f"start has shape {tuple(start.shape)} and type {start.dtype}, not {self.layout.size} floats; "
                "flatten the trained tensors in the order of the layout"
            )
        self.function, self.scores = function, evaluate
        self.initial, self.counts = start.detach().clone(), dict(samples)

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the parameters."""
        return self.initial.dtype

    def on(self, federation: Federation) -> Self:
        """Raise :class:`ModelError`, as only the training loop knows its data.

        Raises
        ------
        ModelError
            Always.
        """
        del federation
        raise ModelError(
            "data.scale needs a torch model, but this is a training loop of your own; scale the features in the loop"
        )

    def start(self, peers: Sequence[str]) -> Rows:
        """Return the common initial parameters for every peer, ``[R, P]``."""
        return self.initial.repeat(len(peers), 1)  # [R, P]

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """Return the number of training samples of each peer, ``[R]`` int64."""
        return torch.tensor([self.counts[peer] for peer in peers], dtype=torch.int64)  # [R]

    def train(self, row: torch.Tensor, *, peer: str, round: int) -> tuple[torch.Tensor, float]:
        """Return the row that the function trained; its loss counts as 0.

        Raises
        ------
        LearningError
            The function returns something other than a finite row.
        """
        trained = self.function(row, peer=peer, round=round)
        if tuple(trained.shape) != (self.layout.size,) or not torch.isfinite(trained).all():
            raise LearningError(
                f"the training function returns something other than a finite row of {self.layout.size} "
                f"numbers for {peer} in round {round}; check its learning rate and its result"
            )
        return trained.detach(), 0.0

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Return scores by name, each ``[R]`` float64; the function only evaluates the ``test`` part."""
        if self.scores is None or part != "test":
            return {}
        each = [self.scores(row, peer) for row, peer in zip(rows, peers, strict=True)]
        return {
            name: torch.tensor([float(scores[name]) for scores in each], dtype=torch.float64)  # [R]
            for name in (each[0] if each else ())
        }
