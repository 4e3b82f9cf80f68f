""":class:`MetaAnalysis`, regressions that each peer fits by itself, pooled with fixed or random effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.core.explanations import Explained, FittedTest, SiteFit
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Question, answer_questions
from p2pfl.learning.exact_model import Asked, Outcome, Own, Owns, Part, Round, Tensors
from p2pfl.learning.small_cells import FEWEST_PEERS, Bools, CellCheck
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import labels_of
from p2pfl.plugins.exact.design_cells import OutcomeCells
from p2pfl.plugins.exact.regression.fits import UNKNOWN, converged, shown_knots, with_errors
from p2pfl.plugins.exact.regression.glm import GLM
from p2pfl.plugins.exact.regression.inference import chi_squared_tail
from p2pfl.plugins.exact.tensor_model import Shapes, scalars

MAX_SITE_STEPS = 100
"""Most steps of the model of one peer."""

FACTS = ("samples", "held_out", "sites", "converged")
"""Numbers that are printed with the coefficients."""

BY_COEFFICIENT = ("sites_with", "heterogeneity", "between", "fixed")
"""Tensors with a number for each coefficient."""

BY_SITE = ("site_estimates", "site_errors")
"""Tensors with a number for each peer that is shown and each coefficient."""


@dataclass(frozen=True, kw_only=True)
class MetaAnalysis(GLM):
    r"""Meta-analysis of peers: each fits ``glm`` to its own samples, and two totals pool the estimates.

    With estimates :math:`b_k` of variance :math:`v_k` and :math:`w_k = 1 / v_k`, for each coefficient by itself,

    .. math:: b = \frac{\sum_k w_k b_k}{\sum_k w_k}, \qquad Q = \sum_k w_k (b_k - b)^2, \qquad
              \tau^2 = \max\Bigl(0, \frac{Q - (K - 1)}{\sum_k w_k - \sum_k w_k^2 / \sum_k w_k}\Bigr)

    and random effects have the weights :math:`1 / (v_k + \tau^2)` (DerSimonian and Laird). The peers see these sums,
    and no peer's estimate but those of a coefficient that one peer alone has; of two peers, each finds the other's.

    Parameters
    ----------
    effects
        ``random``, or ``fixed`` for one effect of all peers.
    shown_sites
        Peers whose estimates and standard errors all peers learn, for a forest plot: all, or all but three or more, as
        those of fewer would follow from the pooled ones.

    Examples
    --------
    >>> MetaAnalysis(features=2, classes=2).label(0)
    'x0'

    References
    ----------
    DerSimonian and Laird, Meta-analysis in clinical trials, Controlled Clinical Trials 7, 1986.
    """

    name: ClassVar[str] = "meta_analysis"
    shows: ClassVar[str] = (
        "for each coefficient, how many peers have an estimate of their own, and sums over the peers of the weights, "
        "of the weighted estimates and of their squares"
    )

    traits: ClassVar[ModelTraits] = ModelTraits(converges=True, predicts=False, test=0.0, command="coefficients")

    effects: str = "random"
    shown_sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.effects not in {"random", "fixed"}:
            raise ModelError(f'model.options.effects is "{self.effects}"; set it to "random" or "fixed"')
        if self.ridge:
            raise ModelError("model.options.ridge has no effect on what is pooled without bias; leave it out")
        if len({*self.shown_sites}) < len(self.shown_sites):
            raise ModelError("model.options.shown_sites names a peer twice; name each once")

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        named = ", ".join(options.get("shown_sites", ()))
        return (
            cls.shows + (f"; and the estimates and standard errors of {named}" if named else "") + shown_knots(options)
        )

    @property
    def scored(self) -> str:
        """Kind of the score."""
        return "nothing"

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        number = len(self.shown_sites)
        sites: Shapes = dict.fromkeys(BY_SITE, (number, self.width)) if number else {}
        return super().shapes | {"sites": (1,)} | dict.fromkeys(BY_COEFFICIENT, (self.width,)) | sites

    @property
    def site(self) -> GLM:
        """The model of one peer."""
        own = {each.name: getattr(self, each.name) for each in fields(GLM)}
        return GLM(**own)

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Check the cells of all peers, and those of each peer whose estimates are shown.

        Raises
        ------
        DataError
            Such a peer has few samples of a level, from whose estimate and error their number would follow.
        """
        tensors = yield from super().check_cells(tensors, check)
        agreed = yield from check.agree()
        if agreed.least == 1 or not self.shown_sites:
            return tensors
        if missing := sorted({*self.shown_sites} - {*agreed.peers}):
            raise ModelError(f'model.options.shown_sites names "{missing[0]}", which takes no part; leave it out')
        design = self.design_columns.merging(tensors["levels"]) if self.merges_levels else self.design_columns
        design = yield from design.find_pairs(agreed)
        cells = OutcomeCells(design, [f"class {each} of the target" for each in range(self.classes or 1)])
        nobody = Part(np.zeros((0, self.features)), np.zeros(0, np.int64))
        shown = replace(
            agreed, own=lambda peer: agreed.own(peer) if peer in self.shown_sites else Own(nobody, nobody, nobody)
        )

        def few(own: Own) -> Bools:
            counts = self._count_cells(cells, own)
            small = (counts > 0) & (counts < agreed.least)
            return np.array([small[cells.cells.group == group].any() for group in range(len(cells.cells.groups))])

        alone = yield from shown.any_of(few, size=len(cells.cells.groups))
        if alone.any():
            names = [name for name, each in zip(cells.cells.groups, alone.tolist(), strict=True) if each]
            raise DataError(
                f"fewer than {agreed.least} people of a peer in model.options.shown_sites share a value of "
                f"{', '.join(names)}, so its estimates would show them; leave shown_sites out, or merge levels"
            )
        return tensors

    def row_sums(self, tensors: Tensors) -> None:
        """Return nothing, as no sum over samples leaves a peer."""
        del tensors

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take both totals; further rounds change nothing."""
        if tensors["converged"][0]:
            return Outcome(tensors, over=True)
        estimated = cache(lambda peer: self._estimated(peer, own(peer)))
        counts, total = yield from self._pooled(estimated, np.zeros(self.width), own)
        samples, held, sites = (int(count) for count in counts[-3:])
        if not samples:
            return Outcome(tensors, over=True)
        present = counts[:-3]
        if sites < 2:
            raise LearningError("one peer has nothing to pool its estimates with; take part with more peers")
        weights, weighted, squared, squares = total
        safe = np.where(weights > 0, weights, 1.0)
        fixed = weighted / safe
        heterogeneity = np.maximum(squared - weighted * fixed, 0.0)
        spread = weights - squares / safe
        between = np.where(
            spread > 0, np.maximum(heterogeneity - (present - 1), 0.0) / np.where(spread > 0, spread, 1.0), 0.0
        )
        shown = yield from self._sites(estimated, present)
        pooled, summed = fixed, weights
        if self.effects == "random":
            _, (summed, weighted, *_) = yield from self._pooled(estimated, between, own)
            pooled = weighted / np.where(summed > 0, summed, 1.0)
        variances = np.where(summed > 0, 1 / np.where(summed > 0, summed, 1.0), 0.0)
        given = scalars(
            samples=samples,
            held_out=held if self.owned else UNKNOWN,
            sites=sites,
            dispersion=1.0,
            steps=1.0,
            converged=1.0,
        )
        arrays = {"covariance": np.diag(variances), "heterogeneity": heterogeneity, "between": between, "fixed": fixed}
        after = {
            **tensors,
            **self._weighing(pooled),
            **given,
            **arrays,
            "sites_with": present.astype(np.float64),
            **shown,
        }
        return Outcome(after, over=True)

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return the pooled coefficients, and how much they differ between the peers."""
        facts = converged(tensors, FACTS)
        if facts is None:
            return None
        labels = self.labels(self.merged_labels(labels_of(fields), tensors), classes)
        tests, facts = [], facts | self.splines.facts(tensors)
        for index, label in enumerate(labels):
            freedom, statistic = int(tensors["sites_with"][index]) - 1, float(tensors["heterogeneity"][index])
            if freedom > 0:
                tests.append(FittedTest(label, statistic, freedom, chi_squared_tail(statistic, freedom)))
                facts[f"I2 of {label}"] = max(0.0, 1 - freedom / statistic) if statistic > 0 else 0.0
                facts[f"tau2 of {label}"] = float(tensors["between"][index])
        beta = self.stacked(tensors)
        regression = with_errors(
            self.name, beta, tensors, labels, facts, ridge=0.0, errors=self.effects, ratio=self.ratio
        ).regression
        if regression is None:
            return None
        return Explained(regression=replace(regression, tests=tuple(tests), sites=self._site_fits(tensors)))

    def _site_fits(self, tensors: Tensors) -> tuple[SiteFit, ...]:
        """Return the estimates of the peers that show theirs."""
        if not self.shown_sites:
            return ()
        estimates, errors = (
            [[None if not error else value for value, error in zip(*pair, strict=True)] for pair in pairs]
            for pairs in ([*zip(tensors[name].tolist(), tensors[BY_SITE[1]].tolist(), strict=True)] for name in BY_SITE)
        )
        rows = zip(self.shown_sites, estimates, errors, strict=True)
        return tuple(SiteFit(peer, tuple(values), tuple(each)) for peer, values, each in rows)

    def _sites(self, estimated: Callable[[str], tuple[Floats, Floats]], present: Ints) -> Asked[Tensors]:
        """Ask for the estimates and standard errors of the peers that show theirs.

        Of one other peer they would follow from the pooled ones; of two, each would find those of the other.
        """
        number = len(self.shown_sites)
        if not number:
            return {}
        shown = yield Question(
            lambda peer: (estimated(peer)[1] > 0).astype(np.int64) * (peer in self.shown_sites), size=self.width
        )
        others = present - shown
        if ((shown > 0) & (others > 0) & (others < FEWEST_PEERS)).any():
            raise LearningError(
                "model.options.shown_sites leaves out one or two peers that have an estimate, which would follow from "
                f"the pooled ones; name all peers, or leave out {FEWEST_PEERS} or more"
            )

        def answer(peer: str) -> Ints:
            rows = np.zeros((number, 2, self.width))
            if peer in self.shown_sites:
                estimates, variances = estimated(peer)
                rows[self.shown_sites.index(peer)] = estimates, np.sqrt(variances)
            return sums.summed(1, rows.size, lambda _: rows.reshape(1, -1))

        total = yield from sums.total(answer, number * 2 * self.width)
        return dict(zip(BY_SITE, total.reshape(number, 2, self.width).swapaxes(0, 1), strict=True))

    def _estimated(self, peer: str, own: Own) -> tuple[Floats, Floats]:
        """Return the estimates of a peer and their variances ``[p]``; 0 where a coefficient has none."""
        site = self.site
        tensors = site.start()
        for _ in range(MAX_SITE_STEPS):
            asking = site.round(tensors, lambda _: own)
            try:
                outcome = answer_questions(asking, lambda question: question.answer(peer))
            except LearningError as error:
                raise LearningError(f"{peer} has no model of its own: {error}") from None
            tensors = outcome.tensors
            if outcome.over:
                break
        if len(own.train) and not tensors["converged"][0]:
            raise LearningError(f"{peer} has no model of its own: its steps do not end; use fewer features")
        return site.stacked(tensors), np.diag(tensors["covariance"]).copy()

    def _pooled(
        self, estimated: Callable[[str], tuple[Floats, Floats]], between: Floats, own: Owns
    ) -> Asked[tuple[Ints, tuple[Floats, Floats, Floats, Floats]]]:
        """Ask for counts, and for the sums of weights, weighted estimates and their squares, and squared weights."""

        def answer(peer: str) -> Ints:
            estimates, variances = estimated(peer)
            known = variances > 0
            weights = np.where(known, 1 / np.where(known, variances + between, 1.0), 0.0)
            terms = np.stack([weights, weights * estimates, weights * estimates**2, weights**2])  # [4, p]
            mine = own(peer)
            counts = [self.roles.count(mine.train.features), self.held_out(mine), int(known.any())]
            return np.concatenate([known, counts, sums.summed(1, terms.size, lambda _: terms.reshape(1, -1))]).astype(
                np.int64
            )

        count = self.width + 3
        total = yield Question(answer, size=count + sums.size(4 * self.width))
        weights, weighted, squared, squares = sums.numbers(total[count:]).reshape(4, self.width)
        return total[:count], (weights, weighted, squared, squares)
