""":class:`GLM`, generalised linear models by Fisher scoring on exact totals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from p2pfl.encodings import Floats, Ints
from p2pfl.errors import DataError, LearningError, ModelError
from p2pfl.exact import sums
from p2pfl.exact.elementary import added, inverse, times
from p2pfl.exact.model import Asked, Outcome, Owns, Part, Round, Tensors, symmetric, zeros
from p2pfl.exact.regression.coefficients import check_ridge, unbounded
from p2pfl.exact.regression.families import FAMILIES, Family
from p2pfl.learning.additive import Question
from p2pfl.rows import Layout

DECREMENT = 1e-22
"""The model is final where a step would change the deviance by less than this share."""

HALVINGS = 8
"""Shortened steps that are tried at once where the deviance has risen."""

ROUNDING = 1e-10
"""Rise of the deviance, as a share, that is rounding."""

SEPARATED = 1e-7
"""Deviance of a sample, on average, below which two classes are separated perfectly."""

SCALARS = ("samples", "mean", "objective", "deviance", "null_deviance", "dispersion", "decrement", "steps", "converged")
"""Numbers of a fit."""


@dataclass(frozen=True, kw_only=True)
class GLM:
    r"""Generalised linear model, with standard errors.

    A round is one step of Fisher scoring (Newton's method where the link is canonical):

    .. math:: \beta \leftarrow \beta + (X^T W X + R)^{-1} (X^T r - R \beta)

    with W and r of the family, R the ridge penalty, and both sums totals over all peers. The steps end where they
    change nothing, usually after five to ten.

    Parameters
    ----------
    features, classes
        Number of features, and of classes; ``None`` where a number is predicted.
    family
        ``binomial`` (logit), ``gaussian`` (identity), ``poisson`` or ``gamma`` (logarithm); by default ``binomial`` for
        two classes, ``gaussian`` for numbers.
    ridge
        Half of this times the squared norm of the coefficients, without the intercept, is added to the negative
        log-likelihood: 1 / C of scikit-learn's ``LogisticRegression``, ``alpha`` of its ``Ridge``.
    fit_intercept
        True if there is an intercept.

    Examples
    --------
    >>> GLM(features=3, classes=2).layout.names[:2]
    ('weight', 'bias')

    References
    ----------
    McCullagh and Nelder, Generalized linear models, 1989.
    """

    name: ClassVar[str] = "glm"
    shows: ClassVar[str] = (
        "at each step, sums and weighted products of all pairs of features, sums of the products of each feature with "
        "the residuals, and the deviance"
    )

    features: int
    classes: int | None
    family: str | None = None
    ridge: float = 0.0
    fit_intercept: bool = True

    def __post_init__(self) -> None:
        if self.classes is not None and self.classes > 2:
            raise ModelError(
                f"model.name: glm predicts two classes or a number, not {self.classes} classes; use boosting"
            )
        check_ridge(self.ridge)
        if self.family is not None and self.family not in FAMILIES:
            raise ModelError(f'model.options.family is "{self.family}"; choose from {", ".join(FAMILIES)}')
        if (self.classes is not None) != (self.chosen == "binomial"):
            raise ModelError(
                f'model.options.family = "{self.chosen}" does not fit the target; binomial takes two classes, and the '
                "others take numbers"
            )

    @property
    def chosen(self) -> str:
        """Name of the family."""
        return self.family or ("gaussian" if self.classes is None else "binomial")

    @property
    def kind(self) -> Family:
        """The family."""
        return FAMILIES[self.chosen]()

    @property
    def scored(self) -> str:
        """Kind of the score."""
        return "numbers" if self.classes is None else "classes"

    @property
    def width(self) -> int:
        """Number of coefficients, the intercept included and last."""
        return self.features + self.fit_intercept

    @property
    def layout(self) -> Layout:
        """Names and shapes of the tensors."""
        shapes = {"weight": (1, self.features), "bias": (1,), "step": (self.width,)} | self._others
        return Layout(tuple(shapes), tuple(shapes.values()))

    @property
    def _others(self) -> dict[str, tuple[int, ...]]:
        scalars: dict[str, tuple[int, ...]] = dict.fromkeys(SCALARS, (1,))
        square = (self.width, self.width)
        return {"covariance": square, "moments": square} | scalars

    def module(self) -> Linear:
        """Return the torch module for predictions."""
        return Linear(self.features, family=self.chosen, shapes={"step": (self.width,)} | self._others)

    def start(self) -> Tensors:
        """Return the model with zero coefficients."""
        return zeros(self.layout)

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take one step."""
        if tensors["converged"][0]:
            return Outcome(tensors, over=True)
        if not tensors["samples"][0]:
            tensors = yield from self._begin(tensors, own)
            if not tensors["samples"][0]:
                return Outcome(tensors, over=True)
        beta = self._beta(tensors)
        found = yield from self._derived(beta, tensors, own)
        before = float(tensors["objective"][0])
        if tensors["steps"][0] and found["objective"] > before + ROUNDING * max(1.0, abs(before)):
            beta = yield from self._shortened(beta, tensors, own)
            found = yield from self._derived(beta, tensors, own)
        return self._step(beta, found, tensors)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return logits ``[n, 2]``, or predicted means ``[n, 1]``."""
        predictor = self._predictor(self._beta(tensors), part.features)
        if self.classes is not None:
            return np.stack([np.zeros_like(predictor), predictor], axis=1)
        return self.kind.means(predictor)[:, None]

    def _beta(self, tensors: Tensors) -> Floats:
        return np.concatenate([tensors["weight"][0], tensors["bias"][: int(self.fit_intercept)]])

    def _predictor(self, beta: Floats, features: np.ndarray) -> Floats:
        """Return the linear predictor, added feature by feature, so that it does not depend on other samples."""
        found = times(features.astype(np.float64), beta[: self.features])
        return found + beta[-1] if self.fit_intercept else found

    def _design(self, features: np.ndarray) -> Floats:
        wide = features.astype(np.float64)
        return np.column_stack([wide, np.ones(len(wide))]) if self.fit_intercept else wide

    def _penalty(self) -> Floats:
        found = np.full(self.width, self.ridge)
        if self.fit_intercept:
            found[-1] = 0.0
        return found

    def _begin(self, tensors: Tensors, own: Owns) -> Asked[Tensors]:
        """Agree on the number of samples and on the mean, from which the intercept starts."""
        total = yield Question(lambda peer: self._counted(peer, own(peer).train), size=sums.size(1) + 1)
        samples = int(total[-1])
        mean = float(sums.numbers(total[:-1])[0]) / samples if samples else 0.0
        bias = np.array([self.kind.link(mean)]) if self.fit_intercept and samples else np.zeros(1)
        null = yield Question(
            lambda peer: self._compared(own(peer).train, [np.full(len(own(peer).train), mean)]), size=sums.size(1)
        )
        given = {"bias": bias, "samples": samples, "mean": mean, "null_deviance": float(sums.numbers(null)[0])}
        return {**tensors, **{name: np.atleast_1d(np.asarray(value, np.float64)) for name, value in given.items()}}

    def _counted(self, peer: str, part: Part) -> Ints:
        wrong = self.kind.valid(part.targets)
        if wrong:
            raise DataError(
                f"{peer} has {wrong} among its targets, which {self.chosen} does not allow; choose another family"
            )
        part.check_complete(peer, model=self.name)
        targets = part.targets.astype(np.float64)
        return np.append(sums.summed(len(part), 1, lambda where: targets[where, None]), len(part))

    def _compared(self, part: Part, means: list[Floats]) -> Ints:
        """Return the deviance of each of some predictions, as integers."""
        targets = part.targets.astype(np.float64)

        def terms(where: slice) -> Floats:
            return np.stack([self.kind.deviances(targets[where], each[where]) for each in means], axis=1)

        return sums.summed(len(part), len(means), terms)

    def _derived(self, beta: Floats, tensors: Tensors, own: Owns) -> Asked[dict[str, Any]]:
        """Ask for the information, the score, the deviance and Pearson's statistic of a model."""
        width = self.width
        upper = np.triu_indices(width)
        terms = len(upper[0]) + width + 2
        total = yield Question(lambda peer: self._terms(own(peer).train, beta, upper, terms), size=sums.size(terms))
        values = sums.numbers(total)
        information = symmetric(values[: len(upper[0])], size=width)
        score, (deviance, pearson) = values[len(upper[0]) : -2], values[-2:].tolist()
        penalty = self._penalty()
        samples = float(tensors["samples"][0])
        if self.chosen == "binomial" and deviance < SEPARATED * samples:
            raise LearningError(
                "the features separate the two classes perfectly, so the coefficients grow without bound; set "
                "model.options.ridge, or leave out the feature that tells the class"
            )
        return {
            "information": information + np.diag(penalty),
            "score": score - penalty * beta,
            "deviance": deviance,
            "pearson": pearson,
            "objective": deviance + added(penalty * beta * beta),
        }

    def _terms(self, part: Part, beta: Floats, upper: tuple[Ints, Ints], terms: int) -> Ints:
        """Return what the samples of a peer add, as integers."""
        targets = part.targets.astype(np.float64)

        def each(where: slice) -> Floats:
            design, own = self._design(part.features[where]), targets[where]
            means = self.kind.means(self._predictor(beta, part.features[where]))
            weighted = design * self.kind.weights(means)[:, None]
            residuals = self.kind.residuals(own, means)
            squares = (own - means) ** 2 / np.maximum(self.kind.variances(means), np.finfo(np.float64).tiny)
            return np.concatenate(
                [
                    weighted[:, upper[0]] * design[:, upper[1]],
                    design * residuals[:, None],
                    self.kind.deviances(own, means)[:, None],
                    np.minimum(squares, 2.0**90)[:, None],
                ],
                axis=1,
            )

        return sums.summed(len(part), terms, each)

    def _shortened(self, beta: Floats, tensors: Tensors, own: Owns) -> Asked[Floats]:
        """Return the best model on the way of the last step, which was too long."""
        step = tensors["step"]
        tried = [beta - step * (1 - 0.5**power) for power in range(1, HALVINGS + 1)]

        def compared(peer: str) -> Ints:
            part = own(peer).train
            return self._compared(part, [self.kind.means(self._predictor(each, part.features)) for each in tried])

        total = yield Question(compared, size=sums.size(HALVINGS))
        penalty = self._penalty()
        objectives = sums.numbers(total) + np.array([added(penalty * each * each) for each in tried])
        return tried[int(objectives.argmin())]

    def _step(self, beta: Floats, found: dict[str, Any], tensors: Tensors) -> Outcome:
        """Return the model after a step, with the covariance before it."""
        covariance, dependent = self._inverse(found["information"])
        step = times(covariance, found["score"])
        decrement = abs(added(step * found["score"]))
        samples, free, taken = float(tensors["samples"][0]), self.width - len(dependent), tensors["steps"][0]
        moments = tensors["moments"] if taken else self._moments(found["information"], tensors)
        before = float(tensors["decrement"][0]) if taken else None
        endless = unbounded(step, moments, decrement=decrement, before=before)
        if endless is not None and self.kind.bounded:
            raise LearningError(
                f"the likelihood has no maximum, because feature {endless} separates some targets from all others, so "
                "its coefficient grows without bound; set model.options.ridge, merge rare levels, or leave out the "
                "feature"
            )
        stalled = taken > 0 and decrement < 1e-12 and decrement > 0.25 * tensors["decrement"][0]
        converged = decrement <= DECREMENT * max(1.0, abs(found["deviance"])) or bool(stalled)
        dispersion = self._dispersion(found["pearson"], freedom=samples - free)
        after = beta if converged else beta + step
        given = {
            "weight": after[None, : self.features],
            "bias": after[-1:] if self.fit_intercept else np.zeros(1),
            "step": step,
            "covariance": covariance * dispersion,
            "moments": moments,
            "objective": found["objective"],
            "deviance": found["deviance"],
            "dispersion": dispersion,
            "decrement": decrement,
            "steps": taken + (not converged),
            "converged": float(converged),
        }
        new = {name: np.atleast_1d(np.asarray(value, np.float64)) for name, value in given.items()}
        return Outcome({**tensors, **new}, found["deviance"] / samples, over=converged)

    def _inverse(self, information: Floats) -> tuple[Floats, list[int]]:
        """Return the inverse and the dependent columns; the intercept comes first, so that features depend on it."""
        order = np.roll(np.arange(self.width), int(self.fit_intercept))
        found, dependent = inverse(information[np.ix_(order, order)])
        back = np.argsort(order)
        return found[np.ix_(back, back)], [int(order[column]) for column in dependent]

    def _moments(self, information: Floats, tensors: Tensors) -> Floats:
        """Return the sums of products of features, which are the first information but for its constant weight."""
        mean = float(tensors["mean"][0]) if self.fit_intercept else float(self.kind.means(np.zeros(1))[0])
        weight = float(self.kind.weights(np.array([mean]))[0])
        return (information - np.diag(self._penalty())) / max(weight, 2.0**-50)

    def _dispersion(self, pearson: float, *, freedom: float) -> float:
        """Return the estimate of the dispersion; not a number where a ridge alone makes the model unique."""
        if not self.kind.dispersed:
            return 1.0
        if freedom > 0:
            return pearson / freedom
        if self.ridge:
            return math.nan
        raise LearningError(
            "there are no more samples than coefficients, so the model repeats the data and has no standard errors; "
            "use fewer features, or set model.options.ridge"
        )


class Linear(nn.Module):
    """Linear predictor: features in, logits or predicted means out.

    Parameters
    ----------
    features
        Number of features.
    family
        Family.
    shapes
        Shapes of further tensors of the model, which predictions do not need.

    Examples
    --------
    >>> Linear(2, family="binomial")(torch.zeros(3, 2)).tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """

    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(self, features: int, *, family: str, shapes: dict[str, tuple[int, ...]] | None = None) -> None:
        super().__init__()
        self.family = family
        every: dict[str, tuple[int, ...]] = {"weight": (1, features), "bias": (1,)} | (shapes or {})
        for name, shape in every.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits ``[n, 2]``, or predicted means ``[n, 1]``, for features ``[n, F]``."""
        predictor = features.flatten(1).double() @ self.weight.T + self.bias  # [n, 1]
        if self.family == "binomial":
            return torch.cat([torch.zeros_like(predictor), predictor], dim=1)
        return predictor if self.family == "gaussian" else predictor.exp()
