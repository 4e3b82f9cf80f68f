""":class:`PrivateGLM`, linear and logistic regression with differential privacy of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.explanations import Explained
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field
from p2pfl.learning.exact_model import Asked, Outcome, Owns, Part, Round, Tensors
from p2pfl.plugins.exact.columns import labels_of
from p2pfl.plugins.exact.elementary import added, eigen, inverse, product, times
from p2pfl.plugins.exact.regression.families import Linear
from p2pfl.plugins.exact.regression.fits import converged, with_errors
from p2pfl.plugins.exact.regression.links import Link, Logit
from p2pfl.plugins.exact.regression.private_design import Design, Terms, moments, products
from p2pfl.plugins.exact.tensor_model import Shapes, TensorModel, scalars

SPARE = 256
"""Numbers of the first total to which nobody adds anything, so that they measure the noise."""

MIN_TOTALS = 3
"""Totals of a logistic model: moments, a gradient, and the information."""

FACTS = ("samples", "dispersion", "noise", "ridge", "steps", "converged")
"""Numbers that are printed with the coefficients."""


@dataclass(frozen=True, kw_only=True)
class PrivateGLM(TensorModel):
    r"""Linear or logistic regression whose totals take private noise.

    A sample has the row x: each number scaled by its public bounds to [-1, 1], each level but the last of its column,
    and 1. It counts with the weight :math:`w = \min(1, R^2 / |x|^2)`. The first round takes the moments
    :math:`\sum w z z^T` of z = (x, y), with :math:`y \in [-1, 1]`, which a sample changes by a norm of at most
    :math:`R^2 + 1`. A linear model follows from them. A logistic model takes steps

    .. math:: \beta \leftarrow \beta + \bigl(\tfrac14 M\bigr)^{-1} \sum w x (y' - p)

    with the moments M of x, which bound the information, so that a step takes only a gradient, which a sample changes
    by at most R. The last round takes the information, from which standard errors follow. A ridge keeps all eigenvalues
    of M above the noise.

    Parameters
    ----------
    features, classes, rounds
        Number of features, of classes (two, or ``None`` where a number is predicted), and of totals: 1 for a linear
        model, at least 3 for a logistic one.
    bounds
        Public bounds ``[low, high]`` of each column of numbers by name, and as ``target`` those of a target that is a
        number. Values beyond them count as these.
    clip
        R; by default the largest norm that a row can have, with which all samples weigh the same.
    fields
        Columns of the table that the features come from; ``None`` if there is none.

    Examples
    --------
    >>> model = PrivateGLM(features=2, classes=2, rounds=10, bounds={"x0": [0, 1], "x1": [0, 1]})
    >>> round(model.radius**2, 3)
    3.0

    References
    ----------
    Wang, Revisiting differentially private linear regression, UAI 2018. Böhning and Lindsay, Monotonicity of
    quadratic-approximation algorithms, 1988.
    """

    name: ClassVar[str] = "private_glm"
    shows: ClassVar[str] = (
        "with private noise, sums and products of all pairs of features and of each feature with the target, and for a "
        "logistic model at each step sums of the products of each feature with the residuals"
    )
    traits: ClassVar[ModelTraits] = ModelTraits(noisy=True, test=0.0, command="coefficients")

    features: int
    classes: int | None
    rounds: int
    bounds: dict[str, list[float]]
    clip: float | None = None
    fields: tuple[Field, ...] | None = None

    def __post_init__(self) -> None:
        if self.classes is not None and self.classes != 2:
            raise ModelError(
                f"model.name: private_glm predicts two classes or a number, not {self.classes} classes; use "
                "random_boosting"
            )
        if self.classes is None and self.rounds != 1:
            raise ModelError(
                f"a linear private_glm takes one total, and noise for {self.rounds} would be lost; set rounds = 1"
            )
        if self.classes is not None and self.rounds < MIN_TOTALS:
            raise ModelError(
                f"a logistic private_glm takes {MIN_TOTALS} totals or more, not {self.rounds}; set rounds to 10 to 20"
            )
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ModelError(f"model.options.clip is {self.clip}; set it to a finite value above 0")
        _ = self.design  # check the bounds

    @cached_property
    def design(self) -> Design:
        """Rows of samples."""
        return Design.of(self.bounds, features=self.features, fields=self.fields, number=self.classes is None)

    @property
    def radius(self) -> float:
        """R, the largest norm of a row whose sample has the full weight."""
        return self.design.longest if self.clip is None else self.clip

    @property
    def width(self) -> int:
        """Q, the number of coefficients of a row."""
        return self.design.width

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        shapes: Shapes = {"weight": (1, self.features), "bias": (1,)}
        shapes |= {"covariance": (self.features + 1, self.features + 1)}
        shapes |= {"scaled": (self.width,), "bound": (self.width, self.width)}
        return shapes | dict.fromkeys(("samples", "noise", "ridge", "dispersion", "steps", "converged"), (1,))

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return the coefficients with errors that include the noise, after the last total."""
        del classes
        facts = converged(tensors, FACTS)
        if facts is None:
            return None
        beta, labels = np.append(tensors["weight"][0], tensors["bias"]), [*labels_of(fields), "(intercept)"]
        return with_errors(self.name, beta, tensors, labels, facts, ridge=facts["ridge"], errors="private")

    def module(self) -> Linear:
        """Return the torch module for predictions."""
        classes = self.classes is not None
        return Linear(self.shapes, link=Logit() if classes else Link(), classes=classes)

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take one total: the moments, a gradient, or the information."""
        taken = int(tensors["steps"][0])
        if tensors["converged"][0]:
            return Outcome(tensors, over=True)
        if not taken:
            updates = yield from self._first(tensors, own)
        elif taken + 1 < self.rounds:
            updates = yield from self._stepped(tensors, own)
        else:
            updates = yield from self._judged(tensors, own)
        over = self.classes is None or taken + 1 == self.rounds
        return Outcome({**updates, **scalars(steps=taken + 1, converged=over)}, over=over)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return logits ``[n, 2]``, or predicted numbers ``[n, 1]``."""
        predictor: Floats = times(part.features.astype(np.float64), tensors["weight"][0]) + tensors["bias"][0]
        if self.classes is None:
            return predictor[:, None]
        return np.stack([np.zeros_like(predictor), predictor], axis=1)

    def _first(self, tensors: Tensors, own: Owns) -> Asked[Tensors]:
        """Take the moments, and fit the linear model or take the first step."""
        size, change = self.width + 1, self.radius**2 + 1
        total, noise = yield from self._total(_moments, own, size=size * (size + 1) // 2, change=change, spare=SPARE)
        joint = moments(total, size=size)
        inner, outer = joint[:-1, :-1], joint[:-1, -1]
        bound, ridge = raised(inner, noise=noise)
        inverted, _ = inverse(bound)
        if self.classes is None:
            beta = times(inverted, outer)
            covariance, dispersion = linear_errors(beta, joint, inverted=inverted, noise=noise)
        else:
            beta, covariance, dispersion = times(inverted, 2 * outer), np.zeros_like(inner), 1.0
        samples = max(0.0, float(np.rint(inner[-1, -1])))
        given = {"bound": bound, **scalars(noise=noise / change, ridge=ridge, samples=samples)}
        return {**tensors, **given, **self._told(beta, covariance, dispersion)}

    def _stepped(self, tensors: Tensors, own: Owns) -> Asked[Tensors]:
        """Take a gradient, and a step along it."""
        beta = tensors["scaled"]

        def terms(rows: Floats, weights: Floats, targets: Floats) -> Floats:
            residuals = (targets + 1) / 2 - Logit().means(times(rows, beta))
            return np.asarray(rows * (weights * residuals)[:, None])

        total, _ = yield from self._total(terms, own, size=self.width, change=self.radius)
        inverted, _ = inverse(tensors["bound"] / 4)
        after = beta + times(inverted, total)
        return {**tensors, **self._told(after, np.zeros_like(inverted), 1.0)}

    def _judged(self, tensors: Tensors, own: Owns) -> Asked[Tensors]:
        """Take the information, from which standard errors follow."""
        beta, change, noise = tensors["scaled"], self.radius**2 / 4, float(tensors["noise"][0])

        def terms(rows: Floats, weights: Floats, targets: Floats) -> Floats:
            del targets
            return products(rows) * (weights * Logit().slopes(times(rows, beta)))[:, None]

        total, _ = yield from self._total(terms, own, size=self.width * (self.width + 1) // 2, change=change)
        information, _ = raised(moments(total, size=self.width), noise=noise * change)
        covariance = logistic_errors(
            information,
            tensors["bound"] / 4,
            first=noise * (self.radius**2 + 1) / math.sqrt(8),
            later=noise * self.radius,
            steps=self.rounds - 2,
        )
        return {**tensors, **self._told(beta, covariance, 1.0)}

    def _total(
        self, terms: Terms, own: Owns, *, size: int, change: float, spare: int = 0
    ) -> Asked[tuple[Floats, float]]:
        return self.design.total(terms, own, size=size, change=change, radius=self.radius, spare=spare)

    def _told(self, beta: Floats, covariance: Floats, dispersion: float) -> dict[str, Floats]:
        """Return the tensors of coefficients of a row, in the units of the features and of the target."""
        coefficients, spread = self.design.unscaled(beta, covariance)
        factor = self.design.unit * self.design.unit
        return {
            "weight": coefficients[None, :-1],
            "bias": coefficients[-1:],
            "covariance": spread,
            "scaled": beta,
            **scalars(dispersion=dispersion * factor),
        }


def _moments(rows: Floats, weights: Floats, targets: Floats) -> Floats:
    """Return the weighted products of samples with their targets."""
    return products(np.column_stack([rows, targets])) * weights[:, None]


def raised(matrix: Floats, *, noise: float) -> tuple[Floats, float]:
    r"""Return a noisy matrix of moments with the ridge that keeps its eigenvalues above the noise, and the ridge.

    Noise of deviation s on the diagonal and :math:`s / \sqrt 2` elsewhere has a norm of about :math:`s \sqrt{2 Q}`, so
    no smaller eigenvalue of the sum says anything.

    Parameters
    ----------
    matrix
        Symmetric, ``[Q, Q]``.
    noise
        s.

    Examples
    --------
    >>> raised(np.diag([9.0, 1.0]), noise=1.0)[1]
    1.0
    """
    if not noise:
        return matrix, 0.0
    values, _ = eigen(matrix)
    ridge = max(0.0, noise * math.sqrt(2 * len(matrix)) - float(values[-1]))
    return matrix + ridge * np.eye(len(matrix)), ridge


def linear_errors(beta: Floats, moments: Floats, *, inverted: Floats, noise: float) -> tuple[Floats, float]:
    r"""Return the covariance of the coefficients of a linear model, and its dispersion.

    .. math:: \phi P + P N P, \qquad N = \tfrac{s^2}{2} \bigl((1 + |\beta|^2) I + \beta \beta^T\bigr)

    with P the inverse of the moments: the error of sampling, and that of noise in the moments.

    Parameters
    ----------
    beta
        ``[Q]``.
    moments
        Noisy moments of rows with their targets, ``[Q + 1, Q + 1]``; the last number of a row is 1.
    inverted
        P.
    noise
        s, the deviation of the noise on the diagonal of the moments.
    """
    inner, products = moments[:-1, :-1], moments[:-1, -1]
    rest = float(moments[-1, -1]) - 2 * added(beta * products) + added(beta * times(inner, beta))
    dispersion = max(0.0, rest) / max(1.0, float(inner[-1, -1]) - len(beta))
    spread = np.eye(len(beta)) * (1 + added(beta * beta)) + beta[:, None] * beta[None, :]
    noisy = product(product(inverted, spread * (noise * noise / 2)), inverted)
    return dispersion * inverted + noisy, dispersion


def logistic_errors(information: Floats, bound: Floats, *, first: float, later: float, steps: int) -> Floats:
    r"""Return the covariance of the coefficients of a logistic model after steps with noisy gradients.

    .. math:: V_{k+1} = (I - P H) V_k (I - P H)^T + s_k^2 P P^T

    with H the information and P the inverse of its bound; the error of sampling :math:`H^{-1}` is added.

    Parameters
    ----------
    information, bound
        H and its bound, ``[Q, Q]``.
    first, later
        Deviations of the noise in the first gradient and in the others.
    steps
        Number of steps after the first.
    """
    inverted, _ = inverse(bound)
    left = np.eye(len(bound)) - product(inverted, information)
    squared = product(inverted, inverted.T)
    spread = first * first * squared
    for _ in range(steps):
        spread = product(product(left, spread), left.T) + later * later * squared
    sampled, _ = inverse(information)
    return sampled + spread
