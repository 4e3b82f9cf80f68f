r"""Difference of two models on exact totals: the row of the person who has left between them.

Both models follow from totals that all peers have. The second run lacks one person, so subtracting its totals leaves
what that person adds. A regression begins at a constant, where all rows have one weight w, which the intercept shows:

.. math:: n \frac{\sum_i w x_i x_i^T}{\sum_i w} - (n - 1) \frac{\sum_{i \ne j} w' x_i x_i^T}{\sum_{i \ne j} w'}
    = x_j x_j^T

Its last column is the row, as the last entry of x is 1. The first total shows the target likewise. The histograms of
the first tree of boosting differ in the bin of each feature of that person, and by their class. So the attack always
succeeds, and the account of the data refuses such runs (:mod:`p2pfl.plugins.audit.attacks.run_differences`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, LearningError
from p2pfl.experiment import Plan
from p2pfl.learning.additive import Question, add_up, answer_questions
from p2pfl.learning.exact_learner import ExactLearner
from p2pfl.learning.exact_model import symmetric
from p2pfl.plugins.audit.attacks.first_tree import FirstTree
from p2pfl.plugins.audit.claims import TOTALS, ExactClaim, claim
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.boosting import Boosting
from p2pfl.plugins.exact.regression.glm import GLM

PEOPLE = 4
"""People of each owner who leave, one at a time."""

MAX_OWNERS = 4
"""Owners whose people leave."""

PRECISION = 1e-6
"""Largest error of a row that is read, relative to its largest value."""


def subtract_models(plan: Plan, *, seed: int = 0) -> list[ExactClaim]:
    """Read the rows of people who leave, one at a time, from totals with and without them.

    Parameters
    ----------
    plan
        Resolved experiment, whose totals are exact.
    seed
        Seed of the people.

    Returns
    -------
    list of ExactClaim
        Largest error of a row, or number of people whose bins are not read; nothing for models that are not attacked,
        or that refuse the data.
    """
    learner = plan.learner.bare
    if not isinstance(learner, ExactLearner) or plan.federation.elsewhere is not None:
        return []
    try:
        if isinstance(learner.model, GLM) and _constant(learner.model):
            errors = [_error_of_row(learner, learner.model, *each) for each in _leaving(learner, seed=seed)]
            if errors:
                name = "the difference of two models is the row of who left"
                return [claim(TOTALS, name, max(errors), PRECISION, count=len(errors))]
        if isinstance(learner.model, Boosting):
            read = [_reads_bins(learner, learner.model, *each) for each in _leaving(learner, seed=seed)]
            if moved := [each for each in read if each is not None]:
                name = "the difference of two first trees is the bins of who left"
                return [claim(TOTALS, name, moved.count(False), count=len(moved))]
    except (DataError, LearningError):  # nothing leaves
        pass
    return []


def _leaving(learner: ExactLearner, *, seed: int) -> Iterator[tuple[str, int]]:
    """Yield owners and positions of people among their training samples."""
    for owner in learner.federation.peers[:MAX_OWNERS]:
        order = draw(seed, "audit withdrawals", owner).permutation(len(learner.federation.train[owner]))
        yield from ((owner, position) for position in order[:PEOPLE].tolist())


def _without(learner: ExactLearner, owner: str, position: int) -> ExactLearner:
    """Return the learner of the run that never had a person."""
    train = learner.federation.train
    return learner.on(replace(learner.federation, train={**train, owner: np.delete(train[owner], position)}))


def _constant(model: GLM) -> bool:
    """Return whether all rows have one weight in the first step, which the intercept shows."""
    return model.fit_intercept and not (model.roles.shifted or model.roles.weighted or model.estimates)


def _error_of_row(learner: ExactLearner, model: GLM, owner: str, position: int) -> float:
    """Return the error of the row and target that the totals of two runs show, relative to its largest value."""
    with_all, without = (_first_step(each, model) for each in (learner, _without(learner, owner, position)))
    row = with_all[0][-1] - without[0][-1]
    part = learner.own(owner).train
    features = part.features[position, model.roles.kept].astype(np.float64)
    true = np.concatenate([features, [1.0], model.kind.observed(part.targets[[position]])[0]])
    away = np.abs(np.concatenate([row, with_all[1] - without[1]]) - true)
    return float(away.max() / np.abs(true).max())


def _first_step(learner: ExactLearner, model: GLM) -> tuple[Floats, Floats]:
    """Return the sums of products of all columns ``[p, p]`` and of targets ``[K]`` that totals of a round show."""
    totals, peers = list[Ints](), learner.federation.peers

    def total(question: Question) -> Ints:
        totals.append(add_up(question, peers))
        return totals[-1]

    answer_questions(model.advance(model.start(), learner.own), total)
    upper = model.width * (model.width + 1) // 2
    samples, length = int(totals[0][-2]), model.length
    derived = next(each for each in totals if len(each) == sums.size(upper + model.width + 2))
    products = symmetric(sums.numbers(derived)[:upper], size=model.width)[:length, :length]
    return samples * products / products[-1, -1], sums.numbers(totals[0][:-2])[: model.kind.predictors]


def _same_merged(one: Ints | None, other: Ints | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def _reads_bins(learner: ExactLearner, model: Boosting, owner: str, position: int) -> bool | None:
    """Return whether the first trees of two runs show all bins of a person, and their class; ``None`` if bins moved."""
    first, second = (FirstTree.of(each, model) for each in (learner, _without(learner, owner, position)))
    if not first.bins.same(second.bins) or not _same_merged(first.merged, second.merged):
        return None
    peers = learner.federation.peers
    left = first.counts(peers) - second.counts(peers)  # [cells, C]
    own = np.zeros_like(left)
    label = 0 if model.classes is None else int(first.parts[owner].targets[position])
    own[first.cells([owner])[:, position], label] = 1
    return bool((left == own).all())
