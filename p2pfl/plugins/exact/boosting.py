""":class:`Boosting`, histogram gradient boosting whose trees follow from exact totals, and its rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import ModelError
from p2pfl.core.explanations import Explained
from p2pfl.core.tensors import torch
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Owns, Part, Round, Tensors
from p2pfl.learning.losses import PerSample
from p2pfl.plugins.exact.bins import MAX_BINS, Bins, even_bins, sketched
from p2pfl.plugins.exact.sketch import quantiles
from p2pfl.plugins.exact.tensor_model import Shapes, check_validated, scalars, stopped
from p2pfl.plugins.exact.tree_features import TreeFeatures
from p2pfl.plugins.exact.trees.checked_trees import CheckedTreeModel
from p2pfl.plugins.exact.trees.draws import Sampling
from p2pfl.plugins.exact.trees.growing import BinnedSamples, BoostedSamples, Growth, GrowthTask
from p2pfl.plugins.exact.trees.losses import LogLink, Loss, OwnLoss, Quantile, fraction, objective
from p2pfl.plugins.exact.trees.node_splits import Limits, Search
from p2pfl.plugins.exact.trees.tree_model import Forest, bin_tensors, leaves, with_trees

MAX_LEAVES = 2**15
"""Largest number of leaves of a tree."""

SKETCHED = "how many samples have each value of each feature, to a relative width of 1/128, and, "
GROWN = (
    "at each level of each tree, how many samples of each node are in each bin of each feature, with sums from which "
    "the classes or the mean targets of these samples follow"
)
LEFT = ", and how many residuals of each leaf are of each size, to a factor of 2, and to 1/128 near the quantile"
"""Facts that totals of the sketch, of the trees and of quantiles show."""

WORST = 64.0
"""Bound of the loss of a sample; a larger one counts as that."""

EXTRAS = 3
"""Numbers beside the histograms of the roots: training loss, validation loss, validation samples."""


@dataclass(frozen=True, kw_only=True)
class Boosting(CheckedTreeModel):
    r"""Gradient boosting of trees from histograms, with the parameters of scikit-learn's ``HistGradientBoosting*``.

    A round adds one tree, or one for each of more than two classes. With :math:`g_i, h_i` the derivatives of the loss
    of sample i, rounded to :math:`2^{-30}`, a node is split where

    .. math:: \frac{G_L^2}{H_L + \lambda} + \frac{G_R^2}{H_R + \lambda} - \frac{G^2}{H + \lambda}

    is largest and positive, and a leaf has the value :math:`-\eta G / (H + \lambda)`; G and H are totals over all
    peers. Derivatives are rounded sample by sample, so the trees do not depend on who holds which sample.

    Parameters
    ----------
    features, classes, rounds, seed
        Number of features; of classes, ``None`` for a regression; of trees for each output; and the seed of all draws.
    learning_rate
        :math:`\eta`.
    loss
        ``"squared_error"``, ``"absolute_error"``, ``"poisson"``, ``"gamma"`` or ``"quantile"`` for numbers,
        ``"log_loss"`` for classes, as in scikit-learn; or ``"package.module:function"``, as
        :class:`p2pfl.plugins.exact.trees.losses.OwnLoss` calls it.
    quantile
        With the loss of that name, the quantile that is predicted.
    loss_bound
        With a loss of the user's own, the bound of the magnitude of its derivatives.
    max_leaf_nodes, max_depth
        Bounds of a tree, at least one of them. With ``max_leaf_nodes`` it grows best first; 0 or ``None`` is no bound.
    min_samples_leaf
        Smallest number of samples of a leaf.
    min_hessian
        Smallest sum of second derivatives of a leaf; XGBoost calls it ``min_child_weight``.
    l2_regularization
        :math:`\lambda`.
    subsample, colsample_bytree
        Shares of the samples and of the features that the trees of a round see, as in XGBoost; both are drawn by a
        key, which is public, so they give no privacy.
    max_bins
        Largest number of bins of a feature, besides that of missing values.
    edges
        ``"sketch"`` for quantiles of the values, by two totals; ``"even"`` for bins of equal width between public
        bounds, by none.
    bounds
        With even edges, by name of a number its public bounds ``[low, high]`` or ``[low, high, "log"]``; values beyond
        them fall into the first or the last bin.
    early_stopping
        True to stop when the loss on ``data.validation`` no longer falls.
    n_iter_no_change, tol
        Number of trees within which that loss must fall by ``tol``.
    categorical_features
        Names or positions of the columns whose values are categories: levels of a table, or whole numbers from 0 to
        254. ``"from_dtype"`` means all columns that have levels.
    monotonic_cst
        By name of a feature, or for all of them in their order, whether predictions rise (1) or fall (-1) with it.
    least
        Least number of samples of a level by class, and of a bin of the roots; see
        :class:`p2pfl.plugins.exact.trees.checked_trees.CheckedTreeModel`.
    fields
        Columns of the table that the features come from; ``None`` if there is none.

    Examples
    --------
    >>> Boosting(features=3, classes=2, rounds=10).layout.size > 0
    True

    References
    ----------
    Friedman, Greedy function approximation: a gradient boosting machine, Annals of Statistics 29, 2001; Chen and
    Guestrin, XGBoost: a scalable tree boosting system, KDD 2016.

    Raises
    ------
    ModelError
        An option has no valid value, or does not go with another one.
    """

    name: ClassVar[str] = "boosting"
    shows: ClassVar[str] = f"{SKETCHED}{GROWN}"

    learning_rate: float = 0.1
    loss: str | None = None
    quantile: float | None = None
    loss_bound: float | None = None
    max_leaf_nodes: int | None = 31
    max_depth: int | None = None
    min_samples_leaf: int = 20
    min_hessian: float = 1e-3
    l2_regularization: float = 0.0
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    max_bins: int = 255
    edges: str = "sketch"
    bounds: dict[str, list[float | str]] | None = None
    early_stopping: bool = False
    n_iter_no_change: int = 10
    tol: float = 1e-7
    categorical_features: list[str | int] | str | None = None
    monotonic_cst: dict[str, int] | list[int] | None = None

    def __post_init__(self) -> None:
        self.check_ranges(
            learning_rate=(self.learning_rate > 0, "above 0"),
            max_leaf_nodes=(not self.max_leaf_nodes or self.max_leaf_nodes >= 2, "at least 2, or 0 for no bound"),
            max_depth=(self.max_depth is None or self.max_depth >= 1, "at least 1"),
            min_samples_leaf=(self.min_samples_leaf >= 1, "at least 1"),
            min_hessian=(self.min_hessian >= 0, "at least 0"),
            l2_regularization=(self.l2_regularization >= 0, "at least 0"),
            subsample=(0 < self.subsample <= 1, "above 0, at most 1"),
            colsample_bytree=(0 < self.colsample_bytree <= 1, "above 0, at most 1"),
            max_bins=(2 <= self.max_bins <= MAX_BINS, f"from 2 to {MAX_BINS}"),
            n_iter_no_change=(self.n_iter_no_change >= 1, "at least 1"),
            tol=(self.tol >= 0, "at least 0"),
        )
        self._check_edges()
        self._check_loss()
        self.seen.signs(self.monotonic_cst)
        if self.leaves > MAX_LEAVES:
            raise ModelError(
                f"trees of model.options.max_depth = {self.max_depth} could have more than {MAX_LEAVES} leaves; set "
                "model.options.max_leaf_nodes as well"
            )

    def _check_edges(self) -> None:
        if self.edges not in {"sketch", "even"}:
            raise ModelError(
                f'model.options.edges is "{self.edges}"; set it to "sketch" or "even" (exact quantiles are values of '
                "single samples, so there are none)"
            )
        if self.edges == "even":
            even_bins(self.seen, self.fields, self.bounds or {}, max_bins=self.max_bins)
        elif self.bounds is not None:
            raise ModelError('model.options.bounds has no effect with the sketch; leave it out, or set edges = "even"')

    def _check_loss(self) -> None:
        known = self.objective
        if self.early_stopping and not known.valued:
            raise ModelError(
                f'model.options.early_stopping needs a loss, and "{self.loss}" returns its derivatives alone; leave '
                "early_stopping out"
            )
        if self.monotonic_cst is not None and known.share is not None:
            raise ModelError(
                f'model.options.monotonic_cst does not work with loss = "{self.loss}", whose leaves are quantiles that '
                "need not follow the order of a feature; leave it out, or choose another loss"
            )

    def check(self) -> None:
        """Refuse a loss of the user's own that cannot be imported.

        Raises
        ------
        ModelError
            The function does not exist.
        """
        if isinstance(self.objective, OwnLoss):
            self.objective.check()

    @property
    def leaves(self) -> int:
        """Largest number of leaves of a tree."""
        if not self.max_leaf_nodes and self.max_depth is None:
            raise ModelError("trees need a bound; set model.options.max_leaf_nodes or max_depth")
        deep = 2**self.max_depth if self.max_depth is not None and self.max_depth < 60 else 2**60
        return min(deep, self.max_leaf_nodes or deep)

    @property
    def columns(self) -> int:
        """Number of margins of a sample, and of trees of a round."""
        return self.objective.columns

    @cached_property
    def objective(self) -> Loss:
        """Loss that the trees minimise."""
        return objective(self.loss, classes=self.classes, quantile=self.quantile, bound=self.loss_bound)

    @property
    def logarithmic(self) -> bool:
        """True if margins are logarithms of the predicted means."""
        return isinstance(self.objective, LogLink)

    @property
    def lost(self) -> PerSample | None:
        """Loss of predicted numbers; ``None`` for the squared error, and for classes."""
        loss = self.objective
        if not isinstance(loss, LogLink | Quantile):
            return None
        return lambda outputs, targets: torch.from_numpy(loss.lost(outputs[:, 0].numpy(), targets.numpy()))

    @property
    def sampling(self) -> Sampling:
        """Shares of samples and features that are drawn."""
        return Sampling(self.subsample, self.colsample_bytree, self.seed)

    @cached_property
    def seen(self) -> TreeFeatures:
        """Features that the trees split."""
        return TreeFeatures.of(self.features, self.fields, categorical=self.categorical_features)

    @property
    def signs(self) -> Ints | None:
        """Direction of the predictions by feature, 1 or -1, 0 if free; ``None`` if all are free."""
        return self.seen.signs(self.monotonic_cst)

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        shown = GROWN if options.get("edges") == "even" else f"{SKETCHED}{GROWN}"
        return f"{shown}{LEFT}" if options.get("loss") in {"quantile", "absolute_error"} else shown

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        shapes = self.node_shapes(self.rounds * self.columns, self.nodes) | self.bin_shapes(self.max_bins)
        shapes |= self.level_shapes
        return shapes | dict.fromkeys(("training_loss", "validation_loss"), (self.rounds,))

    @property
    def nodes(self) -> int:
        """Number of nodes for which a tree has room."""
        return 2 * self.leaves - 1

    def module(self) -> torch.nn.Module:
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
        yield from work.merging()
        work.root((yield work.question()))
        loss = work.training_loss if self.objective.valued else None
        losses = {"training_loss": work.training_loss, "validation_loss": work.validation_loss}
        model = with_trees(tensors, losses, slice(done, done + 1))
        if self.early_stopping:
            check_validated(work.validated)
            if stopped(model["validation_loss"][: done + 1], self.n_iter_no_change, self.tol):
                return Outcome(model, loss, over=True)
        while work.growing:
            yield from work.merging()
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
        bins = yield from self.binned(own)
        samples, scale, base = yield from self.objective.begin(own)
        return {**tensors, **bin_tensors(bins), **scalars(samples=samples, scale=scale), "base": base}

    def binned(self, own: Owns) -> Asked[Bins]:
        """Agree on bins; even ones need no total."""
        if self.edges == "even":
            return even_bins(self.seen, self.fields, self.bounds or {}, max_bins=self.max_bins)
        return (
            yield from sketched(
                own,
                features=len(self.seen),
                max_bins=self.max_bins,
                least=self.least,
                categorical=self.seen.categorical,
            )
        )

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return logits ``[n, C]``, or predicted numbers ``[n, 1]``."""
        return self.outputs(self.margins(tensors, part))

    def outputs(self, margins: Floats) -> Floats:
        """Return logits ``[n, C]``, or predicted numbers ``[n, 1]``, of margins ``[n, columns]``."""
        if isinstance(self.objective, LogLink):
            return self.objective.predicted(margins)
        return margins if self.classes is None else self.logits(margins)

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return the importances of the features, the most important first."""
        del fields, classes
        return Explained(self.importances(tensors, averaged=False))


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
            min_samples_leaf=max(model.min_samples_leaf, model.least),
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

    @property
    def at_roots(self) -> bool:
        """True if the roots are counted next."""
        return self.growth.task is not None and not self.growth.task.splits

    def question(self) -> Question:
        """Return the question of a level."""
        task = self.growth.task
        assert task is not None  # noqa: S101 (it is growing)
        extras = EXTRAS * self.at_roots
        size = len(task.counted) * len(self._counted) * self._words + extras
        return Question(lambda peer: self._answer(peer, task), size=size)

    def merging(self) -> Asked[None]:
        """Merge bins of the nodes of a level in which few samples are, by a total that counts them."""
        task = self.growth.task
        if self.model.least == 1 or task is None:
            return
        self.growth.begin_merging()
        size = len(task.counted) * len(self._counted)
        total = yield Question(lambda peer: self._counts(peer, task), size=size)
        counts = np.zeros((len(task.counted), self._cells), np.int64)
        counts[:, self._counted] = total.reshape(-1, len(self._counted))
        self.growth.merge(counts, self.model.least)

    def root(self, total: Ints) -> None:
        """Continue with the total of the roots."""
        self.note_losses(total[-EXTRAS:])
        self.level(total[:-EXTRAS])

    def note_losses(self, total: Ints) -> None:
        """Note the mean losses before the round, from the total of :meth:`losses`."""
        training, held, count = total.tolist()
        self.validated = int(count)
        self.training_loss = training / self._grain / self.samples * self.units.loss
        self.validation_loss = held / self._grain / max(1, count) * self.units.loss

    def level(self, total: Ints) -> None:
        """Continue with the total of a level."""
        sums = self.table(total)
        if self._words == 2:  # second derivatives are 1
            sums = np.stack([sums[..., 0], sums[..., 1] << self.fraction, sums[..., 1]], axis=-1)
        self.growth.proceed(sums)

    def table(self, total: Ints) -> Ints:
        """Return the sums of a total by node and bin, ``[m, cells, V]``, zeros for features that are not drawn."""
        sums = total.reshape(-1, len(self._counted), self._words)
        wide = np.zeros((len(sums), self._cells, self._words), np.int64)
        wide[:, self._counted] = sums
        return wide

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
            leaf = leaves(tree, part.features[drawn], self.bins.categorical.tolist())
            return group[leaf], (part.targets - self.margins(part)[:, 0])[drawn]

        _, values, _ = yield from quantiles(residuals, groups=len(ends), share=share)
        outputs = trees["value"].copy()
        outputs[0, ends] = rate * values
        return trees | {"value": outputs}

    def margins(self, part: Part) -> Floats:
        """Return the margins of samples before the round, ``[n, columns]``."""
        return self.model.margins(self.tensors, part)

    def _answer(self, peer: str, task: GrowthTask) -> Ints:
        """Return what a peer adds to the total of a level."""
        counted = self._histograms(peer, task, self.derived(peer)).ravel()
        return counted if task.splits else np.concatenate([counted, self.losses(peer)])

    def losses(self, peer: str) -> Ints:
        """Return the training and validation loss of a peer, and its number of validation samples."""
        own = self.own(peer)
        return np.array([self._lost(own.train), self._lost(own.validation), len(own.validation)], np.int64)

    def _counts(self, peer: str, task: GrowthTask) -> Ints:
        """Return the number of samples of a peer by node and bin."""
        return self._histograms(peer, task, self.derived(peer)[-1:]).ravel()

    def _histograms(self, peer: str, task: GrowthTask, values: Sequence[Floats]) -> Ints:
        """Return sums of values of a peer by node and bin, merged as those of the nodes are."""
        if not task.splits:
            binned = BinnedSamples.of(self.own(peer).train, self.bins)
            drawn = self.model.sampling.samples(self.own(peer).train, round=self.round)
            self._routes[peer] = BoostedSamples(binned, self.model.columns, drawn)
        routes, merged = self._routes[peer], self.growth.merged
        routes.move(task.splits)
        counted = routes.count(task, values)
        return (counted if merged is None else merged.of(counted))[:, self._counted]

    def derived(self, peer: str) -> list[Floats]:
        """Return the derivatives and counts of the samples of a peer, kept for the round."""
        if peer not in self._values:
            self._values[peer] = self._derivatives(self.own(peer).train)
        return self._values[peer]

    def _ends(self, features: Ints) -> list[tuple[int, int]]:
        """Return the first and the end of the cells of some features."""
        starts, sizes = self.bins.starts, self.bins.sizes
        return [(int(starts[number]), int(starts[number] + sizes[number])) for number in features]

    def _derivatives(self, part: Part) -> list[Floats]:
        """Return derivatives and counts as whole numbers, ``[columns, n]`` each."""
        margins = self.margins(part)
        slopes, curves = self.model.objective.derivatives(margins, part.targets, self.scale)
        grid = 2.0**self.fraction
        ones = np.ones_like(slopes)
        return [np.rint(slopes * grid), *([] if curves is None else [np.rint(curves * grid)]), ones]

    def _lost(self, part: Part) -> int:
        """Return the loss of all samples of a part, each rounded to a whole number."""
        if not len(part):
            return 0
        margins = self.margins(part)
        losses = np.minimum(self.model.objective.values(margins, part.targets, self.scale), WORST)
        return int(np.rint(losses * self._grain).astype(np.int64).sum())
