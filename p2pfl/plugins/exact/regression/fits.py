"""Fits of regressions: limits of what totals show, convergence, and tables of coefficients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.explanations import Explained, FittedCoefficient, FittedRegression, finite
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field
from p2pfl.data.tables.formula import leaves_knots_open
from p2pfl.learning.exact_model import Asked, Own, Owns, Round, Tensors
from p2pfl.learning.small_cells import AgreedCheck, CellCheck
from p2pfl.plugins.exact.design_cells import Design
from p2pfl.plugins.exact.elementary import added, times
from p2pfl.plugins.exact.regression.inference import reach_of, two_sided
from p2pfl.plugins.exact.spline_columns import SHOWN, SplineColumns
from p2pfl.plugins.exact.tensor_model import DEFAULT_LEAST, TensorModel

DECREMENT = 1e-22
"""A model is final where a step would change the log-likelihood or the deviance by less than this share."""

UNKNOWN = -1.0
"""Number of samples that are held out where all peers hold out the same ones."""


def shown_knots(options: Mapping[str, Any]) -> str:
    """Return what totals show for the knots of a formula."""
    return SHOWN if leaves_knots_open(str(options.get("formula", ""))) else ""


@dataclass(frozen=True, kw_only=True)
class LikelihoodModel(TensorModel):
    """Model of largest likelihood, with limits of what its totals may show.

    Parameters
    ----------
    ridge
        Half of this times the squared norm of the coefficients is added to the negative log-likelihood.
    least
        Least number of samples of whatever a total singles out, such as a level; 1 if a single one may be shown. A peer
        with fewer training samples takes no part.
    merge
        ``rare`` to merge levels with fewer samples; they then have one coefficient. ``""`` to refuse them.
    coefficients_per_sample
        Largest number of coefficients for each sample of all peers; with more, totals would be close to the data.
    fields
        Columns of the table that the features come from; ``None`` if there is none.
    owned
        True if peers own their data, so that the samples that each holds out add up.
    """

    traits: ClassVar[ModelTraits] = ModelTraits(converges=True, test=0.0, command="coefficients")
    places_knots: ClassVar[bool] = True

    features: int
    ridge: float = 0.0
    least: int = DEFAULT_LEAST
    merge: str = ""
    coefficients_per_sample: float = 0.33
    fields: tuple[Field, ...] | None = None
    owned: bool = False

    @property
    def alone(self) -> Self:
        """The model without limits, for a peer that learns alone and shows its totals to nobody."""
        return replace(self, least=1, coefficients_per_sample=math.inf)

    def held_out(self, own: Own) -> int:
        """Return the number of samples that a peer holds out; 0 where all peers hold out the same ones."""
        return len(own.test) if self.owned and own.test is not None else 0

    @property
    def merges_levels(self) -> bool:
        """True if levels with few samples are merged."""
        return self.merge == "rare"

    @property
    def merges(self) -> bool:
        """True if the check of small cells may merge them."""
        return self.merges_levels or super().merges

    @property
    def design_columns(self) -> Design:
        """Columns that have coefficients."""
        return Design.of(self.features, self.fields)

    @cached_property
    def splines(self) -> SplineColumns:
        """Splines whose knots follow from totals."""
        return SplineColumns.of(self.features, self.fields)

    def start(self) -> Tensors:
        """Return the model with zero coefficients, no level merged and no knot placed."""
        levels = {"levels": np.arange(self.features, dtype=np.float64)} if self.merges_levels else {}
        return {**super().start(), **levels, **self.splines.start}

    def agree(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[tuple[Tensors, AgreedCheck[Own]]]:
        """Return the model with its knots, and the check of the samples with the values of splines."""
        agreed = yield from check.agree()
        if not self.splines.known(tensors):
            tensors = yield from self.splines.ask(tensors, agreed.own, least=agreed.least)
        return tensors, replace(agreed, own=self.splines.own(tensors, agreed.own))

    def advance(self, tensors: Tensors, own: Owns) -> Round:
        """Run one round on the values of splines, and on merged levels.

        Those have one coefficient during the round and equal ones after it.
        """
        if not self.splines.known(tensors):  # no check of cells has placed them
            tensors = yield from self.splines.ask(tensors, own, least=self.least)
        own = self.splines.own(tensors, own)
        if not self.merges_levels:
            return (yield from self.round(tensors, own))
        design = self.design_columns.merging(tensors["levels"])
        first = design.levels == np.arange(self.features)
        outcome = yield from self.round({**tensors, "weight": tensors["weight"] * first}, design.own(own))
        return replace(outcome, tensors={**outcome.tensors, "weight": outcome.tensors["weight"][:, design.levels]})

    def merged_labels(self, labels: Sequence[str], tensors: Tensors) -> list[str]:
        """Return names of features that say which levels are merged."""
        if not self.merges_levels:
            return [*labels]
        levels = tensors["levels"].astype(np.int64)
        alike = [np.flatnonzero(levels == index).tolist() for index in range(len(labels))]
        return [
            "+".join([label, *(labels[other].partition(": ")[2] for other in others[1:])])
            for label, others in zip(labels, alike, strict=True)
        ]

    def check_limits(self) -> None:
        """Refuse limits without effect, and a ridge penalty that is negative or not finite.

        Raises
        ------
        ModelError
            One of them is.
        """
        if not 0 <= self.ridge < math.inf:
            raise ModelError(f"model.options.ridge is {self.ridge}; set it to a finite value of at least 0")
        if self.least < 1 or not self.coefficients_per_sample > 0:
            raise ModelError(
                f"model.options.least = {self.least} and coefficients_per_sample = {self.coefficients_per_sample} "
                "allow no model; set least to at least 1 and coefficients_per_sample above 0"
            )
        if self.merge not in {"", "rare"}:
            raise ModelError(f'model.options.merge is "{self.merge}"; set it to "rare", or leave it out')

    def check_coefficients(self, coefficients: int, samples: int) -> None:
        """Refuse a model with many coefficients for the samples of all peers.

        Raises
        ------
        LearningError
            There are too many.
        """
        if coefficients > self.coefficients_per_sample * samples:
            raise LearningError(
                f"{coefficients} coefficients for the {samples} samples of all peers are more than "
                f"model.options.coefficients_per_sample = {self.coefficients_per_sample} allows, so the totals would "
                "be close to the data; use fewer features or more samples"
            )


def coefficients(
    beta: Floats,
    covariance: Floats,
    names: Sequence[str],
    *,
    penalised: bool = False,
    freedom: float | None = None,
) -> list[FittedCoefficient]:
    """Return coefficients with standard errors, Wald's tests and intervals.

    Parameters
    ----------
    beta
        ``[p]``.
    covariance
        ``[p, p]``; the row of a coefficient that others determine is zero.
    names
        Names of the p coefficients.
    penalised
        True if the covariance is that of a posterior, for which there are no tests.
    freedom
        Degrees of freedom of t; ``None`` where estimates are normal.

    Examples
    --------
    >>> [row] = coefficients(np.array([1.96]), np.array([[1.0]]), ["age"])
    >>> round(row.p, 3), round(row.low, 3)
    (0.05, 0.0)
    """
    rows, reach = [], reach_of(freedom)
    for name, estimate, variance in zip(names, beta.tolist(), np.diag(covariance).tolist(), strict=True):
        if math.isnan(variance):
            rows.append(FittedCoefficient(name, estimate))
            continue
        if not variance > 0:
            rows.append(FittedCoefficient(name, None))
            continue
        error = math.sqrt(variance)
        z = None if penalised else estimate / error
        p = None if z is None else two_sided(z, freedom)
        rows.append(FittedCoefficient(name, estimate, error, z, p, estimate - reach * error, estimate + reach * error))
    return rows


@dataclass(frozen=True, eq=False)
class NewtonStep:
    """Step towards the largest likelihood.

    Attributes
    ----------
    step
        Change of the coefficients, ``[p]``.
    decrement
        What it gains.
    converged
        True if it would change nothing, or only rounding does.
    endless
        Number of a coefficient that grows without bound; ``None`` if all of them end somewhere.
    """

    step: Floats
    decrement: float
    converged: bool
    endless: int | None


def newton(
    covariance: Floats, score: Floats, moments: Floats, *, before: float | None, size: float, slowest: float = 0.25
) -> NewtonStep:
    """Return a step of Newton's method.

    Parameters
    ----------
    covariance, score
        Inverse of the information ``[p, p]``, and first derivatives ``[p]``.
    moments
        Sums of products of the features ``[p, p]``.
    before
        Gain of the step before; ``None`` before the first one.
    size
        Log-likelihood or deviance, in units of which gains are small.
    slowest
        Gain as a share of the one before, beyond which small steps are rounding: Newton's method squares the distance.
    """
    step = times(covariance, score)
    decrement = abs(added(step * score))
    stalled = before is not None and decrement < 1e-12 and decrement > slowest * before
    converged = decrement <= DECREMENT * max(1.0, abs(size)) or stalled
    return NewtonStep(step, decrement, converged, unbounded(step, moments, decrement=decrement, before=before))


def unbounded(step: Floats, moments: Floats, *, decrement: float, before: float | None) -> int | None:
    r"""Return the number of a coefficient that grows without bound; ``None`` if all of them end somewhere.

    Where a maximum exists, a step of Newton's method squares the distance that is left. Where coefficients run away
    (complete or quasi-complete separation, monotone likelihood), each step moves the predictors of some samples by
    about 1, and what can still be gained falls by the factor e.

    Parameters
    ----------
    step
        Last step ``[p]``.
    moments
        Sums of products of the features ``[p, p]``, so that :math:`s^T M s` is by how much all predictors move.
    decrement, before
        Gain of this step and of the one before; ``None`` before the first one.

    References
    ----------
    Albert and Anderson, On the existence of maximum likelihood estimates in logistic regression models, Biometrika 71,
    1984.
    """
    if before is None or not (decrement < 1e-6 and decrement > 0.25 * before):
        return None
    if not added(step * times(moments, step)) > 1e-2:
        return None
    return int((np.abs(step) * np.sqrt(np.maximum(np.diag(moments), 0.0))).argmax())


def converged(tensors: Tensors, keys: Sequence[str]) -> dict[str, float] | None:
    """Return some numbers of a fit, ``converged`` among them; ``None`` if it has not converged."""
    facts = {key: float(tensors[key][0]) for key in keys}
    if facts.get("held_out") == UNKNOWN:
        del facts["held_out"]
    return facts if facts["converged"] else None


def with_errors(
    model: str,
    beta: Floats,
    tensors: Tensors,
    labels: Sequence[str],
    facts: Mapping[str, float],
    *,
    ridge: float,
    errors: str | None = None,
    freedom: float | None = None,
    ratio: str = "",
) -> Explained:
    """Return coefficients with standard errors from the tensor ``covariance``.

    Parameters
    ----------
    model
        Name of the model.
    beta, labels
        Coefficients and their names.
    tensors, facts
        Tensors of the model, and further numbers to print.
    ridge
        Penalty.
    errors
        Kind of the standard errors; by default ``posterior`` with a penalty, else ``likelihood``.
    freedom
        Degrees of freedom of t; ``None`` where estimates are normal.
    ratio
        Meaning of the exponential of a coefficient; empty where it has none.
    """
    kind = errors or ("posterior" if ridge > 0 else "likelihood")
    listed = tuple(coefficients(beta, tensors["covariance"], labels, penalised=ridge > 0, freedom=freedom))
    fitted = FittedRegression(model, listed, finite(facts), errors=kind, freedom=freedom, ratio=ratio)
    return Explained(regression=fitted)


def path_of(
    model: str, beta: Floats, tensors: Tensors, labels: Sequence[str], facts: Mapping[str, float], *, intercept: bool
) -> Explained:
    """Return the coefficients of a chosen penalty, and the path of penalties.

    A validation deviance is left out where there were no such data.
    """
    path = []
    columns = (tensors[key].tolist() for key in ("penalties", "deviances", "validation"))
    for each, penalty, deviance, validation in zip(tensors["path"], *columns, strict=True):
        used = int((each[: len(each) - intercept] != 0).sum())
        step = {"lambda": penalty, "features": used, "deviance": deviance}
        path.append(step if math.isnan(validation) else step | {"validation": validation})
    listed = tuple(FittedCoefficient(label, value) for label, value in zip(labels, beta.tolist(), strict=True))
    return Explained(regression=FittedRegression(model, listed, finite(facts), errors="none", path=tuple(path)))
