"""Tests of regressions: tails of their distributions, facts of a fit, and tests between nested models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import InputError
from p2pfl.core.explanations import FittedRegression

REACH = 1.959963984540054
"""Standard errors from an estimate to the end of its 95 % interval, where the estimate is normal."""

CLOSE = 1e-9
"""Share by which the null deviances of models of the same targets differ at most."""


def two_sided(statistic: float, freedom: float | None) -> float:
    """Return the two-sided p-value of Wald's statistic: normal, or of t with some degrees of freedom.

    Examples
    --------
    >>> round(two_sided(1.96, None), 4), round(two_sided(1.96, 10.0), 4)
    (0.05, 0.0784)
    """
    if freedom is None:
        return math.erfc(abs(statistic) / math.sqrt(2))
    return float(scipy.special.betainc(freedom / 2, 0.5, freedom / (freedom + statistic * statistic)))


def reach_of(freedom: float | None) -> float:
    """Return how many standard errors a 95 % interval reaches to each side.

    Examples
    --------
    >>> round(reach_of(None), 4), round(reach_of(10.0), 4)
    (1.96, 2.2281)
    """
    if freedom is None:
        return REACH
    share = float(scipy.special.betaincinv(freedom / 2, 0.5, 0.05))
    return math.sqrt(freedom * (1 - share) / share)


def f_tail(statistic: float, above: float, below: float) -> float:
    """Return the p-value of an F statistic with degrees of freedom of its numerator and denominator.

    Examples
    --------
    >>> round(f_tail(4.0, 1, 10), 4)
    0.0734
    """
    return float(scipy.special.betainc(below / 2, above / 2, below / (below + above * statistic)))


def chi_squared_tail(statistic: float, freedom: float) -> float:
    """Return the p-value of a chi-squared statistic.

    Examples
    --------
    >>> round(chi_squared_tail(3.841459, 1), 4)
    0.05
    """
    return float(scipy.special.gammaincc(freedom / 2, max(statistic, 0.0) / 2))


def with_criteria(facts: Mapping[str, float], likelihood: float, *, parameters: int) -> dict[str, float]:
    """Return facts with the log-likelihood, and the criteria of Akaike and of Schwarz."""
    criteria = {"aic": 2 * parameters - 2 * likelihood}
    criteria["bic"] = parameters * math.log(facts["samples"]) - 2 * likelihood
    return {**facts, "log_likelihood": likelihood, "parameters": parameters, **criteria}


def with_global_test(
    facts: Mapping[str, float], *, used: int, intercepts: int, dispersed: bool, linear: bool
) -> dict[str, float]:
    r"""Return facts with the test of all coefficients but the intercept, and with the shares of variance explained.

    With D the deviance, :math:`D_0` that of a constant, p coefficients and n samples, linear models have

    .. math:: R^2 = 1 - \frac{D}{D_0}, \qquad \bar R^2 = 1 - (1 - R^2) \frac{n - 1}{n - p}, \qquad
              F = \frac{(D_0 - D) / (p - 1)}{D / (n - p)}

    and families without a dispersion the statistic :math:`D_0 - D` of the likelihood ratio.

    Parameters
    ----------
    facts
        Numbers of the fit.
    used, intercepts
        p, the number of coefficients, and how many of them are intercepts.
    dispersed, linear
        True if a dispersion is estimated; and if the model is linear with normal errors.
    """
    samples, gain = facts["samples"], facts["null_deviance"] - facts["deviance"]
    freedom, below = used - intercepts, samples - used
    if linear and below > 0 and facts["null_deviance"] > 0:
        share = 1 - facts["deviance"] / facts["null_deviance"]
        explained = {"r2": share, "adjusted_r2": 1 - (1 - share) * (samples - 1) / below}
        if not freedom or not facts["deviance"] > 0:
            return {**facts, **explained}
        statistic = (gain / freedom) / (facts["deviance"] / below)
        test = {"f": statistic, "f_freedom": freedom, "f_p": f_tail(statistic, freedom, below)}
        return {**facts, **explained, **test}
    if dispersed or not freedom:
        return {**facts}
    return {**facts, "chi2": gain, "chi2_freedom": freedom, "chi2_p": chi_squared_tail(gain, freedom)}


def used_coefficients(covariance: Floats) -> int:
    """Return the number of coefficients that no others determine."""
    return int((np.diag(covariance) > 0).sum())


@dataclass(frozen=True)
class NestedTest:
    """Test of the coefficients that a model has and a smaller one lacks.

    Attributes
    ----------
    lacking
        Names of the coefficients that only the larger model has.
    chi2, freedom, p
        Statistic of the likelihood ratio, its degrees of freedom and p-value.
    f, below, f_p
        F statistic of the deviances, the degrees of freedom of its denominator, and its p-value, with a dispersion.
    """

    lacking: tuple[str, ...]
    chi2: float
    freedom: int
    p: float
    f: float | None = None
    below: float | None = None
    f_p: float | None = None

    def results(self) -> dict[str, Any]:
        """Return the test as JSON values."""
        return asdict(self)

    def sentence(self) -> str:
        """Return the test in words."""
        noun = "degree" if self.freedom == 1 else "degrees"
        ratio = f"likelihood ratio {self.chi2:.6g} on {self.freedom} {noun} of freedom, p {_shown(self.p)}"
        if self.f is None or self.f_p is None:
            return ratio
        return (
            f"F {self.f:.6g} on {self.freedom} and {self.below:.0f} degrees of freedom, p {_shown(self.f_p)}; {ratio}"
        )


def compare_nested(one: FittedRegression, other: FittedRegression) -> NestedTest:
    r"""Return the test between two models of the same samples, of which one has all coefficients of the other.

    The statistic of the likelihood ratio is :math:`2 (\ell_1 - \ell_0)`. With an estimated dispersion
    :math:`\phi` of the larger model, :math:`F = (D_0 - D_1) / (q \phi)` for q further coefficients is R's
    ``anova(..., test = "F")``.

    Raises
    ------
    InputError
        The models are not nested, are of different samples, or have no likelihood.
    """
    small, large = sorted([one, other], key=lambda each: each.facts.get("parameters") or 0.0)
    needed = ("log_likelihood", "parameters", "deviance", "null_deviance", "samples")
    values = [[model.facts.get(key) for key in needed] for model in (small, large)]
    if any(value is None for each in values for value in each):
        raise InputError(
            "a model without a likelihood, such as a lasso or one with a ridge, has no likelihood ratio; compare two "
            "of glm without a ridge"
        )
    (likelihood, fewer, deviance, null, samples), (higher, more, least, other_null, others) = (
        [float(value or 0.0) for value in each] for each in values
    )
    if samples != others or abs(null - other_null) > CLOSE * max(abs(null), abs(other_null)):
        raise InputError(
            f"the models have other samples or targets (n = {samples:.0f} and {others:.0f}, null deviances {null:.6g} "
            f"and {other_null:.6g}); fit both to the same rows"
        )
    names = [[each.name for each in model.coefficients if each.estimate is not None] for model in (small, large)]
    lacking = tuple(name for name in names[1] if name not in names[0])
    freedom = int(more - fewer)
    if not {*names[0]} < {*names[1]} or freedom < 1:
        only = ", ".join(sorted({*names[0]} - {*names[1]})) or "no coefficient of its own"
        raise InputError(
            f"the models are not nested, because the smaller one has {only}; compare with one that has all"
        )
    chi2 = 2 * (higher - likelihood)
    test = NestedTest(lacking, chi2, freedom, chi_squared_tail(chi2, freedom))
    if large.freedom is None:
        return test
    dispersion = float(large.facts.get("dispersion") or 0.0)
    below = others - (more - 1)
    statistic = (deviance - least) / freedom / dispersion
    return NestedTest(test.lacking, chi2, freedom, test.p, statistic, below, f_tail(statistic, freedom, below))


def _shown(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"= {p:.4f}"
