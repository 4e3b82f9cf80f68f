"""A user's own training loop as a learner."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Protocol, Self

import torch

from p2pfl.data import Federation
from p2pfl.errors import LearningError, ModelError
from p2pfl.identity import Source
from p2pfl.learning.learner import Correction, Fitted, Memory, Report
from p2pfl.rows import Layout, Rows
from p2pfl.traits import LearnerTraits


class Training(Protocol):
    """``function(row, peer=..., round=...) -> row``: one peer's local training."""

    def __call__(self, row: torch.Tensor, *, peer: str, round: int) -> torch.Tensor:
        """Return the trained row ``[P]``; the one given may be changed."""
        ...


class ExternalLearner:
    """Any training loop, in any framework, one row after the other.

    Parameters
    ----------
    function
        Trains one row; it may be called for many peers, and must not depend on their order.
    start
        The common start, ``[P]``.
    samples
        How many training samples each peer holds.
    evaluate
        ``evaluate(row, peer) -> scores by name``; no scores if ``None``.
    layout
        Names and shapes of a row's tensors; one tensor called ``row`` if ``None``.

    Raises
    ------
    ModelError
        If ``start`` is not a row of ``layout``.

    Examples
    --------
    >>> def halve(row, *, peer, round):
    ...     return row / 2
    >>> learner = ExternalLearner(halve, start=torch.ones(2), samples={"ada": 3})
    >>> learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows
    tensor([[0.5000, 0.5000]])
    """

    traits: ClassVar[LearnerTraits] = LearnerTraits()

    def __init__(
        self,
        function: Training,
        *,
        start: torch.Tensor,
        samples: Mapping[str, int],
        evaluate: Callable[[torch.Tensor, str], Mapping[str, float]] | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.layout = layout or Layout(("row",), ((start.numel(),),))
        if tuple(start.shape) != (self.layout.size,) or not start.is_floating_point():
            raise ModelError(
                f"expected a row of {self.layout.size} floats as the start, got {tuple(start.shape)} {start.dtype}: "
                "flatten the trained tensors in the layout's order"
            )
        self.function, self.scores = function, evaluate
        self.initial, self.counts = start.detach().clone(), dict(samples)

    @property
    def dtype(self) -> torch.dtype:
        """What the numbers of a row are."""
        return self.initial.dtype

    @property
    def bare(self) -> Self:
        """The learner itself."""
        return self

    def on(self, federation: Federation) -> Self:
        """Refuse: nobody else knows its data.

        Raises
        ------
        ModelError
            Always.
        """
        del federation
        raise ModelError(
            "expected a torch model for data.scale, whose features can be scaled, got a training loop of your own: "
            "scale them there"
        )

    def drawing(self, source: Source) -> Self:
        """The same: it hides nothing that we know of."""
        del source
        return self

    def start(self, peers: Sequence[str]) -> Rows:
        """Return the common start for every peer, ``[R, P]``."""
        return self.initial.repeat(len(peers), 1)  # [R, P]

    def samples(self, peers: Sequence[str]) -> torch.Tensor:
        """How many training samples each peer holds, ``[R]`` int64."""
        return torch.tensor([self.counts[peer] for peer in peers], dtype=torch.int64)  # [R]

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
        """Train each active row by the function; a call counts as one step, and its loss as 0.

        Raises
        ------
        ModelError
            If an algorithm wants to correct gradients, which a loop of one's own does not show.
        LearningError
            If the function returns something other than a finite row.
        """
        if correction is not None:
            raise ModelError(
                "this algorithm corrects every gradient, but a training loop of your own does not show its gradients; "
                "use FedAvg, or a torch model"
            )
        awake = torch.ones(len(rows), dtype=torch.bool) if active is None else active.cpu()  # [R]
        trained = rows.clone()  # [R, P]
        for i, peer in enumerate(peers):
            if not awake[i]:
                continue
            row = self.function(rows[i].clone(), peer=peer, round=round)
            if tuple(row.shape) != (self.layout.size,) or not torch.isfinite(row).all():
                raise LearningError(
                    f"expected a finite row of {self.layout.size} numbers from the training function for {peer} "
                    f"in round {round}, got another: check its learning rate and what it returns"
                )
            trained[i] = row.detach()
        loss = torch.zeros(len(rows), dtype=torch.float64)  # [R]
        return Fitted(trained, dict(memory or {}), Report(loss, awake.to(torch.int64)))

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
        """Refuse: there is none to be had.

        Raises
        ------
        ModelError
            Always.
        """
        del rows, peers, round, step, whole, active
        raise ModelError(
            "expected a torch model for an algorithm that asks for gradients, got a training loop of your own, which "
            "does not show its gradients; use FedAvg, or a torch model"
        )

    def rate(self, round: int) -> float:
        """The size of a step in a round, which a loop of one's own does not tell."""
        del round
        raise ModelError(
            "expected a torch model for an algorithm that asks for the learning rate, got a training loop of your own; "
            "use FedAvg, or a torch model"
        )

    def evaluate(self, rows: Rows, *, peers: Sequence[str], part: str = "test") -> dict[str, torch.Tensor]:
        """Scores by name, each ``[R]`` float64; the function knows only the ``test`` part."""
        if self.scores is None or part != "test":
            return {}
        each = [self.scores(row, peer) for row, peer in zip(rows, peers, strict=True)]
        return {
            name: torch.tensor([float(scores[name]) for scores in each], dtype=torch.float64)  # [R]
            for name in (each[0] if each else ())
        }

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """One row ``[P]`` under the layout's names."""
        return {name: part[0].detach().clone() for name, part in self.layout.split(row.unsqueeze(0)).items()}
