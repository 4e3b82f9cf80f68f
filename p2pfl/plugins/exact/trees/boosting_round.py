""":class:`BoostingRound`, one round of boosting: what peers are asked for, and what follows from the totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Owns, Part, Tensors
from p2pfl.plugins.exact.trees.growing import BinnedSamples, BoostedSamples, Growth, GrowthTask
from p2pfl.plugins.exact.trees.losses import fraction, quantiles
from p2pfl.plugins.exact.trees.node_splits import Limits, Search
from p2pfl.plugins.exact.trees.tree_model import leaves

if TYPE_CHECKING:
    from p2pfl.plugins.exact.boosting import Boosting  # which imports this module

WORST = 64.0
"""Bound of the loss of a sample; a larger one counts as that."""

EXTRAS = 3
"""Numbers beside the histograms of the roots: training loss, validation loss, validation samples."""


class BoostingRound:
    """One round of boosting.

    Parameters
    ----------
    model
        Settings.
    tensors
        Model before the round.
    own
        Samples of a peer.
    """

    def __init__(self, model: Boosting, tensors: Tensors, own: Owns) -> None:
        self.model, self.tensors, self.own = model, tensors, own
        self.samples, self.scale = int(tensors["samples"][0]), float(tensors["scale"][0])
        self.units = model.objective.units(self.scale)
        self.fraction = fraction(self.samples, bound=model.objective.steepest)
        self.bins = model.bins(tensors)
        limits = Limits(
            min_samples_leaf=model.min_samples_leaf,
            min_hessian=model.min_hessian,
            l2=model.l2_regularization,
            slope=self.units.slope * 2.0**-self.fraction,
            curve=self.units.curve * 2.0**-self.fraction,
            signs=model.signs,
        )
        self.round = int(tensors["trees"][0])
        features = model.sampling.features(self.bins, round=self.round)
        self._counted = np.concatenate([np.arange(*ends) for ends in self._ends(features)])
        self.growth = Growth(
            Search(self.bins, limits, counted=int(features[0])),
            model.columns,
            model.max_depth,
            model.max_leaf_nodes or None,
        )
        self.training_loss = self.validation_loss = 0.0
        self._grain = 2.0 ** fraction(self.samples, bound=WORST, most=20)
        self._cells = int(self.bins.sizes.sum())
        self._words = 3 if model.objective.curved else 2
        self._routes: dict[str, BoostedSamples] = {}
        self._values: dict[str, list[Floats]] = {}

    @property
    def growing(self) -> bool:
        """True if there is another level."""
        return self.growth.task is not None

    def question(self) -> Question:
        """Return the question of a level."""
        task = self.growth.task
        assert task is not None  # noqa: S101 (it is growing)
        extras = 0 if task.splits else EXTRAS
        size = len(task.counted) * len(self._counted) * self._words + extras
        return Question(lambda peer: self._answer(peer, task), size=size)

    def root(self, total: Ints) -> None:
        """Continue with the total of the roots."""
        training, held, count = total[-EXTRAS:].tolist()
        self.validated = int(count)
        self.training_loss = training / self._grain / self.samples * self.units.loss
        self.validation_loss = held / self._grain / max(1, count) * self.units.loss
        self.level(total[:-EXTRAS])

    def level(self, total: Ints) -> None:
        """Continue with the total of a level."""
        sums = self.table(total)
        if self._words == 2:  # second derivatives are 1
            sums = np.stack([sums[..., 0], sums[..., 1] << self.fraction, sums[..., 1]], axis=-1)
        self.growth.proceed(sums)

    def table(self, total: Ints) -> Ints:
        """Return the sums of a total by node and bin, ``[m, cells, V]``, zeros for features that are not drawn."""
        sums = total.reshape(-1, len(self._counted), self._words)
        found = np.zeros((len(sums), self._cells, self._words), np.int64)
        found[:, self._counted] = sums
        return found

    def set_quantiles(self, trees: dict[str, Floats], *, share: float, rate: float) -> Asked[dict[str, Floats]]:
        """Replace the values of the leaves of a tree by a quantile of the residuals of their samples, times a rate.

        Parameters
        ----------
        trees
            Arrays ``[1, M]`` of the one tree of the round.
        share, rate
            Quantile, and factor of the values.

        Yields
        ------
        Question
            Two questions.

        Returns
        -------
        dict of arrays
            The tree with its new values.
        """
        tree = {name: values[0] for name, values in trees.items()}
        size = 2 * int((tree["feature"] >= 0).sum()) + 1
        ends = np.flatnonzero(tree["feature"][:size] < 0)
        group = np.cumsum(tree["feature"][:size] < 0) - 1  # [size]

        def residuals(peer: str) -> tuple[Ints, Floats]:
            part = self.own(peer).train
            drawn = self.model.sampling.samples(part, round=self.round)
            found = leaves(tree, part.features[drawn], self.bins.categorical.tolist())
            return group[found], (part.targets - self.model.margins(self.tensors, part)[:, 0])[drawn]

        _, values, _ = yield from quantiles(residuals, groups=len(ends), share=share)
        found = trees["value"].copy()
        found[0, ends] = rate * values
        return trees | {"value": found}

    def _answer(self, peer: str, task: GrowthTask) -> Ints:
        """Return what a peer adds to the total of a level."""
        if task.splits:
            routes = self._routes[peer]
            routes.move(task.splits)
            return routes.count(task, self._values[peer])[:, self._counted].ravel()
        own = self.own(peer)
        binned = BinnedSamples.of(own.train, self.bins)
        drawn = self.model.sampling.samples(own.train, round=self.round)
        self._routes[peer] = BoostedSamples(binned, self.model.columns, drawn)
        self._values[peer] = self._derivatives(own.train)
        counted = self._routes[peer].count(task, self._values[peer])[:, self._counted].ravel()
        extras = [self._lost(own.train), self._lost(own.validation), len(own.validation)]
        return np.concatenate([counted, np.array(extras, np.int64)])

    def _ends(self, features: Ints) -> list[tuple[int, int]]:
        """Return the first and the end of the cells of some features."""
        starts, sizes = self.bins.starts, self.bins.sizes
        return [(int(starts[number]), int(starts[number] + sizes[number])) for number in features]

    def _derivatives(self, part: Part) -> list[Floats]:
        """Return derivatives and counts as whole numbers, ``[columns, n]`` each."""
        margins = self.model.margins(self.tensors, part)
        slopes, curves = self.model.objective.derivatives(margins, part.targets, self.scale)
        grid = 2.0**self.fraction
        ones = np.ones_like(slopes)
        return [np.rint(slopes * grid), *([] if curves is None else [np.rint(curves * grid)]), ones]

    def _lost(self, part: Part) -> int:
        """Return the loss of all samples of a part, each rounded to a whole number."""
        if not len(part):
            return 0
        margins = self.model.margins(self.tensors, part)
        losses = np.minimum(self.model.objective.values(margins, part.targets, self.scale), WORST)
        return int(np.rint(losses * self._grain).astype(np.int64).sum())
