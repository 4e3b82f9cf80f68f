"""Families of generalised linear models: what one sample adds to the likelihood and its derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.encodings import Floats
from p2pfl.exact.elementary import log

STEEPEST = 40.0
"""Bound of the linear predictor where its exponential is taken; steps that go beyond are halved."""


class Family(Protocol):
    """A distribution with its link."""

    dispersed: ClassVar[bool]
    """True if a dispersion is estimated."""

    bounded: ClassVar[bool]
    """True if targets lie at a bound of the mean, so that coefficients can grow without bound."""

    def valid(self, targets: npt.NDArray[Any]) -> str:
        """Return what is wrong with targets; empty if nothing is."""
        ...

    def means(self, predictor: Floats) -> Floats:
        """Return the mean for each linear predictor."""
        ...

    def link(self, mean: float) -> float:
        """Return the linear predictor of a mean, in operations that are the same everywhere."""
        ...

    def weights(self, means: Floats) -> Floats:
        """Return the weight of each sample in the information."""
        ...

    def residuals(self, targets: Floats, means: Floats) -> Floats:
        """Return the derivative of each log-likelihood by the linear predictor, times the dispersion."""
        ...

    def deviances(self, targets: Floats, means: Floats) -> Floats:
        """Return what each sample adds to the deviance."""
        ...

    def variances(self, means: Floats) -> Floats:
        """Return the variance function."""
        ...


class Binomial:
    """Two classes and the logit."""

    dispersed: ClassVar[bool] = False
    bounded: ClassVar[bool] = True

    def valid(self, targets: npt.NDArray[Any]) -> str:
        """Return what is wrong with targets."""
        return "" if ((targets == 0) | (targets == 1)).all() else "a class other than the first two"

    def means(self, predictor: Floats) -> Floats:
        """Return probabilities."""
        found: Floats = scipy.special.expit(predictor)
        return found

    def link(self, mean: float) -> float:
        """Return the log-odds."""
        bounded = min(max(mean, 2.0**-30), 1 - 2.0**-30)
        return log(bounded) - log(1 - bounded)

    def weights(self, means: Floats) -> Floats:
        """Return the variance of each class."""
        return means * (1 - means)

    def residuals(self, targets: Floats, means: Floats) -> Floats:
        """Return residuals."""
        return targets - means

    def deviances(self, targets: Floats, means: Floats) -> Floats:
        """Return twice the log loss."""
        likely = np.where(targets > 0, means, 1 - means)
        found: Floats = -2 * np.log(np.maximum(likely, np.finfo(np.float64).tiny))
        return found

    def variances(self, means: Floats) -> Floats:
        """Return the variance function."""
        return self.weights(means)


class Gaussian:
    """Numbers and the identity."""

    dispersed: ClassVar[bool] = True
    bounded: ClassVar[bool] = False

    def valid(self, targets: npt.NDArray[Any]) -> str:
        """Return what is wrong with targets."""
        del targets
        return ""

    def means(self, predictor: Floats) -> Floats:
        """Return the predictor."""
        return predictor

    def link(self, mean: float) -> float:
        """Return the mean."""
        return mean

    def weights(self, means: Floats) -> Floats:
        """Return ones."""
        return np.ones_like(means)

    def residuals(self, targets: Floats, means: Floats) -> Floats:
        """Return residuals."""
        return targets - means

    def deviances(self, targets: Floats, means: Floats) -> Floats:
        """Return squared residuals."""
        return (targets - means) * (targets - means)

    def variances(self, means: Floats) -> Floats:
        """Return the variance function."""
        return np.ones_like(means)


class Poisson:
    """Counts and the logarithm."""

    dispersed: ClassVar[bool] = False
    bounded: ClassVar[bool] = True

    def valid(self, targets: npt.NDArray[Any]) -> str:
        """Return what is wrong with targets."""
        return "" if (targets >= 0).all() else "a negative count"

    def means(self, predictor: Floats) -> Floats:
        """Return rates."""
        found: Floats = np.exp(np.clip(predictor, -STEEPEST, STEEPEST))
        return found

    def link(self, mean: float) -> float:
        """Return the logarithm."""
        return log(max(mean, 2.0**-50))

    def weights(self, means: Floats) -> Floats:
        """Return the rates."""
        return means

    def residuals(self, targets: Floats, means: Floats) -> Floats:
        """Return residuals."""
        return targets - means

    def deviances(self, targets: Floats, means: Floats) -> Floats:
        """Return deviances."""
        found: Floats = 2 * (scipy.special.xlogy(targets, targets / means) - (targets - means))
        return found

    def variances(self, means: Floats) -> Floats:
        """Return the variance function."""
        return means


class Gamma(Poisson):
    """Positive numbers, whose deviation is proportional to their mean, and the logarithm."""

    dispersed: ClassVar[bool] = True
    bounded: ClassVar[bool] = False

    def valid(self, targets: npt.NDArray[Any]) -> str:
        """Return what is wrong with targets."""
        return "" if (targets > 0).all() else "a number that is not positive"

    def weights(self, means: Floats) -> Floats:
        """Return ones."""
        return np.ones_like(means)

    def residuals(self, targets: Floats, means: Floats) -> Floats:
        """Return relative residuals."""
        return (targets - means) / means

    def deviances(self, targets: Floats, means: Floats) -> Floats:
        """Return deviances."""
        return 2 * ((targets - means) / means - np.log(targets / means))

    def variances(self, means: Floats) -> Floats:
        """Return the variance function."""
        return means * means


FAMILIES: Mapping[str, type[Family]] = {
    "binomial": Binomial,
    "gaussian": Gaussian,
    "poisson": Poisson,
    "gamma": Gamma,
}
"""Families by name."""
