"""Scores of the mean of all models, which papers on decentralised learning report."""

from __future__ import annotations

import numpy as np
import torch

from p2pfl.core.rows import Rows, draw, mean
from p2pfl.data import Federation
from p2pfl.experiment import Plan
from p2pfl.experiment.schema import EvaluationSettings
from p2pfl.learning.torch_learner import TorchLearner
from p2pfl.simulation.evaluation_size import FEWEST_SAMPLES, FREE, Scope
from p2pfl.simulation.sharding import Shard

NAME = "mean"
"""Name of the peer that has the test data of all."""

SHARE = 0.1
"""Largest share of the evaluation of the peers that the mean model takes by default."""


class MeanModel:
    """Evaluation of the mean of all models on the test data of all peers.

    By default it takes at most a tenth of the samples on which the peers are evaluated, unless these are few.

    Parameters
    ----------
    plan
        Plan of the run.
    shard
        Peers of this process; each process evaluates on the samples that it holds.
    scope
        How much of the peers is evaluated.

    Attributes
    ----------
    meaningful
        False where a mean of models is no model: of peers that end with models of their own or keep layers to
        themselves, of models from totals, and where some peers attack.
    """

    def __init__(self, plan: Plan, shard: Shard, scope: Scope) -> None:
        bare, traits = plan.learner.bare, plan.asked.algorithm
        own = traits.personal or traits.additive or bool(plan.learner.layout.local) or plan.attack is not None
        self.meaningful = isinstance(bare, TorchLearner) and not own
        self.shard, self.every = shard, scope.every
        if not isinstance(bare, TorchLearner) or own:
            return
        names = plan.topology.peers
        held = [plan.federation.sizes(peer).test for peer in names]
        counts = [min(each, scope.samples or each) for each in held]
        evaluated = sum(counts) * (1 if scope.peers is None else scope.peers / len(names))
        free = FREE / max(1, bare.products * plan.experiment.rounds)
        most = int(max(FEWEST_SAMPLES, SHARE * evaluated, SHARE * free))
        if plan.experiment.evaluation != EvaluationSettings():
            most = scope.samples or sum(held)
        union = plan.federation.of(*shard.peers).pooled(NAME)
        few = union.test[NAME]  # [n]
        if len(few) > most:
            few = few[np.sort(draw(plan.experiment.seed, "mean model").permutation(len(few))[:most])]
        self.whole = plan.learner.on(union)
        self.learner = plan.learner.on(Federation(union.dataset, union.train, union.validation, {NAME: few}))
        self.counts = len(union.test[NAME]), len(few)

    def scores(self, round: int, rows: Rows, *, whole: bool) -> dict[str, float]:
        """Return the scores of the mean of all models after a round; none in rounds without evaluation.

        Parameters
        ----------
        round
            The round.
        rows
            Models ``[R, P]`` of the peers of this process.
        whole
            Whether to evaluate on all samples, as after the last round.
        """
        if not self.meaningful or not (whole or (round + 1) % self.every == 0):
            return {}
        learner, count = (self.whole, self.counts[0]) if whole else (self.learner, self.counts[1])
        row = self.shard.mean(mean(rows)).unsqueeze(0).to(rows)  # [1, P]
        found = learner.evaluate(row, peers=(NAME,))
        parts = [float(each[0]) * count if count else 0.0 for each in found.values()]
        *sums, total = self.shard.sums(torch.tensor([*parts, count], dtype=torch.float64)).tolist()
        return {name: each / total for name, each in zip(found, sums, strict=True)} if total else {}
