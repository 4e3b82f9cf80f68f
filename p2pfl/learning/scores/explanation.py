"""Explanations of models by their features: importances of trees, and coefficients of regressions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import torch


@dataclass(frozen=True)
class Importance:
    """Importance of a feature of trees.

    Attributes
    ----------
    name
        Name of the feature.
    importance
        Share of the gain of all splits: of boosting, of their sum; of a forest, the mean over its trees of the share of
        each, as ``feature_importances_`` of scikit-learn.
    total_gain
        Sum of the gains of its splits, as XGBoost calls it.
    weight
        Number of its splits, as XGBoost calls it.
    """

    name: str
    importance: float
    total_gain: float
    weight: int


@dataclass(frozen=True)
class Coefficient:
    """Coefficient with its 95 % interval.

    Attributes
    ----------
    name
        Name of the feature.
    estimate, error
        Estimate and standard error; both are ``None`` for a feature that others determine, and the error alone is where
        there are no more samples than coefficients.
    z, p
        Statistic of Wald's test, and its two-sided p-value; ``None`` under a penalty, which makes estimates biased.
    low, high
        Interval.
    """

    name: str
    estimate: float | None
    error: float | None = None
    z: float | None = None
    p: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Fit:
    """A regression.

    Parameters
    ----------
    model
        Name of the model.
    coefficients
        Coefficients in the order of the features, the intercept last.
    facts
        Further numbers by name; ``None`` for one that is not a number.
    errors
        Kind of the standard errors: those of the ``likelihood``, or of the ``posterior`` under a ridge penalty;
        ``none`` of the lasso; ``private`` where they include private noise.
    path
        Penalties of a path with the numbers of coefficients that are not zero, and deviances.
    """

    model: str
    coefficients: tuple[Coefficient, ...]
    facts: Mapping[str, float | None]
    errors: str = "likelihood"
    path: tuple[Mapping[str, float], ...] = ()

    def results(self) -> dict[str, Any]:
        """Return the fit as JSON values."""
        found = [asdict(each) for each in self.coefficients]
        given = {"path": [dict(each) for each in self.path]} if self.path else {}
        return {"model": self.model, "errors": self.errors, "coefficients": found, **self.facts, **given}


def finite(facts: Mapping[str, float]) -> dict[str, float | None]:
    """Return facts with ``None`` for those that are not a number.

    Examples
    --------
    >>> finite({"aic": float("nan"), "steps": 5.0})
    {'aic': None, 'steps': 5.0}
    """
    return {key: None if math.isnan(value) else value for key, value in facts.items()}


@dataclass(frozen=True)
class Explanation:
    """Explanation of a model by its features.

    Attributes
    ----------
    importances
        Features of trees that split a node, the most important first.
    regression
        Coefficients; ``None`` of a model without them.
    """

    importances: tuple[Importance, ...] = ()
    regression: Fit | None = None


@runtime_checkable
class Explains(Protocol):
    """A learner whose models say something of their features."""

    def explained(self, row: torch.Tensor) -> Explanation | None:
        """Return what a model ``[P]`` says of its features; ``None`` if that is nothing."""
        ...
