"""Approximate removal of a peer from a model that peers have learned together, which is not forgetting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
import torch

from p2pfl.algorithms import Algorithm, AsyncLearner, State
from p2pfl.core.errors import InputError
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.rows import Rows, norms
from p2pfl.experiment import Plan
from p2pfl.learning import Fitted, Fitting, Learner, Sloping, TorchLearner
from p2pfl.learning.metrics import auc
from p2pfl.results import Record, Run

ALGORITHMS = ("fedavg", "dpsgd")
"""Algorithms whose updates are those of local training alone."""

LOCAL_PART = 3
"""Directions are found by one of so many parts of the local training."""

UpdateLengths = Mapping[str, Sequence[float]]
"""L2 distance by which the training of a peer moved the model in each round, by peer; 0 where it was absent."""


def update_lengths(records: Sequence[Record]) -> UpdateLengths:
    """Return how far the training of each peer moved its model in each round of a run.

    Raises
    ------
    InputError
        A record has no such number.
    """
    rounds = 1 + max((record.round for record in records), default=-1)
    lengths = {record.peer: [0.0] * rounds for record in records}
    for record in records:
        if record.update is None:
            raise InputError(
                f"the records have no length of the update of {record.peer} in round {record.round}, so it cannot be "
                "calibrated; replay the run with p2pfl forget"
            )
        lengths[record.peer][record.round] = record.update
    return lengths


def calibrated(plan: Plan, lengths: UpdateLengths) -> Plan:
    r"""Return the plan of a run that repeats the lengths of old updates in directions that are found anew.

    Each peer begins at the common start, trains for a third of its local training, which gives V, and moves by

    .. math:: U' = \lVert U \rVert \frac{V}{\lVert V \rVert},

    where U is its update in the same round of the old run. Directions that the peers who left have caused are gone;
    how far the others moved then is not.

    Parameters
    ----------
    plan
        Plan of the run without those who left.
    lengths
        Result of :func:`update_lengths` of the old run, in which each round of the new one has its own.

    Raises
    ------
    InputError
        The old run has fewer rounds, or updates are not those of local training alone, or too few steps for a third.

    References
    ----------
    Liu et al., FedEraser: enabling efficient client-level data removal from federated learning models, IWQoS 2021,
    whose server keeps whole updates. One length for each update is as good here as one for each of its layers, and
    records have it anyway.
    """
    if plan.experiment.horizon > (known := min(map(len, lengths.values()), default=0)):
        raise InputError(
            f"the old run has updates of {known} rounds, not of {plan.experiment.horizon}; set rounds={known}"
        )
    learner = _shortened(repairable_learner(plan), plan)
    return replace(plan, learner=learner, algorithm=CalibratedAlgorithm(plan.algorithm, lengths))


def repair_cost(plan: Plan) -> float:
    """Return the samples that a calibrated round trains on, as a share of those of a round of a plan."""
    learner, peers = repairable_learner(plan), plan.topology.peers
    return _shortened(learner, plan).samples_a_round(peers) / learner.samples_a_round(peers)


def with_other_batches(plan: Plan) -> Plan:
    """Return the plan of the same run, whose batches come in another order."""
    learner = repairable_learner(plan)
    other = learner.on(learner.federation)
    other.seed = learner.seed + 1
    return replace(plan, learner=other)


def mean_model(run: Run, plan: Plan) -> torch.Tensor:
    """Return the mean of the last models that the peers of a plan have in a run, ``[P]``."""
    models, layout = [run.models[peer] for peer in plan.topology.peers], plan.learner.layout
    return layout.join({name: torch.stack([model[name] for model in models]) for name in layout.names}).mean(0)


def membership(plan: Plan, row: torch.Tensor, *, peer: str, others: str) -> float:
    """Return how well the loss of a model tells a peer's training samples from others of the peer.

    Parameters
    ----------
    plan
        Plan with the data of the peer.
    row
        Model ``[P]``.
    peer
        Name of the peer.
    others
        Part of its data that took no part in training: ``validation`` or ``test``.

    Returns
    -------
    float
        Area under the ROC curve: 0.5 where it does not tell them apart.
    """
    learner = repairable_learner(plan)
    own = [learner.loss(*learner.outputs(row, peer=peer, part=part)).double().numpy() for part in ("train", others)]
    return auc(-np.concatenate(own), np.repeat([True, False], [len(each) for each in own]))


@dataclass(frozen=True)
class CalibratedAlgorithm:
    """Algorithm whose local training moves each model as far as it did in an older run.

    Parameters
    ----------
    algorithm
        The algorithm of both.
    lengths
        Result of :func:`update_lengths` of the older run.
    """

    algorithm: Algorithm
    lengths: UpdateLengths

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round with calibrated updates."""
        return await self.algorithm.round(state, _CalibratedTraining(learner, self.lengths), net, round)


@dataclass(frozen=True)
class _CalibratedTraining:
    training: AsyncLearner
    lengths: UpdateLengths

    @property
    def learner(self) -> Learner:
        return self.training.learner

    async def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        fitted = await self.training.fit(rows, **options)
        moved = fitted.rows - rows  # [R, P]
        old = torch.tensor([self.lengths[peer][options["round"]] for peer in options["peers"]], dtype=torch.float64)
        scale = old.unsqueeze(-1).to(moved.device) / norms(moved)  # [R, 1]
        scaled = moved * torch.where(scale.isfinite(), scale, 0).to(moved)  # who did not train does not move
        return replace(fitted, rows=rows + scaled, owned=False)

    async def gradient(self, rows: Rows, **options: Unpack[Sloping]) -> Rows:
        return await self.training.gradient(rows, **options)


def repairable_learner(plan: Plan) -> TorchLearner:
    """Return the learner of a plan whose updates are those of gradient steps.

    Raises
    ------
    InputError
        They are not.
    """
    learner, name = plan.learner.bare, plan.experiment.learning.algorithm
    if not isinstance(learner, TorchLearner) or name not in ALGORITHMS:
        raise InputError(
            f"a repair calibrates updates of gradient steps, which {' and '.join(ALGORITHMS)} of torch models have; "
            "replay this run with p2pfl forget"
        )
    return learner


def _shortened(learner: TorchLearner, plan: Plan) -> TorchLearner:
    """Return the learner with a third of the local training, whole epochs where it has some."""
    if learner.steps is None and learner.epochs >= LOCAL_PART:
        return learner.adjusted(seed=learner.seed, epochs=learner.epochs // LOCAL_PART)
    size = int(plan.federation.samples(plan.topology.peers).double().mean())
    each = 1 if learner.batch is None else -(-size // learner.batch)
    steps = learner.epochs * each if learner.steps is None else learner.steps
    if steps < LOCAL_PART:
        raise InputError(
            f"a round has {steps} local steps, so no third of them saves anything; replay the run with p2pfl forget"
        )
    return learner.adjusted(seed=learner.seed, steps=steps // LOCAL_PART)
