r"""Estimate of alpha of the negative binomial distribution, by Newton's method on totals.

With given means :math:`\mu_i` and :math:`\theta = 1 / \alpha`, the log-likelihood of counts :math:`y_i` has the
derivatives

.. math:: \ell' = \sum_i \psi(y_i + \theta) - \psi(\theta) + \ln \frac{\theta}{\theta + \mu_i}
          + 1 - \frac{y_i + \theta}{\mu_i + \theta}, \qquad
          \ell'' = \sum_i \psi'(y_i + \theta) - \psi'(\theta) + \frac{1}{\theta} - \frac{2}{\mu_i + \theta}
          + \frac{y_i + \theta}{(\mu_i + \theta)^2},

which are sums over samples.

References
----------
Lawless, Negative binomial and mixed Poisson regression, Canadian Journal of Statistics 15, 1987; Venables and Ripley,
Modern applied statistics with S, 2002 (``glm.nb``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import LearningError
from p2pfl.learning.exact_model import Asked
from p2pfl.plugins.exact.regression.families import NegativeBinomial

TERMS = 5
"""Sums of :func:`terms`."""

STEPS = 60
"""Most steps for given means; Newton's method takes five to ten."""

NEAR = 1e-12
"""The estimate is final where a step would change it by less than this share."""

ROUNDING = 1e-6
"""Steps below this share that no longer shrink are rounding."""

LARGEST = 2.0**24
"""With a larger theta the distribution is that of Poisson to single precision."""


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


def terms(targets: npt.NDArray[Any], means: Floats, theta: float) -> Floats:
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
    >>> terms(np.array([0.0]), np.array([1.0]), 1.0).round(3).tolist()
    [[-0.193, 0.25, 1.0, 1.0, 0.0]]
    """
    special = scipy.special
    beyond, whole = targets + theta, means + theta
    first = special.digamma(beyond) - special.digamma(theta) + np.log(theta / whole) + 1 - beyond / whole
    second = special.polygamma(1, beyond) - special.polygamma(1, theta) + 1 / theta - 2 / whole + beyond / whole**2
    excess = (targets - means) ** 2 - targets
    return np.stack([first, second, excess, means * means, NegativeBinomial(1 / theta).saturated(targets)], axis=1)


def estimated(before: float, asked: Callable[[float], Asked[Floats]]) -> Asked[Alpha]:
    """Return the alpha of the largest likelihood under given means.

    Parameters
    ----------
    before
        An estimate under other means; 0 for the one by moments.
    asked
        Function that asks for the sums of :func:`terms` under a theta.

    Raises
    ------
    LearningError
        The counts vary no more than those of Poisson, so the likelihood rises as alpha falls to 0.
    """
    theta = 1 / before if before else 0.0
    last = math.inf
    for _ in range(STEPS):
        first, second, excess, squares, saturated = (yield from asked(theta or 1.0)).tolist()
        if excess <= 0 or theta > LARGEST:
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
