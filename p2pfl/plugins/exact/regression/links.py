"""Links of generalised linear models: between the linear predictor and the mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats
from p2pfl.core.tensors import torch
from p2pfl.plugins.exact.elementary import log

STEEPEST = 40.0
"""Bound of the linear predictor where its exponential is taken; steps that go beyond are halved."""

LEAST_PROBABILITY = 2.0**-30
"""Least probability from which a linear predictor starts."""


def _exponentials(predictor: Floats) -> Floats:
    return np.asarray(np.exp(np.clip(predictor, -STEEPEST, STEEPEST)))


class Link:
    """Map from linear predictors to means; here the mean is the linear predictor."""

    name: ClassVar[str] = "identity"

    def means(self, predictor: Floats) -> Floats:
        """Return the mean for each linear predictor."""
        return predictor

    def slopes(self, predictor: Floats) -> Floats:
        """Return the derivative of each mean by its linear predictor."""
        return np.ones_like(predictor)

    def start(self, mean: float) -> float:
        """Return about the linear predictor of a mean, in operations that are the same everywhere."""
        return mean

    def logits(self, predictor: Floats) -> Floats:
        """Return the log-odds of a probability for each linear predictor; it itself where there are none."""
        return predictor

    def tensor(self, predictor: torch.Tensor) -> torch.Tensor:
        """Return log-odds of probabilities, or means, as torch computes them."""
        return predictor


class Log(Link):
    """The logarithm of the mean is the linear predictor."""

    name: ClassVar[str] = "log"

    def means(self, predictor: Floats) -> Floats:
        """Return exponentials."""
        return _exponentials(predictor)

    def slopes(self, predictor: Floats) -> Floats:
        """Return the means."""
        return self.means(predictor)

    def start(self, mean: float) -> float:
        """Return the logarithm."""
        return log(max(mean, 2.0**-50))

    def tensor(self, predictor: torch.Tensor) -> torch.Tensor:
        """Return means."""
        return predictor.exp()


class Logit(Link):
    """The log-odds are the linear predictor."""

    name: ClassVar[str] = "logit"

    def means(self, predictor: Floats) -> Floats:
        """Return probabilities."""
        return np.asarray(scipy.special.expit(predictor))

    def slopes(self, predictor: Floats) -> Floats:
        """Return derivatives."""
        means = self.means(predictor)
        return means * (1 - means)

    def start(self, mean: float) -> float:
        """Return the log-odds."""
        bounded = min(max(mean, LEAST_PROBABILITY), 1 - LEAST_PROBABILITY)
        return log(bounded) - log(1 - bounded)


class Probit(Logit):
    """The probability is that of a standard normal number below the linear predictor."""

    name: ClassVar[str] = "probit"

    def means(self, predictor: Floats) -> Floats:
        """Return probabilities."""
        return np.asarray(scipy.special.ndtr(predictor))

    def slopes(self, predictor: Floats) -> Floats:
        """Return densities."""
        return np.asarray(np.exp(-0.5 * predictor * predictor) / np.sqrt(2 * np.pi))

    def start(self, mean: float) -> float:
        """Return about the quantile."""
        return super().start(mean) / 1.7

    def logits(self, predictor: Floats) -> Floats:
        """Return log-odds."""
        return np.asarray(scipy.special.log_ndtr(predictor) - scipy.special.log_ndtr(-predictor))

    def tensor(self, predictor: torch.Tensor) -> torch.Tensor:
        """Return log-odds."""
        return torch.as_tensor(torch.special.log_ndtr(predictor) - torch.special.log_ndtr(-predictor))


class ComplementaryLogLog(Logit):
    """The logarithm of the cumulative hazard is the linear predictor."""

    name: ClassVar[str] = "cloglog"

    def means(self, predictor: Floats) -> Floats:
        """Return probabilities."""
        return -np.expm1(-_exponentials(predictor))

    def slopes(self, predictor: Floats) -> Floats:
        """Return derivatives."""
        hazards = _exponentials(predictor)
        return np.asarray(hazards * np.exp(-hazards))

    def start(self, mean: float) -> float:
        """Return the logarithm of the hazard."""
        bounded = min(max(mean, LEAST_PROBABILITY), 1 - LEAST_PROBABILITY)
        return log(-log(1 - bounded))

    def logits(self, predictor: Floats) -> Floats:
        """Return log-odds."""
        hazards = _exponentials(predictor)
        return np.asarray(np.log(-np.expm1(-hazards)) + hazards)

    def tensor(self, predictor: torch.Tensor) -> torch.Tensor:
        """Return log-odds."""
        hazards = predictor.clamp(-STEEPEST, STEEPEST).exp()
        return (-torch.expm1(-hazards)).log() + hazards


LINKS: Mapping[str, type[Link]] = {each.name: each for each in (Link, Log, Logit, Probit, ComplementaryLogLog)}
"""Links by name."""
