r"""Difference of two models on exact totals: the row of the person who has left between them.

Both models follow from totals that all peers have. The second run lacks one person, so subtracting its totals leaves
what that person adds. A regression begins at a constant, where all rows have one weight w, which the intercept shows:

.. math:: n \frac{\sum_i w x_i x_i^T}{\sum_i w} - (n - 1) \frac{\sum_{i \ne j} w' x_i x_i^T}{\sum_{i \ne j} w'}
    = x_j x_j^T

Its last column is the row, as the last entry of x is 1. The first total shows the target likewise. The histograms of
the first tree of boosting differ in the bin of each feature of that person, and by their class; those of the roots of a
forest, in which each person has a weight, in the bins of the features that the roots draw. Principal components and a
Cox regression begin with the sums of all columns, whose difference is the row; the second total of a Cox regression
differs in the cell of time in which the person leaves, and in whether they had the event. So the attack always
succeeds, and the account of the data refuses such runs (:mod:`p2pfl.plugins.audit.attacks.run_differences`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, LearningError
from p2pfl.experiment import Plan
from p2pfl.learning.additive import Question, add_up, answer_questions
from p2pfl.learning.exact_learner import ExactLearner
from p2pfl.learning.exact_model import Tensors, symmetric
from p2pfl.plugins.audit.attacks.first_tree import FirstTree
from p2pfl.plugins.audit.claims import TOTALS, ExactClaim, claim
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.boosting import Boosting
from p2pfl.plugins.exact.forest import RandomForest
from p2pfl.plugins.exact.regression.glm import GLM
from p2pfl.plugins.exact.statistics.pca import PCA
from p2pfl.plugins.exact.survival.cox import Cox

PEOPLE = 4
"""People of each owner who leave, one at a time."""

MAX_OWNERS = 4
"""Owners whose people leave."""

ROOTS = 16
"""Trees of a forest whose roots are read; each person is in most of them."""

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
    attack = _attack(learner)
    if attack is None:
        return []
    try:
        errors = [error for each in _leaving(learner, seed=seed) if (error := attack.error(*each)) is not None]
    except (DataError, LearningError):  # nothing leaves
        return []
    if not errors:
        return []
    if attack.bins:
        return [claim(TOTALS, attack.name, sum(errors), count=len(errors))]
    return [claim(TOTALS, attack.name, max(errors), PRECISION, count=len(errors))]


@dataclass(frozen=True)
class _Attack:
    """Attack on the difference of two models of one kind.

    Parameters
    ----------
    name
        Name of the claim.
    error
        Function of an owner and a position that returns the error of what is read; ``None`` if nothing can be compared.
    bins
        True if bins are read, which are right or wrong.
    """

    name: str
    error: Callable[[str, int], float | None]
    bins: bool = False


def _attack(learner: ExactLearner) -> _Attack | None:
    """Return the attack on the model of a learner; ``None`` if there is none."""
    match learner.model:
        case GLM() as model if _constant(model):
            name = "the difference of two models is the row of who left"
            return _Attack(name, partial(_error_of_row, learner, model))
        case PCA():
            return _Attack("the difference of two sums is the row of who left", partial(_error_of_sums, learner))
        case Cox() as model if not (model.listed or model.subdistribution):
            name = "the difference of two Cox regressions is the row and the time of who left"
            return _Attack(name, partial(_error_of_time, learner, model))
        case Boosting() as model:
            name = "the difference of two first trees is the bins of who left"
            return _Attack(name, partial(_error_of_bins, learner, model), bins=True)
        case RandomForest() as model:
            name = "the difference of the roots of two forests is the bins of who left"
            return _Attack(name, partial(_error_of_roots, learner, model), bins=True)
    return None


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
    return _relative_error(np.concatenate([row, with_all[1] - without[1]]), true)


def _first_step(learner: ExactLearner, model: GLM) -> tuple[Floats, Floats]:
    """Return the sums of products of all columns ``[p, p]`` and of targets ``[K]`` that totals of a round show."""
    totals = _first_totals(learner)
    upper = model.width * (model.width + 1) // 2
    samples, length = int(totals[0][-2]), model.length
    derived = next(each for each in totals if len(each) == sums.size(upper + model.width + 2))
    products = symmetric(sums.numbers(derived)[:upper], size=model.width)[:length, :length]
    return samples * products / products[-1, -1], sums.numbers(totals[0][:-2])[: model.kind.predictors]


def _same_merged(one: Ints | None, other: Ints | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def _error_of_bins(learner: ExactLearner, model: Boosting, owner: str, position: int) -> float | None:
    """Return 0 if the first trees of two runs show all bins of a person, and their class; ``None`` if bins moved."""
    first, second = (FirstTree.of(each, model) for each in (learner, _without(learner, owner, position)))
    if not first.bins.same(second.bins) or not _same_merged(first.merged, second.merged):
        return None
    peers = learner.federation.peers
    left = first.counts(peers) - second.counts(peers)  # [cells, C]
    own = np.zeros_like(left)
    label = 0 if model.classes is None else int(first.parts[owner].targets[position])
    own[first.cells([owner])[:, position], label] = 1
    return float((left != own).any())


def _first_totals(learner: ExactLearner) -> list[Ints]:
    """Return the totals of the first round of a model."""
    totals, peers = list[Ints](), learner.federation.peers

    def total(question: Question) -> Ints:
        totals.append(add_up(question, peers))
        return totals[-1]

    answer_questions(learner.model.advance(learner.model.start(), learner.own), total)
    return totals


def _error_of_sums(learner: ExactLearner, owner: str, position: int) -> float:
    """Return the error of the row that the first totals of two analyses show, relative to its largest value."""
    with_all, without = (_first_totals(each)[0] for each in (learner, _without(learner, owner, position)))
    true = learner.own(owner).train.features[position].astype(np.float64)
    return _relative_error(sums.numbers(with_all[1:]) - sums.numbers(without[1:]), true)


def _error_of_time(learner: ExactLearner, model: Cox, owner: str, position: int) -> float:
    """Return the error of the row, the cell of time and the event that the first totals of two regressions show."""
    with_all, without = (_first_totals(each) for each in (learner, _without(learner, owner, position)))
    row = sums.numbers(with_all[0][:-2]) - sums.numbers(without[0][:-2])  # [F]
    grid, part = model.grid(model.start()), learner.own(owner).train
    groups = len(model.roles.levels) * grid.cells
    blocks = 2 + (model.entry is not None)
    # counts of leaving, of leaving with the event, and of entering
    left = (with_all[1] - without[1])[-blocks * groups :].reshape(blocks, groups)
    features, kept = part.features[[position]], np.array(model.roles.kept)
    cell, event = grid.placed(part.targets[[position]])
    true_cell = int(model.roles.stratum(features)[0]) * grid.cells + int(cell[0])
    happened = bool((event & ~model.roles.diverted(features, event))[0])
    if (int(left[0].argmax()), bool(left[1].any())) != (true_cell, happened):
        return float("inf")
    return _relative_error(row[kept], features[0, kept].astype(np.float64))


def _relative_error(read: Floats, true: Floats) -> float:
    return float(np.abs(read - true).max() / (np.abs(true).max() or 1.0))


def _error_of_roots(learner: ExactLearner, model: RandomForest, owner: str, position: int) -> float | None:
    """Return 0 if the roots of two forests show bins of a person, their class, and no other.

    ``None`` if bins moved, or if no tree has drawn the person.
    """
    peers, width, counted = learner.federation.peers, model.classes or 2, list[Ints]()
    tensors = [_begun(each, model) for each in (learner, _without(learner, owner, position))]
    bins = model.bins(tensors[0])
    if not bins.same(model.bins(tensors[1])):
        return None
    trees = min(ROOTS, model.n_estimators)
    growing = model.growing(tensors[0], trees=trees)
    level = model.level(growing, first=0, depth=0)
    for each in (learner, _without(learner, owner, position)):
        parts = [model.bagged(each.own(peer).train, tensors[0], first=0, trees=trees) for peer in peers]
        counted.append(np.sum([part.count(growing, level) for part in parts], axis=0).reshape(-1, width))
    part = learner.own(owner).train
    drawn = model.bagged(part, tensors[0], first=0, trees=trees).weights
    if not drawn[:, position].any():
        return None
    codes = bins.codes(part.features[[position]])[:, 0]  # [F]
    read = (counted[0] - counted[1]) != 0  # [cells, C]: of the person, in each tree that has them
    own = np.zeros_like(read)
    for root, column in np.ndindex(level.features.shape):
        place = level.placed(codes[level.features[[root], column]], np.array([root]), column)
        own[place, slice(None) if model.classes is None else int(part.targets[position])] = True
    return float(not read.any() or bool((read & ~own).any()))


def _begun(learner: ExactLearner, model: RandomForest) -> Tensors:
    """Return the tensors of a forest before its first tree."""
    peers = learner.federation.peers
    return answer_questions(model.begin(model.start(), learner.own), lambda each: add_up(each, peers))
