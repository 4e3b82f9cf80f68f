"""Losses of boosting: where it starts, and what each peer computes of its own samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Owns
from p2pfl.plugins.exact.elementary import added, log

FRACTION = 30
"""Largest number of fraction bits of derivatives."""

EXACT = 52
"""Sums of derivatives stay below two to this power, so that float64 holds them exactly."""

STEEPEST = 8.0
"""Bound of a residual in units of the largest target; a larger one counts as that."""

RAREST = 2.0**-50
"""Least share of a class, where nobody has a sample of it."""

EXPONENTS = 128
"""Numbers of exponents of targets, from -64 on."""


def fraction(samples: int, *, bound: float, most: int = FRACTION) -> int:
    """Return the fraction bits with which sums over samples below a bound stay exact in float64.

    Examples
    --------
    >>> fraction(30_000, bound=1.0), fraction(2**30, bound=1.0)
    (30, 22)
    """
    return min(most, EXACT - math.ceil(math.log2(max(2, samples))) - math.ceil(math.log2(bound)))


class Units(NamedTuple):
    """Units of what peers compute, powers of two: of first and second derivatives, and of losses."""

    slope: float = 1.0
    curve: float = 1.0
    loss: float = 1.0


class Loss(Protocol):
    """A loss of margins ``[n, columns]``."""

    @property
    def columns(self) -> int:
        """Number of margins of a sample."""
        ...

    @property
    def steepest(self) -> float:
        """Bound of a first derivative."""
        ...

    @property
    def curved(self) -> bool:
        """True if second derivatives differ from 1."""
        ...

    @property
    def quantile(self) -> float | None:
        """Quantile of the residuals of a leaf that is its value; ``None`` if a Newton step is."""
        ...

    @property
    def valued(self) -> bool:
        """True if the loss of a sample is known, and not its derivatives alone."""
        ...

    def units(self, scale: float) -> Units:
        """Return the units of derivatives and losses, given the unit of the targets."""
        ...

    def begin(self, own: Owns) -> Asked[tuple[int, float, Floats]]:
        """Agree on the number of samples, the unit of the targets, and the margins without trees ``[columns]``."""
        ...

    def derivatives(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> tuple[Floats, Floats | None]:
        """Return first and second derivatives in their units, ``[columns, n]``; ``None`` if second ones are 1."""
        ...

    def values(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> Floats:
        """Return the loss of each sample in its unit, ``[n]``."""
        ...


class Smooth:
    """Base of losses that are twice differentiable and have no unit."""

    quantile: ClassVar[float | None] = None
    valued: ClassVar[bool] = True

    def units(self, scale: float) -> Units:
        """Return 1 for all of them."""
        del scale
        return Units()


@dataclass(frozen=True)
class Two(Smooth):
    """Log loss of two classes; the margin is the logit of class 1."""

    columns: ClassVar[int] = 1
    steepest: ClassVar[float] = 1.0
    curved: ClassVar[bool] = True

    def begin(self, own: Owns) -> Asked[tuple[int, float, Floats]]:
        """Start from the log-odds of the classes."""
        counts = yield from _classes(own, 2)
        samples = int(counts.sum())
        logs = _logs(counts)
        return samples, 1.0, np.array([logs[1] - logs[0]])

    def derivatives(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> tuple[Floats, Floats | None]:
        """Return p - y and p (1 - p)."""
        del scale
        chances = scipy.special.expit(margins[:, 0])
        return (chances - targets)[None], (chances * (1 - chances))[None]

    def values(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> Floats:
        """Return the log loss of each sample."""
        del scale
        found: Floats = np.logaddexp(0.0, np.where(targets > 0, -margins[:, 0], margins[:, 0]))
        return found


@dataclass(frozen=True)
class Several(Smooth):
    """Log loss of more than two classes, each of which has a margin.

    Parameters
    ----------
    classes
        Number of classes.
    """

    classes: int
    steepest: ClassVar[float] = 1.0
    curved: ClassVar[bool] = True

    @property
    def columns(self) -> int:
        """Number of margins of a sample."""
        return self.classes

    def begin(self, own: Owns) -> Asked[tuple[int, float, Floats]]:
        """Start from the logarithms of the shares of the classes, less their mean."""
        counts = yield from _classes(own, self.classes)
        logs = _logs(counts)
        return int(counts.sum()), 1.0, logs - added(logs) / self.classes

    def derivatives(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> tuple[Floats, Floats | None]:
        """Return p - y and p (1 - p) by class."""
        del scale
        chances = self._chances(margins)
        hot = targets[None, :] == np.arange(self.classes)[:, None]
        return chances - hot, chances * (1 - chances)

    def values(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> Floats:
        """Return the log loss of each sample."""
        del scale
        own = np.take_along_axis(self._chances(margins), targets[None, :], axis=0)[0]  # [n]
        found: Floats = -np.log(np.maximum(own, RAREST))
        return found

    def _chances(self, margins: Floats) -> Floats:
        """Return probabilities ``[C, n]``, added class by class, so that they do not depend on other samples."""
        rising = np.exp(np.ascontiguousarray((margins - margins.max(axis=1, initial=-np.inf, keepdims=True)).T))
        whole = np.zeros(rising.shape[1])
        for row in rising:
            whole = whole + row
        found: Floats = rising / whole
        return found


@dataclass(frozen=True)
class Numbers(Smooth):
    """Half of the squared error of numbers, in units of a power of two that no target exceeds."""

    columns: ClassVar[int] = 1
    steepest: ClassVar[float] = STEEPEST
    curved: ClassVar[bool] = False

    def units(self, scale: float) -> Units:
        """Return the unit of the targets, 1, and the square of that unit."""
        return Units(scale, 1.0, scale * scale)

    def begin(self, own: Owns) -> Asked[tuple[int, float, Floats]]:
        """Start from the mean of the targets."""
        samples, scale, mean = yield from averaged(own)
        return samples, scale, np.array([mean])

    def derivatives(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> tuple[Floats, Floats | None]:
        """Return residuals."""
        return np.clip((margins[:, 0] - targets) / scale, -STEEPEST, STEEPEST)[None], None

    def values(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> Floats:
        """Return the squared error of each sample."""
        found: Floats = ((margins[:, 0] - targets) / scale) ** 2
        return found


def averaged(own: Owns) -> Asked[tuple[int, float, float]]:
    """Agree on the number of samples, on a power of two that no target exceeds, and on the mean of the targets.

    Yields
    ------
    Question
        Two questions.

    Returns
    -------
    tuple[int, float, float]
        Zeros and 1 without samples.
    """
    counts = yield Question(lambda peer: _exponents(peer, own(peer).train.targets), size=EXPONENTS)
    samples = int(counts.sum())
    used = np.flatnonzero(counts)
    if not len(used):
        return 0, 1.0, 0.0
    scale = 2.0 ** (int(used[-1]) - EXPONENTS // 2) if used[-1] else 1.0
    grid = 2.0 ** fraction(samples, bound=1.0)

    def summed(peer: str) -> Ints:
        return np.array([np.rint(own(peer).train.targets / scale * grid).astype(np.int64).sum()], np.int64)

    total = yield Question(summed, size=1)
    return samples, scale, int(total[0]) / samples / grid * scale


def _classes(own: Owns, classes: int) -> Asked[Ints]:
    total = yield Question(lambda peer: np.bincount(own(peer).train.targets, minlength=classes), size=classes)
    return total


def _logs(counts: Ints) -> Floats:
    """Return the logarithms of the shares of classes; zeros without samples."""
    samples = int(counts.sum())
    if not samples:
        return np.zeros(len(counts))
    return np.array([log(max(count / samples, RAREST)) for count in counts.tolist()])


def _exponents(peer: str, targets: npt.NDArray[Any]) -> Ints:
    """Return the number of targets by the exponent of the least power of two above them, zeros first."""
    if len(targets) and not np.abs(targets).max() < 2.0 ** (EXPONENTS // 2 - 1):
        raise DataError(f"a target of {peer} is 2^{EXPONENTS // 2 - 1} or larger; give the targets in larger units")
    exponents = np.clip(np.frexp(targets)[1].astype(np.int64) + EXPONENTS // 2, 0, EXPONENTS - 1)
    return np.bincount(np.where(targets == 0, 0, exponents), minlength=EXPONENTS)
