"""Attacks on the exact totals of an experiment: people who are alone in a cell, sums of one person, and rows alone.

A peer reads each cell that the totals of a model single out: levels, codes, classes, cells of time. Whoever is alone in
one shows by what else is summed over it. A peer that has samples in a cell subtracts them first. The cells are counted
in the open, on the data of all peers, as the check of small cells leaves them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import DataError, LearningError
from p2pfl.experiment import Plan
from p2pfl.learning.additive import Question, Questions, answer_questions
from p2pfl.learning.exact_learner import ExactLearner
from p2pfl.learning.exact_model import Own, Owns, Tensors
from p2pfl.learning.small_cells import AgreedCheck, CellCheck, Cells
from p2pfl.plugins.audit.claims import TOTALS, ExactClaim, claim
from p2pfl.plugins.exact.boosting import EXTRAS, Boosting, BoostingRound
from p2pfl.plugins.exact.leverage import DOMINANT, MAX_LEVERAGE
from p2pfl.plugins.exact.statistics.column_statistics import Description
from p2pfl.plugins.exact.tensor_model import TensorModel


def attack_cells(plan: Plan) -> list[ExactClaim]:
    """Count the people that exact totals show: alone in a cell, to a peer that subtracts, or by nearly the whole sum.

    Nothing is counted of totals with private noise, or of a peer alone.
    """
    learner, peers = plan.learner.bare, tuple(plan.federation.peers)
    if not isinstance(learner, ExactLearner) or not learner.model.checks or plan.protection.claimed or len(peers) < 2:
        return []

    def total(question: Question) -> Ints:
        return np.asarray(np.sum([question.answer(peer) for peer in peers], axis=0))

    check = ReadingCheck(learner.raw, peers, learner.wanted, None)
    sums_of_one = rows = bins = 0
    try:
        tensors = answer_questions(learner.model.check_cells(learner.model.start(), check), total)
        if isinstance(learner.model, TensorModel):
            rows = count_dominant_rows(learner, learner.model, tensors, rounds=plan.experiment.horizon, total=total)
        if isinstance(learner.model, Boosting):
            bins = count_single_bins(learner.model, tensors, learner.own, total=total)
        if isinstance(learner.model, Description):
            outcome = answer_questions(learner.model.advance(tensors, learner.own), total)
            values = learner.model.merged_values(tensors, learner.own)
            sums_of_one = count_dominated(np.concatenate([values(peer) for peer in peers]), outcome.tensors["mean"])
    except DataError:  # nothing leaves
        check.counts.clear()
    alone = sum(int((counts.sum(axis=0) == 1).sum()) for counts in check.counts)
    others = sum(int(((counts.sum(axis=0) - counts) == 1).any(axis=0).sum()) for counts in check.counts)
    return [
        claim(TOTALS, "nobody is alone in a cell", alone),
        claim(TOTALS, "nobody is alone beside the samples of a peer", others),
        claim(TOTALS, "nobody has nearly a whole sum", sums_of_one),
        claim(TOTALS, "nobody has nearly all of a combination of columns", rows),
        *([claim(TOTALS, "no bin of the first tree has one person", bins)] * isinstance(learner.model, Boosting)),
    ]


def count_single_bins(model: Boosting, tensors: Tensors, own: Owns, *, total: Callable[[Question], Ints]) -> int:
    """Return how many bins in nodes of the first trees have one person, so that derivatives link their features."""
    merged = model.seen.owned(model.merged_own(tensors, own))
    tensors = answer_questions(model.begin(tensors, merged), total)
    if not tensors["samples"][0]:
        return 0
    work, single = BoostingRound(model, tensors, merged), 0
    while work.growing:
        answer_questions(work.merging(), total)
        first, sums = work.at_roots, total(work.question())
        single += int((work.table(sums[: len(sums) - EXTRAS * first])[..., -1] == 1).sum())
        (work.root if first else work.level)(sums)
    return single


def count_dominant_rows(
    learner: ExactLearner,
    model: TensorModel,
    tensors: Tensors,
    *,
    rounds: int,
    total: Callable[[Question], Ints],
) -> int:
    """Return the largest number of people whose rows follow, but for a tenth, from a sum of products of a round."""
    peers, most = tuple(learner.federation.peers), 0
    check = CellCheck(learner.own, peers, learner.wanted, None)
    for _ in range(rounds):
        sums = model.row_sums(tensors)
        if sums is None:
            break
        try:
            answer_questions(model.check_rows(tensors, check), total)
        except DataError:  # nothing leaves
            break
        rows = [sums.rows(learner.own(peer)) for peer in peers]
        for number, products in enumerate(np.sum([each.products() for each in rows], axis=0)):
            alone = [int((each.leverage(products, number) > MAX_LEVERAGE).sum()) for each in rows]
            most = max(most, sum(alone))
        try:
            outcome = answer_questions(model.advance(tensors, learner.own), total)
        except LearningError:  # the fit ends here
            break
        tensors = outcome.tensors
    return most


def count_dominated(values: np.ndarray, means: np.ndarray) -> int:
    """Return how many means that are stated tell the largest value to whoever has the second largest, to 10 %."""
    dominated = 0
    for column, mean in zip(values.T, means.tolist(), strict=True):
        known = np.sort(column[~np.isnan(column)])
        if np.isfinite(mean) and len(known) > 1 and known[0] >= 0 and known[-1] > 0:
            rest = known.sum() - known[-1] - known[-2]
            dominated += rest < DOMINANT * known[-1] * (1 - 2**-6)  # peers know values to 1/128
    return dominated


@dataclass(frozen=True)
class ReadingCheck(CellCheck[Own]):
    """Check that keeps the counts of the cells which the totals of a model show, ``[peers, C]`` each."""

    counts: list[Ints] = field(default_factory=list)

    def agree(self) -> Questions[AgreedCheck[Own]]:
        """Ask for the least number; cells are read where a single person may be shown, too."""
        agreed = yield from super().agree()
        return _Reading(self.own, agreed.peers, max(2, agreed.least), None, agreed.least, self.counts)


@dataclass(frozen=True)
class _Reading(AgreedCheck[Own]):
    real: int
    counts: list[Ints]

    def find(
        self, cells: Cells, count: Callable[[Own], Ints], *, nobody: Ints | None = None
    ) -> Questions[tuple[int, ...]]:
        honest = AgreedCheck(self.own, self.peers, self.real, None)
        small = yield from honest.find(cells, count, nobody=nobody)
        shown = ~np.isin(cells.group, small)
        self.counts.append(np.stack([count(self.own(peer))[shown] for peer in self.peers]))
        return small
