"""Judgement of the models of a simulation by the validation data of each peer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from p2pfl.algorithms import State, start
from p2pfl.core.rows import Rows
from p2pfl.experiment import Plan
from p2pfl.learning import learner_traits
from p2pfl.simulation.best import BestModels
from p2pfl.simulation.evaluating import Evaluator
from p2pfl.simulation.sharding import Shard


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
    """

    evaluator: Evaluator
    best: BestModels | None
    patience: int | None

    async def judge(self, round: int, state: State) -> torch.Tensor:
        """Keep the models that are better than those before; return which peers still find such models, ``[R, 1]``."""
        if self.best is None or self.patience is None:
            return torch.zeros(len(state.rows), 1)
        losses = self.evaluator.judged(state.rows)  # [R]
        self.best.consider(state.rows, losses, rounds=torch.full((len(losses),), round))
        return self.best.improving(round, patience=self.patience)

    def record(self, rows: Rows, evaluated: Sequence[dict[str, float]], *, rounds: Sequence[int]) -> None:
        """Keep the models that are better than those before, by the scores of a round that each peer ended."""
        if self.best is None or self.patience is not None:
            return
        losses = [scores.get("validation_loss", math.nan) for scores in evaluated]
        self.best.consider(rows, torch.tensor(losses, dtype=torch.float64), rounds=torch.tensor([*rounds]))


def judge_of(plan: Plan, shard: Shard, evaluator: Evaluator, *, begun: BestModels | None) -> ModelJudge:
    """Return the judge of a run, which goes on with the best models that an earlier part of it had."""
    judged = plan.validates and not learner_traits(plan.learner).additive  # of these the last is the best, of all peers
    best = begun or (BestModels.of(start(plan.learner, shard.peers).rows) if judged else None)
    return ModelJudge(evaluator, best, plan.experiment.learning.patience)
