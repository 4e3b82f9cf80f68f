""":class:`Ordinal`, regression of ordered classes under proportional odds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
import scipy

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import ModelError
from p2pfl.core.tensors import torch
from p2pfl.data.data_description import feature_names
from p2pfl.learning.exact_model import Part, Tensors
from p2pfl.plugins.exact.elementary import added, inverse, log, times
from p2pfl.plugins.exact.regression.families import TINY, Multinomial, Response
from p2pfl.plugins.exact.regression.glm import GLM
from p2pfl.plugins.exact.regression.links import LINKS
from p2pfl.plugins.exact.regression.sandwich import CLASSICAL
from p2pfl.plugins.exact.tensor_model import Shapes, TensorModule

NARROWEST = 1e-8
"""Least distance of two thresholds in derivatives."""

LEAST_SHARE = 2.0**-30
"""Least share of samples below a threshold from which it starts."""


@dataclass(frozen=True, kw_only=True)
class Ordinal(GLM):
    r"""Proportional odds of ordered classes, with standard errors.

    .. math:: \log \frac{P(y \le k)}{P(y > k)} = \theta_k - x^T \beta

    for each class k but the last. A round is one step of Newton's method, with totals as of ``glm``; errors follow
    from the observed information. Classes are ordered as the table declares them.

    Parameters
    ----------
    features, classes, offset, freq_weights, var_weights, ridge, least, coefficients_per_sample, fields
        As of :class:`p2pfl.plugins.exact.regression.glm.GLM`; thresholds have no penalty.

    Examples
    --------
    >>> Ordinal(features=2, classes=3).labels(["age", "dose"], ["low", "mid", "high"])
    ['age', 'dose', '(threshold) low | mid', '(threshold) mid | high']

    References
    ----------
    McCullagh, Regression models for ordinal data, JRSS B 42, 1980; Venables and Ripley, Modern applied statistics with
    S, 2002 (``polr``).
    """

    name: ClassVar[str] = "ordinal"

    def __post_init__(self) -> None:
        self.check_limits()
        if self.classes is None or self.classes < 3:
            raise ModelError("model.name: ordinal predicts three or more ordered classes; declare them, or use glm")
        given = {"family": self.family, "link": self.link, "exposure": self.exposure, "cluster": self.cluster}
        wrong = [name for name, value in given.items() if value is not None]
        wrong += ["errors"] if self.errors != CLASSICAL else []
        wrong += ["fit_intercept"] if not self.fit_intercept else []
        if wrong:
            raise ModelError(f"model.options.{wrong[0]} has no effect with ordinal; leave it out")
        _ = self.roles  # checks the columns

    @property
    def chosen(self) -> str:
        """Name of the family."""
        return "ordinal"

    @cached_property
    def kind(self) -> Response:
        """Probabilities of the classes, from their log-odds against the first one."""
        return Response(Multinomial(), LINKS["logit"](), (self.classes or 2) - 1)

    @property
    def length(self) -> int:
        """Number of coefficients, the thresholds included and last."""
        return len(self.roles.kept) + self.kind.predictors

    @property
    def width(self) -> int:
        """Number of coefficients."""
        return self.length

    @property
    def _linear(self) -> Shapes:
        shapes: Shapes = {"weight": (1, self.features), "bias": (self.kind.predictors,), "step": (self.width,)}
        return shapes | ({"levels": (self.features,)} if self.merges_levels else {}) | self.splines.shapes

    def module(self) -> OrderedOdds:  # type: ignore[override]
        """Return the torch module for predictions."""
        return OrderedOdds(self.shapes)

    def stacked(self, tensors: Tensors) -> Floats:
        """Return the coefficients and the thresholds, ``[width]``."""
        return np.append(tensors["weight"][0, self.roles.kept], tensors["bias"])

    def label(self, column: int) -> str:
        """Return the name of the feature of a coefficient."""
        names = feature_names(self.features, self.fields)
        kept = self.roles.kept.tolist()
        return str(names[kept[column]]) if column < len(kept) else f"threshold {column - len(kept) + 1}"

    def labels(self, features: Sequence[str], classes: Sequence[str]) -> list[str]:
        """Return the names of the coefficients, from those of the features and of the classes."""
        named = [*classes] or [str(number) for number in range(self.classes or 0)]
        thresholds = [f"(threshold) {one} | {other}" for one, other in pairwise(named)]
        return [*(features[column] for column in self.roles.kept), *thresholds]

    def _weighing(self, beta: Floats) -> dict[str, Floats]:
        weight = np.zeros((1, self.features))
        weight[0, self.roles.kept] = beta[: len(self.roles.kept)]
        if (column := self.roles.column("offset")) is not None:
            weight[0, column] = 1.0
        return {"weight": weight, "bias": beta[len(self.roles.kept) :].copy()}

    def _constant_model(self, start: Floats, means: Floats) -> Floats:
        """Return the thresholds under which each class has its share."""
        del start
        below = np.add.accumulate(np.append(1.0 - added(means), means))[:-1]
        bounded = np.clip(below, LEAST_SHARE, 1 - LEAST_SHARE).tolist()
        return np.array([0.0] * len(self.roles.kept) + [log(share) - log(1 - share) for share in bounded])

    def _linear_part(self, beta: Floats, features: np.ndarray) -> Floats:
        r"""Return :math:`x^T \beta`, ``[n]``."""
        kept = self.roles.kept
        return times(features[:, kept].astype(np.float64), beta[: len(kept)]) + self.roles.offsets(features)

    def _predictor(self, beta: Floats, features: np.ndarray) -> Floats:
        """Return the log-odds of each class against the first one, ``[n, K]``."""
        below = scipy.special.expit(beta[len(self.roles.kept) :] - self._linear_part(beta, features)[:, None])
        ends = np.column_stack([np.zeros(len(below)), below, np.ones(len(below))])
        logs = np.log(np.maximum(np.diff(ends, axis=1), TINY))
        return np.asarray(logs[:, 1:] - logs[:, :1])

    def _terms(self, kind: Response, part: Part, beta: Floats) -> Ints:
        """Return what the samples of a peer add, as integers."""
        rows, columns = np.triu_indices(self.width)
        places = np.append(np.zeros(len(self.roles.kept), np.int64), 1 + np.arange(kind.predictors))

        def each(where: slice) -> Floats:
            features, targets = part.features[where], part.targets[where]
            scores, information = derivatives(
                targets, self._linear_part(beta, features), thresholds=beta[len(self.roles.kept) :]
            )
            kept = features[:, self.roles.kept].astype(np.float64)
            design = np.column_stack([kept, np.ones((len(kept), kind.predictors))])
            products = design[:, rows] * information[:, places[rows], places[columns]] * design[:, columns]
            deviances = kind.family.deviances(targets, kind.means(self._predictor(beta, features)))
            return np.column_stack([products, design * scores[:, places], deviances, np.zeros(len(targets))])

        return self._summed(part, len(rows) + self.width + 2, each)

    @property
    def _products(self) -> int:
        """Number of sums of products of columns; those with thresholds are sums over classes."""
        return 1

    def _information_weights(self, part: Part, beta: Floats) -> Floats:
        kept = len(self.roles.kept)
        return derivatives(part.targets, self._linear_part(beta, part.features), thresholds=beta[kept:])[1][:, :1, 0]

    def _penalty(self) -> Floats:
        return np.append(np.full(len(self.roles.kept), self.ridge), np.zeros(self.kind.predictors))

    def _inverse(self, information: Floats) -> tuple[Floats, list[int]]:
        """Return the inverse and the dependent columns; thresholds come first, so that features depend on them."""
        order = np.roll(np.arange(self.width), self.kind.predictors)
        inverted, dependent = inverse(information[np.ix_(order, order)])
        back = np.argsort(order)
        return inverted[np.ix_(back, back)], [int(order[column]) for column in dependent]

    def _moments(self, information: Floats, samples: float) -> Floats:
        """Return about the sums of products of features, whose weights are at most 1 / 3."""
        del samples
        return 3 * (information - np.diag(self._penalty()))

    def _steepest(self, beta: Floats, tensors: Tensors) -> int:
        """Return the coefficient that moves linear predictors most, thresholds aside."""
        kept = len(self.roles.kept)
        moved = np.abs(beta[:kept]) * np.sqrt(np.maximum(np.diag(tensors["moments"])[:kept], 0.0))
        return int(moved.argmax())


def derivatives(targets: Ints, predictor: Floats, *, thresholds: Floats) -> tuple[Floats, Floats]:
    r"""Return the first derivatives of the log-likelihood ``[n, 1 + K]``, and the negative second ones.

    They are those by the linear predictor and by each threshold. With a and b the distances of the predictor to the
    thresholds above and below a sample's class, F their logistic function and f its derivative, the likelihood is

    .. math:: F(a) - F(b) = F(a) (1 - F(b)) (1 - e^{b - a})

    Parameters
    ----------
    targets
        Class of each sample, ``[n]``.
    predictor
        :math:`x^T \beta`, ``[n]``.
    thresholds
        :math:`\theta`, ``[K]``.

    Examples
    --------
    >>> scores, information = derivatives(np.array([1]), np.array([0.0]), thresholds=np.array([-1.0, 1.0]))
    >>> scores.round(3).tolist(), information[0].round(3).tolist()[0]
    ([[0.0, -0.425, 0.425]], [0.393, -0.197, -0.197])
    """
    count, rows = len(thresholds), np.arange(len(targets))
    ends = np.concatenate([[-np.inf], thresholds, [np.inf]])
    above, below = ends[targets + 1] - predictor, ends[targets] - predictor
    upper, lower = scipy.special.expit(above), scipy.special.expit(below)
    slope_above, slope_below = upper * (1 - upper), lower * (1 - lower)
    apart = np.maximum(ends[targets + 1] - ends[targets], NARROWEST)
    share = 1 / np.expm1(np.minimum(apart, 700.0))  # of both thresholds; 0 where there is one
    curve = share * (1 + share)
    scores, information = (
        np.zeros((len(targets), 2 + count + 1)),
        np.zeros((len(targets), 2 + count + 1, 2 + count + 1)),
    )
    scores[:, 0] = upper + lower - 1
    information[:, 0, 0] = slope_above + slope_below
    for column, first, slope in (
        (targets + 2, 1 - upper + share, slope_above),  # the last column and the second are no thresholds
        (targets + 1, -lower - share, slope_below),
    ):
        scores[rows, column] += first
        information[rows, 0, column] = information[rows, column, 0] = -slope
        information[rows, column, column] = slope + curve
    information[rows, targets + 1, targets + 2] = information[rows, targets + 2, targets + 1] = -curve
    kept = [0, *range(2, 2 + count)]
    return scores[:, kept], information[:, kept][:, :, kept]


class OrderedOdds(TensorModule):
    """Ordered classes: features in, log-odds of each class against the first one out.

    Examples
    --------
    >>> model = OrderedOdds({"weight": (1, 2), "bias": (1,)})
    >>> model(torch.zeros(1, 2)).softmax(dim=1).tolist()
    [[0.5, 0.5]]
    """

    weight: torch.Tensor
    bias: torch.Tensor

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return log-odds ``[n, C]`` against the first class for features ``[n, F]``."""
        below = torch.sigmoid(self.bias - self.inputs(features) @ self.weight.T)  # [n, K]
        ends = torch.cat([torch.zeros_like(below[:, :1]), below, torch.ones_like(below[:, :1])], dim=1)
        logs = (ends[:, 1:] - ends[:, :-1]).clamp(min=TINY).log()
        return logs - logs[:, :1]
