"""Agreement of all peers of an experiment before the first round and after the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from p2pfl import topology as graphs
from p2pfl.algorithms import State, Statistics, score_pooled, statistics
from p2pfl.algorithms.statistics import Sum
from p2pfl.core.encodings import Ints, from_wide, largest_wide, wide
from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import Neighbourhood, PublicContribution, derived, run_without_loop
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.data import federation as federations
from p2pfl.experiment.resolved import Plan
from p2pfl.learning import learner_traits
from p2pfl.learning.histograms import count_samples
from p2pfl.learning.learner import Tallies
from p2pfl.privacy.secagg.in_process import partners
from p2pfl.privacy.total_masks import TotalMasks

WORDS, FRACTION = 4, 96
"""Encoding of statistics and scores: far finer and larger than their sums, so that these are exact."""

MAX_NUMBER = largest_wide(words=WORDS, fraction=FRACTION)
"""No number of a contribution is as large."""

NOTHING = torch.zeros(1, 0, dtype=torch.int64)
"""No integers, ``[1, 0]``."""


@dataclass(frozen=True)
class PeersAgreement:
    """Agreement of the peers of an experiment, by totals.

    Parameters
    ----------
    plan
        The experiment, resolved.
    """

    plan: Plan

    @property
    def opening(self) -> int:
        """Number of totals before the first round."""
        return 2 if self.plan.experiment.data.scale else 0

    @property
    def closing(self) -> int:
        """Number of totals after the last round: the mean of all models, and its scores where they may be added up."""
        return (not self.alike) + self.scored if self.plan.experiment.learning.consensus else 0

    @property
    def alike(self) -> bool:
        """True if all peers have the same model anyway."""
        return self.plan.asked.algorithm.additive

    async def total(self, net: Neighbourhood, values: torch.Tensor) -> torch.Tensor:
        """Return the sum over all peers of private numbers ``[R, K]``, the same in each of the R rows."""
        return (await self._added(net, values, NOTHING.expand(len(values), 0)))[0]

    async def _added(self, net: Neighbourhood, values: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, Ints]:
        """Return the sums over all peers of private numbers ``[R, K]``, in each of the R rows, and integers ``[T]``."""
        own = dict(zip(net.peers, values.double().cpu().numpy(), strict=True))
        whole = dict(zip(net.peers, counts.numpy(), strict=True))
        first = WORDS * values.shape[-1]

        def encoded(peer: str) -> Ints:
            return np.concatenate([wide(own[peer], words=WORDS, fraction=FRACTION), whole[peer]])  # [4 K + T]

        total = await net.total(encoded, size=first + counts.shape[-1])
        sums = torch.from_numpy(from_wide(total[:first], words=WORDS, fraction=FRACTION)).to(values.device)  # [K]
        return sums.expand(len(net.peers), -1), total[first:]

    @property
    def scored(self) -> bool:
        """True if exact scores may be added up: no guarantee covers them, and noise alone does not hide them."""
        it = self.plan.asked
        hidden = it.claims or (it.mode.hides and not it.mode.masks and not it.mode.sums)
        return not hidden and (self._knows_data or self._tallies_alone)

    @property
    def _knows_data(self) -> bool:
        return learner_traits(self.plan.learner).any_data

    @property
    def _tallies_alone(self) -> bool:
        """True if only the learner knows its data, and all its scores follow from sums of its tallies."""
        learner = self.plan.learner
        return isinstance(learner.bare, Tallies) and not learner_traits(learner).additive and not self._knows_data

    async def open(self, net: Neighbourhood) -> tuple[Plan, Statistics]:
        """Agree on the statistics of the features; the plan with the features of the peers at hand scaled by them.

        Raises
        ------
        ModelError
            A learner of one's own, whose features nobody knows.
        PrivacyError
            Features too large to be added up.
        """
        if self.plan.federation.dataset.description.lacking:
            raise PrivacyError(
                "data.scale does not work with missing values that stay missing; leave it out, as boosting does not "
                "need it, or let the rule `missing` of each column replace them"
            )
        squares = federations.largest_squares(self.plan.federation, net.peers)  # before the sums leave
        largest = float(squares.max()) if squares.numel() else 0.0
        if not largest < MAX_NUMBER / len(self.plan.topology.peers):
            raise PrivacyError(
                f"data.scale: the squares of the features of a peer add up to {largest:.3g}, which is too much for an "
                "exact sum; give the features in larger units"
            )
        return await _scale_together(self.plan, net.peers, total=partial(self.total, net))

    async def settle(self, net: Neighbourhood, state: State) -> State:
        """Agree on one model: the mean of what all peers have released already, so nothing more is."""
        if self.alike:
            return state
        size = state.rows.shape[-1]

        def encoded(row: torch.Tensor) -> Ints:
            return np.append(wide(row.double().cpu().numpy()), 1)  # [2 P + 1]: the parameters, and one more peer

        total = await net.total(PublicContribution(state.public, net.peers, encoded), size=2 * size + 1)
        mean = torch.from_numpy(from_wide(total[:-1]) / total[-1]).to(state.rows)  # [P]
        public = derived(lambda rows: mean.expand_as(rows).clone(), state.public)  # [R, P]
        return replace(state, rows=public.rows, public=public)

    def tallies(self, rows: Rows, *, peers: tuple[str, ...]) -> torch.Tensor:
        """Return histograms of what models ``[R, P]`` predict for the test data of the R peers, ``[R, T]``."""
        learner = self.plan.learner.bare
        return learner.tallies(rows, peers=peers) if isinstance(learner, Tallies) else NOTHING.expand(len(rows), 0)

    async def score(
        self, net: Neighbourhood, scores: dict[str, torch.Tensor], counts: torch.Tensor, *, row: torch.Tensor
    ) -> dict[str, float]:
        """Return the scores of the common model on the test data of all peers, by one total.

        Parameters
        ----------
        net
            Neighbourhood that carries the total.
        scores
            Scores of the model on each peer's own test data, ``[R]``.
        counts
            :meth:`tallies` of the model.
        row
            The model, ``[P]``.
        """
        targets = federations.target_totals(self.plan.federation, net.peers)
        learner = self.plan.learner.bare
        if isinstance(learner, Tallies):  # a score of all samples is no mean over the peers
            scores = {name: values for name, values in scores.items() if name not in learner.whole}
        alone = self.plan.federation.dataset.targets.dim() == 1
        squared = self.plan.experiment.learning.loss is None and alone
        tallied: list[Ints] = []

        async def total(values: torch.Tensor) -> torch.Tensor:
            sums, added = await self._added(net, values, counts)
            tallied.append(added)
            return sums

        results = await score_pooled(total, scores=scores, targets=targets, squared=squared)
        sums = tallied[0]
        curves: dict[str, float] = {}
        if isinstance(learner, Tallies) and len(sums):
            curves = learner.tallied(row, sums, copies=self._copies(net, sums))
        return {name: float(values[0]) for name, values in results.items()} | curves

    def _copies(self, net: Neighbourhood, total: Ints) -> int:
        """Return how many peers have counted each test sample: one, or all that share a common test part."""
        if self.plan.experiment.data.owned or not self._knows_data:
            return 1
        return max(1, count_samples(total) // max(1, len(self.plan.federation.test[net.peers[0]])))


def scale(plan: Plan, statistics: Statistics) -> Plan:
    """Return the plan on features that are scaled by the statistics that all peers agreed on.

    Raises
    ------
    ModelError
        A learner of one's own.
    """
    federation = federations.standardise(plan.federation, mean=statistics.mean[0], deviation=statistics.deviation[0])
    return replace(plan, federation=federation, learner=plan.learner.on(federation))


def directly(plan: Plan) -> tuple[Plan, Statistics]:
    """Return the result of :meth:`PeersAgreement.open`, computed from the data of all peers."""

    async def total(values: torch.Tensor) -> torch.Tensor:
        return values.sum(0, keepdim=True).expand_as(values)

    return run_without_loop(_scale_together(plan, plan.topology.peers, total=total))


async def _scale_together(plan: Plan, peers: tuple[str, ...], *, total: Sum) -> tuple[Plan, Statistics]:
    federation = plan.federation
    result = await statistics(
        total,
        totals=federations.totals(federation, peers),
        squares=lambda middle: federations.squares(federation, peers, mean=middle),
        features=federation.dataset.features[0].numel(),
        resolution=2.0**-FRACTION,
    )
    return scale(plan, result), result


def report_statistics(statistics: Statistics) -> dict[str, object]:
    """Return the statistics for a summary."""
    return {
        "samples": int(statistics.samples[0]),
        "classes": statistics.classes[0].tolist() or None,
        "mean": statistics.mean[0].tolist(),
        "deviation": statistics.deviation[0].tolist(),
    }


def alike(statements: Sequence[dict[str, float] | None]) -> dict[str, float] | None:
    """Return the scores of the common model; nothing if the peers report different ones."""
    return statements[0] if all(each == statements[0] for each in statements) else None


def masks_of(plan: Plan) -> TotalMasks | None:
    """Return the masks of totals: between all who share masks of rows, or are added up by the same receiver.

    ``None`` where neither masks nor sums hide rows, so that everybody may see contributions.
    """
    colluders = plan.experiment.privacy.colluders
    if plan.masked:
        return TotalMasks({}, graph=plan.protection.graph, colluders=colluders)
    if plan.protection.sums is None:
        return None
    edges = {*plan.topology.union.edges, *partners(plan.weights[0]).edges}
    return TotalMasks({}, graph=graphs.Topology(plan.topology.peers, tuple(edges)), colluders=colluders)
