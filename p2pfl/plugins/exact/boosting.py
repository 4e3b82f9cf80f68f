""":class:`Boosting`, histogram gradient boosting whose trees follow from exact totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from p2pfl.core.encodings import Floats
from p2pfl.core.explanations import Explained
from p2pfl.data.data_description import Field
from p2pfl.learning.exact_model import Asked, Outcome, Owns, Part, Round, Tensors
from p2pfl.plugins.exact.bins import Bins, even_bins, sketched
from p2pfl.plugins.exact.tensor_model import Shapes, check_validated, scalars, stopped
from p2pfl.plugins.exact.trees.boosting_round import BoostingRound
from p2pfl.plugins.exact.trees.losses import LogLink
from p2pfl.plugins.exact.trees.settings import BoostingSettings
from p2pfl.plugins.exact.trees.tree_model import Forest, bin_tensors, with_trees

SKETCHED = "how many samples have each value of each feature, to a relative width of 1/128, and, "
GROWN = (
    "at each level of each tree, how many samples of each node are in each bin of each feature, with sums from which "
    "the classes or the mean targets of these samples follow"
)
LEFT = ", and how many residuals of each leaf are of each size, to a factor of 2, and to 1/128 near the quantile"
"""Facts that totals of the sketch, of the trees and of quantiles show."""


@dataclass(frozen=True, kw_only=True)
class Boosting(BoostingSettings):
    r"""Gradient boosting of trees from histograms, with the parameters of scikit-learn's ``HistGradientBoosting*``.

    A round adds one tree, or one for each of more than two classes. With :math:`g_i, h_i` the derivatives of the loss
    of sample i, rounded to :math:`2^{-30}`, a node is split where

    .. math:: \frac{G_L^2}{H_L + \lambda} + \frac{G_R^2}{H_R + \lambda} - \frac{G^2}{H + \lambda}

    is largest and positive, and a leaf has the value :math:`-\eta G / (H + \lambda)`; G and H are totals over all
    peers. Derivatives are rounded sample by sample, so the trees do not depend on who holds which sample.

    Its parameters are those of :class:`p2pfl.plugins.exact.trees.settings.BoostingSettings`.

    Examples
    --------
    >>> Boosting(features=3, classes=2, rounds=10).layout.size > 0
    True

    References
    ----------
    Friedman, Greedy function approximation: a gradient boosting machine, Annals of Statistics 29, 2001; Chen and
    Guestrin, XGBoost: a scalable tree boosting system, KDD 2016.
    """

    name: ClassVar[str] = "boosting"
    shows: ClassVar[str] = f"{SKETCHED}{GROWN}"

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        shown = GROWN if options.get("edges") == "even" else f"{SKETCHED}{GROWN}"
        return f"{shown}{LEFT}" if options.get("loss") in {"quantile", "absolute_error"} else shown

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        shapes = self.node_shapes(self.rounds * self.columns, self.nodes) | self.bin_shapes(self.max_bins)
        return shapes | dict.fromkeys(("training_loss", "validation_loss"), (self.rounds,))

    @property
    def nodes(self) -> int:
        """Number of nodes for which a tree has room."""
        return 2 * self.leaves - 1

    def module(self) -> Forest:
        """Return the torch module for predictions, whose tensors are those of the model."""
        deepest = min(self.max_depth or self.nodes, self.leaves - 1)
        return Forest(self.shapes, classes=self.classes, deepest=deepest, seen=self.seen, logarithmic=self.logarithmic)

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Add a tree for each margin."""
        own = self.seen.owned(own)
        if not tensors["samples"][0]:
            tensors = yield from self.begin(tensors, own)
        done, samples = int(tensors["trees"][0]), int(tensors["samples"][0])
        if done >= self.rounds or not samples:
            return Outcome(tensors, over=True)
        work = BoostingRound(self, tensors, own)
        work.root((yield work.question()))
        loss = work.training_loss if self.objective.valued else None
        losses = {"training_loss": work.training_loss, "validation_loss": work.validation_loss}
        model = with_trees(tensors, losses, slice(done, done + 1))
        if self.early_stopping:
            check_validated(work.validated)
            if stopped(model["validation_loss"][: done + 1], self.n_iter_no_change, self.tol):
                return Outcome(model, loss, over=True)
        while work.growing:
            work.level((yield work.question()))
        trees = work.growth.arrays(work.bins, size=self.nodes, rate=self.learning_rate)
        if self.objective.share is not None:
            trees = yield from work.set_quantiles(trees, share=self.objective.share, rate=self.learning_rate)
        model = with_trees(model, trees, slice(done * self.columns, (done + 1) * self.columns))
        return Outcome(model | scalars(trees=done + 1), loss, over=done + 1 == self.rounds)

    def begin(self, tensors: Tensors, own: Owns) -> Asked[Tensors]:
        """Agree on bins, on the number of samples and on the prediction without trees.

        Parameters
        ----------
        tensors
            Model without trees.
        own
            Samples of a peer, with the features that trees split.

        Yields
        ------
        Question
            Questions that come before the first tree.

        Returns
        -------
        Tensors
            The model from which the first tree follows.
        """
        bins = yield from self._binned(own)
        samples, scale, base = yield from self.objective.begin(own)
        return {**tensors, **bin_tensors(bins), **scalars(samples=samples, scale=scale), "base": base}

    def _binned(self, own: Owns) -> Asked[Bins]:
        """Agree on bins; even ones need no total."""
        if self.edges == "even":
            return even_bins(self.seen, self.fields, self.bounds or {}, max_bins=self.max_bins)
        return (
            yield from sketched(own, features=len(self.seen), max_bins=self.max_bins, categorical=self.seen.categorical)
        )

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return logits ``[n, C]``, or predicted numbers ``[n, 1]``."""
        margins = self.margins(tensors, part)
        if isinstance(self.objective, LogLink):
            return self.objective.predicted(margins)
        return margins if self.classes is None else self.logits(margins)

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained:
        """Return the importances of the features, the most important first."""
        del fields, classes
        return Explained(self.importances(tensors, averaged=False))
