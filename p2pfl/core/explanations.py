"""Importances of features in trees, and coefficients of regressions.

These classes are part of ``summary.json``, so they import neither torch nor numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MANY_CLUSTERS = 40
"""Clusters from which on errors of clusters are close to their limit (Cameron and Miller, 2015)."""

ROBUST_NOTE = "Standard errors are robust to another variance than that of the family ({})."
POOLED_NOTE = "Each peer made estimates by itself, which are pooled with {} effects."
HIDDEN_NOTE = (
    "No peer's estimate is shown; model.options.shown_sites names peers whose estimates are, for a forest plot."
)

ERROR_NOTES = {
    "robust": "Standard errors are robust: they follow from the score residuals of the samples.",
    **{name: ROBUST_NOTE.format(name) for name in ("HC0", "HC1")},
    **{name: POOLED_NOTE.format(name) for name in ("random", "fixed")},
}
"""Notes on kinds of standard errors."""

MAX_EXPONENT = 700.0
"""Largest number whose exponential is stated."""


@dataclass(frozen=True)
class FeatureImportance:
    """Importance of a feature of trees.

    Attributes
    ----------
    name
    importance
        Share of the gain, as ``feature_importances_`` of scikit-learn for forests.
    total_gain
        As in XGBoost.
    weight
        Number of splits, as in XGBoost.
    """

    name: str
    importance: float
    total_gain: float
    weight: int


@dataclass(frozen=True)
class FittedCoefficient:
    """Coefficient of a regression with its 95 % interval.

    Attributes
    ----------
    name
        Feature; with more than two classes after the name of the class.
    estimate
        Null for a feature that others determine.
    error
    z
        Wald's statistic; with degrees of freedom, it has a t distribution.
    p
        Two-sided.
    low, high
        95 % interval.
    """

    name: str
    estimate: float | None
    error: float | None = None
    z: float | None = None
    p: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def intercept(self) -> bool:
        """True for an intercept, or a threshold of ordered classes."""
        return self.name.endswith("(intercept)") or self.name.startswith("(threshold)")

    @property
    def ratio(self) -> tuple[float | None, float | None, float | None]:
        """Exponential of the estimate and of the ends of its interval; nothing of an intercept.

        Examples
        --------
        >>> FittedCoefficient("smoke", 0.0).ratio
        (1.0, None, None)
        """
        if self.intercept:
            return None, None, None
        return _exponential(self.estimate), _exponential(self.low), _exponential(self.high)


def _exponential(value: float | None) -> float | None:
    """Return an exponential; ``None`` where it is no finite number."""
    return None if value is None or value > MAX_EXPONENT else math.exp(value)


@dataclass(frozen=True)
class FittedTest:
    """Test of proportional hazards, of a column or of all of them; or of one effect at all peers.

    Attributes
    ----------
    name
    statistic
        Chi-square.
    freedom
    p
    """

    name: str
    statistic: float
    freedom: int
    p: float


@dataclass(frozen=True)
class SiteFit:
    """Estimates of a peer by itself, which a meta-analysis pools.

    Attributes
    ----------
    peer
    estimates
        By coefficient; null where the peer has none.
    errors
        Their standard errors.
    """

    peer: str
    estimates: tuple[float | None, ...]
    errors: tuple[float | None, ...]


@dataclass(frozen=True)
class FittedRegression:
    """Regression that has converged.

    Attributes
    ----------
    model
    coefficients
        In the order of the features, the intercept last.
    facts
        Further numbers, such as ``deviance``, ``aic`` and ``steps``.
    errors
        Standard errors: ``likelihood``, ``HC0``, ``HC1``, ``robust`` (``cox``), ``cluster``, ``random`` or ``fixed``
        effects of peers, ``posterior`` (ridge), ``private`` (with private noise) or ``none``.
    path
        Penalties of a lasso, with numbers of coefficients and deviances.
    freedom
        Degrees of freedom of t in tests and intervals; null where estimates are normal.
    ratio
        Meaning of the exponential of a coefficient, such as ``odds ratio``; empty where it has none.
    tests
        Of proportional hazards (``cox``), by column and of all, or of heterogeneity between peers (``meta_analysis``).
    sites
        Estimates of the peers that show theirs in a ``meta_analysis``.
    """

    model: str
    coefficients: tuple[FittedCoefficient, ...]
    facts: Mapping[str, float | None]
    errors: str
    path: tuple[Mapping[str, float], ...] = ()
    freedom: float | None = None
    ratio: str = ""
    tests: tuple[FittedTest, ...] = ()
    sites: tuple[SiteFit, ...] = ()

    def results(self) -> dict[str, Any]:
        """Return the fit as JSON values."""
        coefficients = [asdict(each) for each in self.coefficients]
        if self.ratio:
            names = ("ratio", "ratio_low", "ratio_high")
            for row, each in zip(coefficients, self.coefficients, strict=True):
                row |= dict(zip(names, each.ratio, strict=True))
        more: dict[str, Any] = {"freedom": self.freedom, "ratio": self.ratio or None}
        path = {"path": [dict(each) for each in self.path]} if self.path else {}
        tests = {"tests": [asdict(each) for each in self.tests]} if self.tests else {}
        sites = {"sites": [asdict(each) for each in self.sites]} if self.sites else {}
        more |= path | tests | sites
        return {"model": self.model, "errors": self.errors, "coefficients": coefficients, **self.facts, **more}

    @property
    def size(self) -> str:
        """Number of samples in words, with that of samples which are held out where it is known.

        Examples
        --------
        >>> FittedRegression("glm", (), {"samples": 189.0, "held_out": 0.0}, errors="likelihood").size
        'n = 189, 0 held out'
        """
        held = self.facts.get("held_out")
        return f"n = {self.facts.get('samples') or 0:.0f}" + ("" if held is None else f", {held:.0f} held out")

    @property
    def references(self) -> tuple[str, ...]:
        """Names of the levels with which the others of their column are compared: each the one without an estimate.

        Examples
        --------
        >>> one, other = FittedCoefficient("sex: f", None), FittedCoefficient("sex: m", 0.5)
        >>> twin = FittedCoefficient("twin", None)
        >>> FittedRegression("glm", (one, other, twin), {}, errors="likelihood").references
        ('sex: f',)
        """
        columns: dict[str, list[FittedCoefficient]] = {}
        for each in self.coefficients:
            columns.setdefault(each.name.rpartition(": ")[0], []).append(each)
        columns.pop("", None)
        lacking = [[each.name for each in levels if each.estimate is None] for levels in columns.values()]
        lone = [names for names, levels in zip(lacking, columns.values(), strict=True) if len(levels) > len(names) == 1]
        return tuple(name for [name] in lone)

    def notes(self) -> list[str]:
        """Return sentences on what the coefficients lack."""
        notes = []
        if any(each.estimate is None and each.name not in self.references for each in self.coefficients):
            notes.append("No estimate: the features above determine it, so it has no coefficient of its own.")
        if self.errors == "none":
            notes.append("No standard errors: the lasso selects features, which no usual test accounts for.")
        elif any(each.estimate is not None and each.error is None for each in self.coefficients):
            notes.append("No standard errors: there are no more samples than coefficients.")
        elif self.errors == "private":
            notes.append("Standard errors and intervals include the private noise.")
            if (self.facts.get("ridge") or 0.0) > 0:
                notes.append("The noise requires a ridge, which shrinks estimates, so there are no tests.")
        elif self.errors in ERROR_NOTES:
            notes.append(ERROR_NOTES[self.errors])
            if self.errors in {"random", "fixed"} and not self.sites:
                notes.append(HIDDEN_NOTE)
        elif self.errors == "cluster":
            clusters = self.facts.get("clusters") or 0
            few = (
                f", which are few: below {MANY_CLUSTERS} they tend to be too small" if clusters < MANY_CLUSTERS else ""
            )
            notes.append(f"Standard errors are robust to dependence within the {clusters:.0f} clusters{few}.")
        elif self.errors == "posterior":
            notes.append(
                "The ridge penalty shrinks estimates. Standard errors and intervals are those of the posterior with "
                "the penalty as a normal prior, so there are no tests."
            )
        return notes


@dataclass(frozen=True)
class Explained:
    """Importances of trees, or the coefficients of a regression.

    Attributes
    ----------
    importances
        Features that split a node, the most important first.
    regression
    """

    importances: tuple[FeatureImportance, ...] = ()
    regression: FittedRegression | None = None


def finite(facts: Mapping[str, float]) -> dict[str, float | None]:
    """Return facts with ``None`` for those that are not a number.

    Examples
    --------
    >>> finite({"aic": float("nan"), "steps": 5.0})
    {'aic': None, 'steps': 5.0}
    """
    return {key: None if math.isnan(value) else value for key, value in facts.items()}
