"""Families of generalised linear models: what one sample adds to the likelihood and its derivatives."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import LearningError
from p2pfl.core.tensors import torch
from p2pfl.learning.exact_model import Asked
from p2pfl.plugins.exact.elementary import added_along, log
from p2pfl.plugins.exact.regression.links import LINKS, Link
from p2pfl.plugins.exact.tensor_model import Shapes, TensorModule

TINY = np.finfo(np.float64).tiny

ALPHA_TERMS = 5
"""Sums of :func:`overdispersion_terms`."""

MAX_ALPHA_STEPS = 60
"""Most steps for given means; Newton's method takes five to ten."""

NEAR = 1e-12
"""The estimate is final where a step would change it by less than this share."""

ROUNDING = 1e-6
"""Steps below this share that no longer shrink are rounding."""

MAX_THETA = 2.0**24
"""With a larger theta the distribution is that of Poisson to single precision."""

Targets = npt.NDArray[Any]


class Linear(TensorModule):
    """Linear predictors: features in, logits or predicted means out.

    Parameters
    ----------
    shapes
        Shapes of the tensors of the model, ``weight`` and ``bias`` among them.
    link
        Link.
    classes
        True if outputs are logits of classes.
    exposure
        Position of the feature whose logarithm is added to the predictor; ``None`` for none.

    Examples
    --------
    >>> from p2pfl.plugins.exact.regression.links import Logit
    >>> Linear({"weight": (1, 2), "bias": (1,)}, link=Logit(), classes=True)(torch.zeros(1, 2)).tolist()
    [[0.0, 0.0]]
    """

    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(self, shapes: Shapes, *, link: Link, classes: bool, exposure: int | None = None) -> None:
        super().__init__(shapes)
        self.link, self.classes, self.exposure = link, classes, exposure

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits ``[n, C]``, or predicted means ``[n, 1]``, for features ``[n, F]``."""
        flat = self.inputs(features)  # [n, F]
        predictor = flat @ self.weight.T + self.bias  # [n, K]
        if self.exposure is not None:
            predictor = predictor + flat[:, self.exposure, None].log()
        outputs = self.link.tensor(predictor)
        return torch.cat([torch.zeros_like(outputs[:, :1]), outputs], dim=1) if self.classes else outputs


class Family(ABC):
    """A distribution of targets; K is the number of its linear predictors, 1 but for more than two classes."""

    dispersed: ClassVar[bool] = False
    """True if a dispersion is estimated."""

    bounded: ClassVar[bool] = True
    """True if targets lie at a bound of the mean, so that coefficients can grow without bound."""

    links: ClassVar[tuple[str, ...]]
    """Names of the links, the usual one first."""

    canonical: ClassVar[str]
    """The link with which the information is the variance."""

    def valid(self, targets: Targets) -> str:
        """Return what is wrong with targets; empty if nothing is."""
        del targets
        return ""

    @abstractmethod
    def variances(self, means: Floats) -> Floats:
        """Return the variance of each target, ``[n, K]``, in units of the dispersion."""

    @abstractmethod
    def deviances(self, targets: Targets, means: Floats) -> Floats:
        """Return what each sample adds to the deviance, ``[n]``."""

    def saturated(self, targets: Targets, weights: Floats) -> Floats:
        """Return the log-likelihood of each sample whose mean is its target, ``[n]``; 0 for classes.

        With a dispersion it is what does not depend on the fit. ``weights`` divide the variances.
        """
        del weights
        return np.zeros(len(targets))

    def log_likelihood(self, deviance: float, *, saturated: float, samples: float, weights: float) -> float:
        """Return the log-likelihood of a fit, a dispersion being that of the largest likelihood or, as R, the deviance.

        Parameters
        ----------
        deviance, saturated
            Sums over all samples.
        samples, weights
            Number of samples, and the sum of their weights.
        """
        del samples, weights
        return saturated - deviance / 2


class Binomial(Family):
    """Two classes."""

    links: ClassVar[tuple[str, ...]] = ("logit", "probit", "cloglog")
    canonical: ClassVar[str] = "logit"

    def valid(self, targets: Targets) -> str:
        """Return what is wrong with targets."""
        return "" if ((targets == 0) | (targets == 1)).all() else "a class other than the first two"

    def variances(self, means: Floats) -> Floats:
        """Return the variance of each class."""
        return means * (1 - means)

    def deviances(self, targets: Targets, means: Floats) -> Floats:
        """Return twice the log loss."""
        likely = np.where(targets > 0, means[:, 0], 1 - means[:, 0])
        return np.asarray(-2 * np.log(np.maximum(likely, TINY)))


class Multinomial(Binomial):
    """More than two classes, of which the first is the one that the others are compared with."""

    links: ClassVar[tuple[str, ...]] = ("logit",)

    def valid(self, targets: Targets) -> str:
        """Return what is wrong with targets."""
        return "" if (targets >= 0).all() else "a negative class"

    def deviances(self, targets: Targets, means: Floats) -> Floats:
        """Return twice the log loss."""
        first = 1 - means.sum(axis=1, keepdims=True)
        likely = np.take_along_axis(np.concatenate([first, means], axis=1), targets.astype(np.int64)[:, None], axis=1)
        return np.asarray(-2 * np.log(np.maximum(likely[:, 0], TINY)))


class Gaussian(Family):
    """Numbers."""

    dispersed: ClassVar[bool] = True
    bounded: ClassVar[bool] = False
    links: ClassVar[tuple[str, ...]] = ("identity",)
    canonical: ClassVar[str] = "identity"

    def variances(self, means: Floats) -> Floats:
        """Return ones."""
        return np.ones_like(means)

    def deviances(self, targets: Targets, means: Floats) -> Floats:
        """Return squared residuals."""
        residuals = targets - means[:, 0]
        return residuals * residuals

    def saturated(self, targets: Targets, weights: Floats) -> Floats:
        """Return half the logarithms of weights, by which a sum with weights multiplies."""
        del targets
        return np.asarray(np.log(weights) / (2 * weights))

    def log_likelihood(self, deviance: float, *, saturated: float, samples: float, weights: float) -> float:
        """Return the log-likelihood under the variance of largest likelihood."""
        del weights
        if not deviance > 0:
            return math.nan
        return saturated - 0.5 * samples * (math.log(2 * math.pi * deviance / samples) + 1)


class Poisson(Family):
    """Counts."""

    links: ClassVar[tuple[str, ...]] = ("log",)
    canonical: ClassVar[str] = "log"

    def valid(self, targets: Targets) -> str:
        """Return what is wrong with targets."""
        return "" if (targets >= 0).all() else "a negative count"

    def variances(self, means: Floats) -> Floats:
        """Return the means."""
        return means

    def deviances(self, targets: Targets, means: Floats) -> Floats:
        """Return deviances."""
        mean = means[:, 0]
        return np.asarray(2 * (scipy.special.xlogy(targets, targets / mean) - (targets - mean)))

    def saturated(self, targets: Targets, weights: Floats) -> Floats:
        """Return log-likelihoods."""
        del weights
        special = scipy.special
        return np.asarray(special.xlogy(targets, targets) - targets - special.gammaln(targets + 1))


class Gamma(Gaussian):
    """Positive numbers, whose deviation is proportional to their mean."""

    links: ClassVar[tuple[str, ...]] = ("log",)
    canonical: ClassVar[str] = "inverse"

    def valid(self, targets: Targets) -> str:
        """Return what is wrong with targets."""
        return "" if (targets > 0).all() else "a number that is not positive"

    def variances(self, means: Floats) -> Floats:
        """Return squared means."""
        return means * means

    def deviances(self, targets: Targets, means: Floats) -> Floats:
        """Return deviances."""
        mean = means[:, 0]
        return np.asarray(2 * ((targets - mean) / mean - np.log(targets / mean)))

    def saturated(self, targets: Targets, weights: Floats) -> Floats:
        """Return the logarithms of 1 / target."""
        del weights
        return np.asarray(-np.log(targets))

    def log_likelihood(self, deviance: float, *, saturated: float, samples: float, weights: float) -> float:
        """Return the log-likelihood under the mean deviance as dispersion."""
        del samples
        if not deviance > 0:
            return math.nan
        shape = weights / deviance
        return saturated - weights * (0.5 + shape + math.lgamma(shape) - shape * math.log(shape))


@dataclass(frozen=True)
class NegativeBinomial(Poisson):
    r"""Counts of variance :math:`\mu + \alpha \mu^2`."""

    alpha: float = 1.0

    canonical: ClassVar[str] = "of its own"

    def variances(self, means: Floats) -> Floats:
        """Return variances."""
        return means + self.alpha * means * means

    def deviances(self, targets: Targets, means: Floats) -> Floats:
        """Return deviances."""
        mean, size = means[:, 0], 1 / self.alpha
        ratio = np.log1p(self.alpha * targets) - np.log1p(self.alpha * mean)
        return np.asarray(2 * (scipy.special.xlogy(targets, targets / mean) - (targets + size) * ratio))

    def saturated(self, targets: Targets, weights: Floats) -> Floats:
        """Return log-likelihoods."""
        del weights
        size, special = 1 / self.alpha, scipy.special
        counted = special.gammaln(targets + size) - special.gammaln(size)
        whole = counted - special.gammaln(targets + 1) + special.xlogy(targets, self.alpha * targets)
        return np.asarray(whole - (targets + size) * np.log1p(self.alpha * targets))


FAMILIES: Mapping[str, Callable[[], Family]] = {
    "binomial": Binomial,
    "multinomial": Multinomial,
    "gaussian": Gaussian,
    "poisson": Poisson,
    "gamma": Gamma,
    "negative_binomial": NegativeBinomial,
}
"""Families by name."""


@dataclass(frozen=True)
class Response:
    """A family with its link, and its number of linear predictors K.

    Examples
    --------
    >>> Response(Binomial(), LINKS["logit"]()).outputs(np.zeros((1, 1))).tolist()
    [[0.0, 0.0]]
    """

    family: Family
    link: Link
    predictors: int = 1

    @property
    def several(self) -> bool:
        """True for more than two classes."""
        return isinstance(self.family, Multinomial)

    @property
    def canonical(self) -> bool:
        """True if the information is the second derivative of the likelihood."""
        return self.link.name == self.family.canonical

    def observed(self, targets: Targets) -> Floats:
        """Return what the means are means of, ``[n, K]``."""
        hot = targets[:, None] == np.arange(1, self.predictors + 1) if self.several else targets[:, None]
        return np.asarray(hot, np.float64)

    def start(self, means: Floats) -> Floats:
        """Return linear predictors ``[K]`` for means ``[K]`` of all samples, with the same bits on every machine."""
        if self.several:
            first = max(1.0 - sum(means.tolist()), 2.0**-30)
            return np.array([log(max(mean, 2.0**-30) / first) for mean in means.tolist()])
        return np.array([self.link.start(float(means[0]))])

    def means(self, predictor: Floats) -> Floats:
        """Return the means for linear predictors ``[n, K]``."""
        if self.several:
            highest = np.maximum(predictor.max(axis=1, keepdims=True), 0.0)  # [n, 1]
            rising = np.exp(predictor - highest)
            whole = np.exp(-highest) + added_along(rising)[:, None]
            return np.asarray(rising / whole)
        return self.link.means(predictor)

    def derived(self, targets: Targets, predictor: Floats) -> tuple[Floats, Floats, Floats]:
        """Return means ``[n, K]``, weights in the information ``[n, K, K]``, and scores ``[n, K]``.

        Scores are the derivatives of the log-likelihood by the linear predictors, times the dispersion.
        """
        means = self.means(predictor)
        residuals = self.observed(targets) - means
        if self.several:
            weights = means[:, :, None] * (np.eye(self.predictors) - means[:, None, :])
            return means, weights, residuals
        variances = self.family.variances(means)
        if self.canonical:
            return means, variances[:, :, None], residuals
        slopes, variances = self.link.slopes(predictor), np.maximum(variances, TINY)
        return means, (slopes * (slopes / variances))[:, :, None], residuals * (slopes / variances)

    def squares(self, targets: Targets, means: Floats) -> Floats:
        """Return squared residuals in units of their variance, ``[n]``."""
        if self.several:
            return np.zeros(len(means))
        return (targets - means[:, 0]) ** 2 / np.maximum(self.family.variances(means)[:, 0], TINY)

    def outputs(self, predictor: Floats) -> Floats:
        """Return logits ``[n, C]``, or predicted numbers ``[n, 1]``."""
        if isinstance(self.family, Binomial):
            return np.concatenate([np.zeros((len(predictor), 1)), self.link.logits(predictor)], axis=1)
        return self.link.means(predictor)


def response(family: str, link: str | None, *, alpha: float, classes: int | None) -> Response:
    """Return a family with its link.

    Parameters
    ----------
    family, link
        Names; the usual link if it is ``None``.
    alpha
        Parameter alpha of the negative binomial distribution.
    classes
        Number of classes; ``None`` for numbers.
    """
    chosen = NegativeBinomial(alpha) if family == "negative_binomial" else FAMILIES[family]()
    return Response(chosen, LINKS[link or chosen.links[0]](), max(1, (classes or 2) - 1))


@dataclass(frozen=True)
class Alpha:
    """Estimate of alpha.

    Attributes
    ----------
    value, error
        The estimate, and its standard error from the second derivative of the likelihood.
    saturated
        Log-likelihood of means that equal the targets, under this alpha.
    """

    value: float
    error: float
    saturated: float


def overdispersion_terms(targets: npt.NDArray[Any], means: Floats, theta: float) -> Floats:
    """Return what each sample adds, ``[n, 5]``.

    They are both derivatives, the square of the residual less the count, the square of the mean, and the log-likelihood
    of a mean that equals the count.

    Parameters
    ----------
    targets, means
        Counts and their means, ``[n]``.
    theta
        1 / alpha.

    Examples
    --------
    >>> overdispersion_terms(np.array([0.0]), np.array([1.0]), 1.0).round(3).tolist()
    [[-0.193, 0.25, 1.0, 1.0, 0.0]]
    """
    special = scipy.special
    beyond, whole = targets + theta, means + theta
    first = special.digamma(beyond) - special.digamma(theta) + np.log(theta / whole) + 1 - beyond / whole
    second = special.polygamma(1, beyond) - special.polygamma(1, theta) + 1 / theta - 2 / whole + beyond / whole**2
    excess = (targets - means) ** 2 - targets
    saturated = NegativeBinomial(1 / theta).saturated(targets, np.ones(len(targets)))
    return np.stack([first, second, excess, means * means, saturated], axis=1)


def estimate_alpha(before: float, asked: Callable[[float], Asked[Floats]]) -> Asked[Alpha]:
    r"""Return the alpha of the largest likelihood under given means, by Newton's method on totals.

    With given means :math:`\mu_i` and :math:`\theta = 1 / \alpha`, the log-likelihood of counts :math:`y_i` has the
    derivatives

    .. math:: \ell' = \sum_i \psi(y_i + \theta) - \psi(\theta) + \ln \frac{\theta}{\theta + \mu_i}
              + 1 - \frac{y_i + \theta}{\mu_i + \theta}, \qquad
              \ell'' = \sum_i \psi'(y_i + \theta) - \psi'(\theta) + \frac{1}{\theta} - \frac{2}{\mu_i + \theta}
              + \frac{y_i + \theta}{(\mu_i + \theta)^2},

    which are sums over samples.

    Parameters
    ----------
    before
        An estimate under other means; 0 for the one by moments.
    asked
        Function that asks for the sums of :func:`overdispersion_terms` under a theta.

    Raises
    ------
    LearningError
        The counts vary no more than those of Poisson, so the likelihood rises as alpha falls to 0.

    References
    ----------
    Lawless, Negative binomial and mixed Poisson regression, Canadian Journal of Statistics 15, 1987; Venables and
    Ripley, Modern applied statistics with S, 2002 (``glm.nb``).
    """
    theta = 1 / before if before else 0.0
    last = math.inf
    for _ in range(MAX_ALPHA_STEPS):
        first, second, excess, squares, saturated = (yield from asked(theta or 1.0)).tolist()
        if excess <= 0 or theta > MAX_THETA:
            raise LearningError(
                "the counts vary no more around their means than those of a Poisson distribution, so there is no alpha "
                'to estimate; set model.options.family to "poisson"'
            )
        if not theta:
            theta = max(squares / excess, 2.0**-20)
            continue
        step = -first / second if second < 0 else math.copysign(theta, first)
        if abs(step) <= NEAR * theta or (abs(step) <= ROUNDING * theta and abs(step) > 0.5 * last):
            break
        last = abs(step)
        theta = min(max(theta + step, theta / 4), 4 * theta)
    error = math.sqrt(-1 / second) / (theta * theta) if second < 0 else math.nan
    return Alpha(1 / theta, error, saturated)
