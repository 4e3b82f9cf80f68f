"""Losses of boosting: where it starts, and what each peer computes of its own samples."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, ModelError
from p2pfl.core.imports import describe_error, import_callable
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Own, Owns
from p2pfl.plugins.exact.elementary import added, log
from p2pfl.plugins.exact.sketch import quantiles

NUMBERS = ("squared_error", "absolute_error", "poisson", "gamma", "quantile")
"""Losses of numbers."""

CLASSES = "log_loss"
"""Loss of classes."""

FRACTION = 30
"""Largest number of fraction bits of derivatives."""

EXACT = 52
"""Sums of derivatives stay below two to this power, so that float64 holds them exactly."""

STEEPEST = 8.0
"""Bound of a residual in units of the largest target; a larger one counts as that."""

RAREST = 2.0**-50
"""Least share of a class, where nobody has a sample of it."""

TARGET_EXPONENTS = 128
"""Numbers of exponents of targets, from -64 on."""

LARGEST_MARGIN = 700.0
"""Largest margin whose exponential is computed; that of a larger one counts as that."""

LARGEST_RATIO = 1024.0
"""Bound of a target of gamma in units of its predicted mean; a larger one counts as that."""

KEY = "model.options.loss"
"""Key of the experiment file that names a loss."""

Start = Asked[tuple[int, float, Floats]]
"""Agreement on the number of samples, the unit of the targets, and the margins without trees ``[columns]``."""

Derivatives = tuple[Floats, Floats | None]
"""First and second derivatives in their units, ``[columns, n]``; ``None`` if second ones are 1."""

Targets = npt.NDArray[Any]


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


class Loss(ABC):
    """A loss of margins ``[n, columns]``; one margin, and units of 1, unless a loss says otherwise."""

    steepest: ClassVar[float] = 1.0
    """Bound of a first derivative."""

    curved: ClassVar[bool] = True
    """True if second derivatives differ from 1."""

    valued: ClassVar[bool] = True
    """True if the loss of a sample is known, and not its derivatives alone."""

    @property
    def columns(self) -> int:
        """Number of margins of a sample."""
        return 1

    @property
    def share(self) -> float | None:
        """Quantile of the residuals of a leaf that is its value; ``None`` if a Newton step is."""
        return None

    def units(self, scale: float) -> Units:
        """Return the units of derivatives and losses, given the unit of the targets."""
        del scale
        return Units()

    @abstractmethod
    def begin(self, own: Owns) -> Start:
        """Agree on where boosting starts."""

    @abstractmethod
    def derivatives(self, margins: Floats, targets: Targets, scale: float) -> Derivatives:
        """Return derivatives."""

    @abstractmethod
    def values(self, margins: Floats, targets: Targets, scale: float) -> Floats:
        """Return the loss of each sample in its unit, ``[n]``."""


@dataclass(frozen=True)
class Two(Loss):
    """Log loss of two classes; the margin is the logit of class 1."""

    def begin(self, own: Owns) -> Start:
        """Start from the log-odds of the classes."""
        counts = yield from _classes(own, 2)
        samples = int(counts.sum())
        logs = _logs(counts)
        return samples, 1.0, np.array([logs[1] - logs[0]])

    def derivatives(self, margins: Floats, targets: Targets, scale: float) -> Derivatives:
        """Return p - y and p (1 - p)."""
        del scale
        chances = scipy.special.expit(margins[:, 0])
        return (chances - targets)[None], (chances * (1 - chances))[None]

    def values(self, margins: Floats, targets: Targets, scale: float) -> Floats:
        """Return the log loss of each sample."""
        del scale
        return np.asarray(np.logaddexp(0.0, np.where(targets > 0, -margins[:, 0], margins[:, 0])))


@dataclass(frozen=True)
class Several(Loss):
    """Log loss of more than two classes, each of which has a margin.

    Parameters
    ----------
    classes
        Number of classes.
    """

    classes: int

    @property
    def columns(self) -> int:
        """Number of margins of a sample."""
        return self.classes

    def begin(self, own: Owns) -> Start:
        """Start from the logarithms of the shares of the classes, less their mean."""
        counts = yield from _classes(own, self.classes)
        logs = _logs(counts)
        return int(counts.sum()), 1.0, logs - added(logs) / self.classes

    def derivatives(self, margins: Floats, targets: Targets, scale: float) -> Derivatives:
        """Return p - y and p (1 - p) by class."""
        del scale
        chances = self._chances(margins)
        hot = targets[None, :] == np.arange(self.classes)[:, None]
        return chances - hot, chances * (1 - chances)

    def values(self, margins: Floats, targets: Targets, scale: float) -> Floats:
        """Return the log loss of each sample."""
        del scale
        own = np.take_along_axis(self._chances(margins), targets[None, :], axis=0)[0]  # [n]
        return np.asarray(-np.log(np.maximum(own, RAREST)))

    def _chances(self, margins: Floats) -> Floats:
        """Return probabilities ``[C, n]``, added class by class, so that they do not depend on other samples."""
        rising = np.exp(np.ascontiguousarray((margins - margins.max(axis=1, initial=-np.inf, keepdims=True)).T))
        whole = np.zeros(rising.shape[1])
        for row in rising:
            whole = whole + row
        return np.asarray(rising / whole)


@dataclass(frozen=True)
class Numbers(Loss):
    """Half of the squared error of numbers, in units of a power of two that no target exceeds."""

    steepest: ClassVar[float] = STEEPEST
    curved: ClassVar[bool] = False

    def units(self, scale: float) -> Units:
        """Return the unit of the targets, 1, and the square of that unit."""
        return Units(scale, 1.0, scale * scale)

    def begin(self, own: Owns) -> Start:
        """Start from the mean of the targets."""
        samples, scale, mean = yield from averaged(own)
        return samples, scale, np.array([mean])

    def derivatives(self, margins: Floats, targets: Targets, scale: float) -> Derivatives:
        """Return residuals."""
        return np.clip((margins[:, 0] - targets) / scale, -STEEPEST, STEEPEST)[None], None

    def values(self, margins: Floats, targets: Targets, scale: float) -> Floats:
        """Return the squared error of each sample."""
        return np.asarray(((margins[:, 0] - targets) / scale) ** 2)


@dataclass(frozen=True)
class LogLink(Loss):
    """Loss whose margin is the logarithm of a mean."""

    name: ClassVar[str]

    def begin(self, own: Owns) -> Start:
        """Start from the logarithm of the mean."""
        samples, scale, mean = yield from averaged(self._checked(own))
        if samples and mean <= 0:
            raise ModelError(
                f'all targets are 0, and the mean of {KEY} = "{self.name}" has a logarithm; choose another loss'
            )
        return samples, scale, np.array([log(mean) if samples else 0.0])

    def predicted(self, margins: Floats) -> Floats:
        """Return the means of margins."""
        return np.asarray(np.exp(np.minimum(margins, LARGEST_MARGIN)))

    @abstractmethod
    def lost(self, predictions: Floats, targets: Targets) -> Floats:
        """Return the loss of predicted numbers, ``[n]``."""

    def valid(self, targets: Targets) -> bool:
        """Return whether targets have a logarithm of a mean."""
        return bool((targets >= 0).all())

    def _checked(self, own: Owns) -> Owns:
        """Return the function that returns the samples of a peer, and refuses targets that are not valid."""

        def checked(peer: str) -> Own:
            mine = own(peer)
            for part in (mine.train, mine.validation, mine.test):
                if part is not None and not self.valid(part.targets):
                    words = "0 or more" if self.name == "poisson" else "above 0"
                    raise DataError(
                        f'{peer} has a target that is not {words}, as {KEY} = "{self.name}" needs them; choose another '
                        "loss, or give a table with targets in their own units"
                    )
            return mine

        return checked


@dataclass(frozen=True)
class PoissonLoss(LogLink):
    r"""Half of the Poisson deviance; the margin f is the logarithm of the mean :math:`\mu`.

    .. math:: g = \mu - y, \qquad h = \mu

    Derivatives are in units of a power of two that no target exceeds.
    """

    steepest: ClassVar[float] = STEEPEST
    name: ClassVar[str] = "poisson"

    def units(self, scale: float) -> Units:
        """Return the unit of the targets for all."""
        return Units(scale, scale, scale)

    def derivatives(self, margins: Floats, targets: Targets, scale: float) -> Derivatives:
        """Return the mean less the target, and the mean."""
        means = np.minimum(self.predicted(np.ascontiguousarray(margins[:, 0])) / scale, STEEPEST)
        return (means - targets / scale)[None], means[None]

    def values(self, margins: Floats, targets: Targets, scale: float) -> Floats:
        """Return half of the deviance of each sample."""
        return self.lost(self.predicted(margins[:, 0]), targets) / scale

    def lost(self, predictions: Floats, targets: Targets) -> Floats:
        r"""Return :math:`y \ln(y / \mu) - y + \mu` of each sample."""
        return np.asarray(scipy.special.kl_div(targets, predictions))


@dataclass(frozen=True)
class GammaLoss(LogLink):
    r"""Half of the gamma deviance; the margin f is the logarithm of the mean :math:`\mu`.

    .. math:: g = 1 - y / \mu, \qquad h = y / \mu
    """

    steepest: ClassVar[float] = LARGEST_RATIO
    name: ClassVar[str] = "gamma"

    def valid(self, targets: Targets) -> bool:
        """Return whether targets have a logarithm of their own."""
        return bool((targets > 0).all())

    def derivatives(self, margins: Floats, targets: Targets, scale: float) -> Derivatives:
        """Return 1 less the ratio of target and mean, and that ratio."""
        del scale
        ratios = np.minimum(targets * self.predicted(-np.ascontiguousarray(margins[:, 0])), LARGEST_RATIO)
        return (1 - ratios)[None], ratios[None]

    def values(self, margins: Floats, targets: Targets, scale: float) -> Floats:
        """Return half of the deviance of each sample."""
        del scale
        return self.lost(self.predicted(margins[:, 0]), targets)

    def lost(self, predictions: Floats, targets: Targets) -> Floats:
        r"""Return :math:`y / \mu - 1 - \ln(y / \mu)` of each sample."""
        ratios = targets / predictions
        return np.asarray(ratios - 1 - np.log(ratios))


@dataclass(frozen=True)
class Quantile(Loss):
    r"""Pinball loss, whose least mean is at a quantile.

    Trees follow from the derivatives :math:`g = 1 - q` above the target and :math:`-q` below, with :math:`h = 1`, as in
    scikit-learn. A Newton step of these is no quantile, so scikit-learn sets each leaf to the quantile of the residuals
    of its samples. A quantile is no sum, but counts are: two totals count the residuals of each leaf in cells of a
    relative width of :math:`2^{-7}`, and the value of a leaf is the middle of the cell that has the rank, within
    :math:`2^{-8}` of the quantile. So no total shows a residual to more than eight binary digits.

    Parameters
    ----------
    quantile
        q, above 0 and below 1.

    References
    ----------
    Friedman, Greedy function approximation: a gradient boosting machine, Annals of Statistics 29, 2001, section 4.3.
    """

    quantile: float
    curved: ClassVar[bool] = False

    @property
    def share(self) -> float | None:
        """Quantile of the residuals of a leaf."""
        return self.quantile

    def units(self, scale: float) -> Units:
        """Return 1 for derivatives, and the unit of the targets for losses."""
        return Units(loss=scale)

    def begin(self, own: Owns) -> Start:
        """Start from the quantile of the targets, to within the width of a cell."""

        def values(peer: str) -> tuple[Ints, Floats]:
            targets = own(peer).train.targets
            return np.zeros(len(targets), np.int64), targets.astype(np.float64)

        counts, quantile, scale = yield from quantiles(values, groups=1, share=self.quantile)
        return int(counts[0]), scale, quantile

    def derivatives(self, margins: Floats, targets: Targets, scale: float) -> Derivatives:
        """Return 1 - q above the target, and -q at and below it."""
        del scale
        return np.where(targets >= margins[:, 0], -self.quantile, 1 - self.quantile)[None], None

    def values(self, margins: Floats, targets: Targets, scale: float) -> Floats:
        """Return the pinball loss of each sample."""
        return self.lost(margins[:, 0], targets) / scale

    def lost(self, predictions: Floats, targets: Targets) -> Floats:
        """Return q times a residual that is positive, and q - 1 times a negative one."""
        rest = targets - predictions
        return np.asarray(np.maximum(self.quantile * rest, (self.quantile - 1) * rest))


@dataclass(frozen=True)
class OwnLoss(Loss):
    """Loss whose derivatives a function returns.

    ``function(margins, targets)`` receives float64 arrays ``[n]`` and returns two arrays ``[n]``: the first and the
    second derivative of the loss of each sample by its margin. It may depend on nothing else, so that derivatives of a
    sample are the same at whichever peer it is. Boosting starts from the margin 0.

    Parameters
    ----------
    reference
        ``package.module:function``.
    bound
        Bound of the magnitude of both derivatives, in which they are encoded as integers.
    """

    reference: str
    bound: float
    valued: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse a function that cannot be imported.

        Raises
        ------
        ModelError
            It does not exist or cannot be called.
        """
        self._function()

    def units(self, scale: float) -> Units:
        """Return the bound, as a power of two, for all."""
        return Units(scale, scale, scale)

    def begin(self, own: Owns) -> Start:
        """Start from the margin 0."""
        total = yield Question(lambda peer: np.array([len(own(peer).train)], np.int64), size=1)
        return int(total[0]), 2.0 ** math.ceil(math.log2(self.bound)), np.zeros(1)

    def derivatives(self, margins: Floats, targets: Targets, scale: float) -> Derivatives:
        """Return what the function returns.

        Raises
        ------
        ModelError
            The function fails, or does not return two arrays within the bound, the second one without negative numbers.
        """
        if not len(targets):
            return np.zeros((1, 0)), np.zeros((1, 0))
        try:
            slopes, curves = self._function()(np.array(margins[:, 0]), targets.astype(np.float64))
            derivatives = np.array([slopes, curves], np.float64)  # [2, n]
        except ModelError:
            raise
        except Exception as error:
            said = describe_error(error, module=self.reference.partition(":")[0])
            raise ModelError(
                f"{KEY}: {self.reference} does not return two arrays of numbers ({said}); fix the function"
            ) from error
        if derivatives.shape != (2, len(targets)):
            raise ModelError(
                f"{KEY}: {self.reference} returns arrays of the shape {derivatives.shape[1:]} for "
                f"{len(targets)} samples; return one number of each kind for each sample"
            )
        if not (np.abs(derivatives) <= self.bound).all():
            raise ModelError(
                f"{KEY}: {self.reference} returns a derivative that is not within model.options.loss_bound = "
                f"{self.bound:g}; clip it in the function, or raise the bound"
            )
        if (derivatives[1] < 0).any():
            raise ModelError(
                f"{KEY}: {self.reference} returns a negative second derivative, with which a step could go the wrong "
                "way; return 0 or more, such as an upper bound of it"
            )
        return derivatives[:1] / scale, derivatives[1:] / scale

    def values(self, margins: Floats, targets: Targets, scale: float) -> Floats:
        """Return zeros, because derivatives alone are known."""
        del margins, scale
        return np.zeros(len(targets))

    def _function(self) -> Callable[..., Any]:
        return import_callable(self.reference, key=KEY, sought="a function", refused=ModelError)


def objective(loss: str | None, *, classes: int | None, quantile: float | None, bound: float | None) -> Loss:
    """Return a loss.

    Parameters
    ----------
    loss
        Name, or ``package.module:function``; without it the log loss of classes, the squared error of numbers.
    classes
        Number of classes; ``None`` for a regression.
    quantile
        Quantile of the loss of that name.
    bound
        Bound of the derivatives of a loss of the user's own.

    Raises
    ------
    ModelError
        There is no such loss for these targets, or one of the settings does not belong to it.

    Examples
    --------
    >>> objective("quantile", classes=None, quantile=0.9, bound=None)
    Quantile(quantile=0.9)
    """
    own = loss is not None and ":" in loss
    _check_settings(loss, own=own, quantile=quantile, bound=bound)
    if own:
        if classes is not None and classes > 2:
            raise ModelError(
                f'model.options.loss = "{loss}" has one margin, and {classes} classes need one each; leave loss out'
            )
        return OwnLoss(str(loss), float(bound or 0.0))
    if loss not in {None, *(NUMBERS if classes is None else [CLASSES])}:
        kind, known = ("numbers", " or ".join(NUMBERS)) if classes is None else ("classes", CLASSES)
        raise ModelError(
            f'model.options.loss is "{loss}"; for targets that are {kind}, set it to {known}, or name '
            "package.module:function"
        )
    if classes is not None:
        return Two() if classes == 2 else Several(classes)
    named: dict[str, Loss] = {"poisson": PoissonLoss(), "gamma": GammaLoss(), "absolute_error": Quantile(0.5)}
    return Quantile(float(quantile or 0.0)) if loss == "quantile" else named.get(str(loss), Numbers())


def _check_settings(loss: str | None, *, own: bool, quantile: float | None, bound: float | None) -> None:
    """Refuse settings that do not belong to a loss, or that it lacks."""
    if (quantile is not None) != (loss == "quantile"):
        raise ModelError(
            'model.options.quantile and loss = "quantile" belong together; set both, or leave out quantile'
        )
    if quantile is not None and not 0 < quantile < 1:
        raise ModelError(f"model.options.quantile is {quantile}; set it to a value above 0 and below 1")
    if (bound is not None) != own:
        raise ModelError(
            "model.options.loss_bound is the largest derivative of a loss of your own, and belongs to no other one; "
            'set it with loss = "package.module:function", or leave it out'
        )
    if bound is not None and not 0 < bound < float("inf"):
        raise ModelError(f"model.options.loss_bound is {bound}; set it to a number above 0")


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
    counts = yield Question(lambda peer: _exponents(peer, own(peer).train.targets), size=TARGET_EXPONENTS)
    samples = int(counts.sum())
    used = np.flatnonzero(counts)
    if not len(used):
        return 0, 1.0, 0.0
    scale = 2.0 ** (int(used[-1]) - TARGET_EXPONENTS // 2) if used[-1] else 1.0
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


def _exponents(peer: str, targets: Targets) -> Ints:
    """Return the number of targets by the exponent of the least power of two above them, zeros first."""
    if len(targets) and not np.abs(targets).max() < 2.0 ** (TARGET_EXPONENTS // 2 - 1):
        raise DataError(f"a target of {peer} is 2^{TARGET_EXPONENTS // 2 - 1} or larger; give them in larger units")
    exponents = np.clip(np.frexp(targets)[1].astype(np.int64) + TARGET_EXPONENTS // 2, 0, TARGET_EXPONENTS - 1)
    return np.bincount(np.where(targets == 0, 0, exponents), minlength=TARGET_EXPONENTS)
