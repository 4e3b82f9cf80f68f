"""The best model of each peer of a simulation, judged by its own validation data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch

from p2pfl.algorithms import State, start
from p2pfl.core.rows import Rows
from p2pfl.experiment import Plan
from p2pfl.learning import learner_traits
from p2pfl.simulation.evaluation_size import Evaluator
from p2pfl.simulation.sharding import Shard

PREFIX = "best."
"""Beginning of the names of tensors in a checkpoint."""


@dataclass
class BestModels:
    """Best models so far, with as many rows as the process has peers.

    Attributes
    ----------
    rows
        Parameters ``[R, P]`` on the CPU.
    losses
        Validation losses ``[R]`` float64; infinity where there is none yet.
    rounds
        Rounds that they come from, ``[R]`` int64, counted from 0; -1 where there is none yet.
    """

    rows: Rows
    losses: torch.Tensor
    rounds: torch.Tensor

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Return the best models before the first round, of peers with the parameters ``[R, P]``."""
        count = len(rows)
        none = torch.full((count,), torch.inf, dtype=torch.float64)  # [R]
        return cls(rows.detach().cpu().clone(), none, torch.full((count,), -1))

    def consider(
        self, rows: Rows, losses: torch.Tensor, *, rounds: torch.Tensor, since: torch.Tensor | None = None
    ) -> None:
        """Take the models of a round where they are better; where they are equal, the earlier one stays.

        Parameters
        ----------
        rows
            Parameters ``[R, P]``; they are copied.
        losses
            Validation losses ``[R]``; NaN for peers that have no such data or were not evaluated.
        rounds
            Round of each peer, ``[R]``; -1 for none.
        since
            Round before which the rows changed that judge the models of each peer, ``[R]``; the first by default.
        """
        losses = losses.cpu().double()
        better = losses < self.losses  # [R]
        if since is not None:  # losses of earlier rounds are of other rows
            better |= (self.rounds < since) & losses.isfinite()
        better &= rounds >= 0
        where = better.nonzero().squeeze(-1)  # [K]
        self.rows.index_copy_(0, where, rows.index_select(0, where.to(rows.device)).to(self.rows))
        self.losses = torch.where(better, losses, self.losses)
        self.rounds = torch.where(better, rounds, self.rounds)

    def improvement(self, round: int, *, patience: int) -> torch.Tensor:
        """Return 1 for each peer whose best model is less than ``patience`` rounds old, and 0 otherwise, ``[R, 1]``.

        A peer without validation data has no best model, and holds nobody back.
        """
        young = (self.rounds >= 0) & (round - self.rounds < patience)  # [R]
        return young.unsqueeze(-1).double()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by their names in a checkpoint."""
        return {PREFIX + "rows": self.rows, PREFIX + "losses": self.losses, PREFIX + "rounds": self.rounds}

    def copy(self) -> Self:
        """Return what further rounds do not change."""
        return type(self)(self.rows.clone(), self.losses, self.rounds)

    @classmethod
    def take(cls, tensors: dict[str, torch.Tensor]) -> Self | None:
        """Take the best models out of the tensors of a checkpoint, if there are any."""
        fields: Mapping[str, torch.Tensor] = {
            name: tensors.pop(PREFIX + name) for name in ("rows", "losses", "rounds") if PREFIX + name in tensors
        }
        return cls(**fields) if fields else None


@dataclass
class ModelJudge:
    """Judge of the models after each round.

    With ``patience`` it judges all models in each round, as live peers do, because they decide when the run stops;
    otherwise those that are evaluated anyway.

    Attributes
    ----------
    evaluator
        What computes the losses.
    best
        Best models so far; ``None`` where no peer has a validation part.
    patience
        Value of ``learning.patience``.
    since
        Round before which the rows changed that judge the models of each peer, ``[R]``; ``None`` if they stay the same.
    """

    evaluator: Evaluator
    best: BestModels | None
    patience: int | None
    since: torch.Tensor | None = None

    async def judge(self, round: int, state: State) -> torch.Tensor:
        """Keep the models that are better than those before; return which peers still find such models, ``[R, 1]``."""
        if self.best is None or self.patience is None:
            return torch.zeros(len(state.rows), 1)
        losses = self.evaluator.judge(state.rows)  # [R]
        self.best.consider(state.rows, losses, rounds=torch.full((len(losses),), round), since=self.since)
        return self.best.improvement(round, patience=self.patience)

    def record(self, rows: Rows, evaluated: Sequence[dict[str, float]], *, rounds: Sequence[int]) -> None:
        """Keep the models that are better than those before, by the scores of a round that each peer ended."""
        if self.best is None or self.patience is not None:
            return
        losses = [scores.get("validation_loss", math.nan) for scores in evaluated]
        values = torch.tensor(losses, dtype=torch.float64)
        self.best.consider(rows, values, rounds=torch.tensor([*rounds]), since=self.since)


def judge_of(plan: Plan, shard: Shard, evaluator: Evaluator, *, begun: BestModels | None) -> ModelJudge:
    """Return the judge of a run, which goes on with the best models that an earlier part of it had."""
    judged = plan.validates and not learner_traits(plan.learner).additive  # of these the last is the best, of all peers
    best = begun or (BestModels.of(start(plan.learner, shard.peers).rows) if judged else None)
    return ModelJudge(evaluator, best, plan.experiment.learning.patience)
