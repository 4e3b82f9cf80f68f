"""Losses of boosting whose margins are logarithms of means: :class:`Poisson` and :class:`Gamma`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import DataError, ModelError
from p2pfl.learning.exact_model import Asked, Own, Owns
from p2pfl.plugins.exact.elementary import log
from p2pfl.plugins.exact.trees.losses.smooth import STEEPEST, Smooth, Units, averaged

LARGEST = 700.0
"""Largest margin whose exponential is computed; that of a larger one counts as that."""

HIGHEST = 1024.0
"""Bound of a target of gamma in units of its predicted mean; a larger one counts as that."""


class LogLink(Smooth):
    """Start and predictions of a loss whose margin is the logarithm of a mean."""

    columns: ClassVar[int] = 1
    curved: ClassVar[bool] = True
    logarithmic: ClassVar[bool] = True

    def predicted(self, margins: Floats) -> Floats:
        """Return the means of margins."""
        found: Floats = np.exp(np.minimum(margins, LARGEST))
        return found


@dataclass(frozen=True)
class PoissonLoss(LogLink):
    r"""Half of the Poisson deviance; the margin f is the logarithm of the mean :math:`\mu`.

    .. math:: g = \mu - y, \qquad h = \mu

    Derivatives are in units of a power of two that no target exceeds.
    """

    steepest: ClassVar[float] = STEEPEST

    def units(self, scale: float) -> Units:
        """Return the unit of the targets for all."""
        return Units(scale, scale, scale)

    def begin(self, own: Owns) -> Asked[tuple[int, float, Floats]]:
        """Start from the logarithm of the mean."""
        samples, scale, mean = yield from averaged(_checked(own, lambda targets: targets >= 0, "poisson", "0 or more"))
        return samples, scale, np.array([_logged(samples, mean, "poisson")])

    def derivatives(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> tuple[Floats, Floats | None]:
        """Return the mean less the target, and the mean."""
        means = np.minimum(self.predicted(np.ascontiguousarray(margins[:, 0])) / scale, STEEPEST)
        return (means - targets / scale)[None], means[None]

    def values(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> Floats:
        """Return half of the deviance of each sample."""
        return self.lost(self.predicted(margins[:, 0]), targets) / scale

    def lost(self, predictions: Floats, targets: npt.NDArray[Any]) -> Floats:
        r"""Return :math:`y \ln(y / \mu) - y + \mu` of each sample."""
        found: Floats = scipy.special.kl_div(targets, predictions)
        return found


@dataclass(frozen=True)
class GammaLoss(LogLink):
    r"""Half of the gamma deviance; the margin f is the logarithm of the mean :math:`\mu`.

    .. math:: g = 1 - y / \mu, \qquad h = y / \mu
    """

    steepest: ClassVar[float] = HIGHEST

    def begin(self, own: Owns) -> Asked[tuple[int, float, Floats]]:
        """Start from the logarithm of the mean."""
        samples, scale, mean = yield from averaged(_checked(own, lambda targets: targets > 0, "gamma", "above 0"))
        return samples, scale, np.array([_logged(samples, mean, "gamma")])

    def derivatives(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> tuple[Floats, Floats | None]:
        """Return 1 less the ratio of target and mean, and that ratio."""
        del scale
        ratios = np.minimum(targets * self.predicted(-np.ascontiguousarray(margins[:, 0])), HIGHEST)
        return (1 - ratios)[None], ratios[None]

    def values(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> Floats:
        """Return half of the deviance of each sample."""
        del scale
        return self.lost(self.predicted(margins[:, 0]), targets)

    def lost(self, predictions: Floats, targets: npt.NDArray[Any]) -> Floats:
        r"""Return :math:`y / \mu - 1 - \ln(y / \mu)` of each sample."""
        ratios = targets / predictions
        found: Floats = ratios - 1 - np.log(ratios)
        return found


def _checked(own: Owns, valid: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]], name: str, words: str) -> Owns:
    """Return the function that returns the samples of a peer, and refuses targets without a logarithm of a mean."""

    def found(peer: str) -> Own:
        mine = own(peer)
        for part in (mine.train, mine.validation, mine.test):
            if part is not None and not valid(part.targets).all():
                raise DataError(
                    f'{peer} has a target that is not {words}, as model.options.loss = "{name}" needs them; choose '
                    "another loss, or give a table with targets in their own units"
                )
        return mine

    return found


def _logged(samples: int, mean: float, name: str) -> float:
    if samples and mean <= 0:
        raise ModelError(
            f'all targets are 0, and the mean of model.options.loss = "{name}" has a logarithm; choose another loss'
        )
    return log(mean) if samples else 0.0
