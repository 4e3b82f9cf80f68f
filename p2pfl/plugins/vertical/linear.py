"""Linear models of columns of several parties, from their Gram matrix.

The solver, who is never the label holder, receives the sums of products of all columns and sends each party its own
coefficients. Columns are centred by their owners, so the intercept of the label holder is the prediction where its own
columns are zero and those of others at their means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.learning.additive import Questions
from p2pfl.plugins.exact.elementary import inverse
from p2pfl.plugins.exact.regression.families import Gaussian
from p2pfl.plugins.exact.regression.inference import with_criteria, with_global_test
from p2pfl.plugins.exact.regression.lasso import Quadratic
from p2pfl.plugins.study.semivalues import MAX_EXACT_PEERS, semivalue
from p2pfl.plugins.vertical.encrypted_products import products_of
from p2pfl.plugins.vertical.gram import Blocks, FactoredColumns, JoinedDesign, JoinedTable, ask_design, ask_gram
from p2pfl.plugins.vertical.private_messages import publish, send_floats
from p2pfl.privacy.keys import Source

FIGURES = ("deviance", "null_deviance", "used", "dispersion")
"""Numbers of a linear fit that the solver publishes."""


def check_ridge(ridge: float) -> None:
    """Refuse a penalty that is negative or not finite.

    Raises
    ------
    ModelError
        It is.
    """
    if not 0 <= ridge < math.inf:
        raise ModelError(f"model.options.ridge is {ridge}; set it to a finite value of at least 0")


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Linear model of several parties.

    Parameters
    ----------
    design
        Public shape.
    figures
        Public numbers of the fit.
    own
        ``own(peer)`` returns what a party receives: its ``coefficients`` and their ``errors`` ``[a]``, NaN for columns
        that others determine, and the share of R² that its columns explain, ``value`` ``[1]``; the label holder also
        its ``intercept`` and ``intercept_error`` ``[1]``. Private.
    """

    design: JoinedDesign
    figures: Mapping[str, float]
    own: Callable[[str], Mapping[str, Floats]]


class Moments(NamedTuple):
    """Sums of products, as the solver has them.

    Attributes
    ----------
    matrix
        Gram matrix with the target last, ``[p + 1, p + 1]``.
    design
        Public shape.
    """

    matrix: Floats
    design: JoinedDesign

    def squares(self, beta: Floats) -> float:
        """Return the sum of squared residuals."""
        size = self.design.size
        at = Quadratic(
            np.zeros(size), self.matrix[:size, :size], self.matrix[:size, size], self.matrix[size, size], 1.0
        )
        return at.deviance(beta)

    def solve(self, parties: Sequence[str], penalty: Floats) -> tuple[Floats, Floats]:
        """Return coefficients ``[p]`` and the inverse ``[p, p]`` with the columns of some parties, zero elsewhere."""
        size = self.design.size
        kept = [0]
        for party in self.design.roles.parties:
            kept += [*range(size)[self.design.where(party)]] if party in parties else []
        inner = np.ix_(kept, kept)
        whole = np.zeros((size, size))
        whole[inner], _ = inverse(self.matrix[inner] + np.diag(penalty[kept]))
        return whole @ self.matrix[:size, size], whole

    def explained(self) -> Floats:
        """Return the share of R² of each party: Shapley's value over the subsets of parties."""
        parties = self.design.roles.parties
        if len(parties) > MAX_EXACT_PEERS:
            raise LearningError(
                f"the value of columns takes all subsets of {len(parties)} parties, which are more than "
                f"{MAX_EXACT_PEERS}; leave out some"
            )
        none = np.zeros(self.design.size)
        rest = [
            self.squares(self.solve([party for bit, party in enumerate(parties) if subset >> bit & 1], none)[0])
            for subset in range(1 << len(parties))
        ]
        gains = 1 - np.array(rest) / rest[0] if rest[0] > 0 else np.zeros(len(rest))
        return semivalue(np.asarray(gains), peers=len(parties), method="shapley")


class Solution(NamedTuple):
    """Solution of a linear model, as the solver has it.

    Attributes
    ----------
    beta, covariance
        ``[p]`` and ``[p, p]``; NaN for dependent columns.
    figures
        Numbers that it publishes.
    value
        Share of R² of each party, ``[N]``.
    """

    beta: Floats
    covariance: Floats
    figures: Floats
    value: Floats


def solve_linear(moments: Moments, *, ridge: float) -> Solution:
    """Return the linear model of a Gram matrix.

    Parameters
    ----------
    moments, ridge
        Sums of products, and the penalty of :func:`fit_linear`.

    Raises
    ------
    LearningError
        There are no more rows than coefficients.
    """
    design = moments.design
    penalty = np.full(design.size, ridge)
    penalty[0] = 0.0
    beta, inverted = moments.solve(design.roles.parties, penalty)
    used = int((np.diag(inverted) > 0).sum())
    deviance, null = moments.squares(beta), moments.squares(moments.solve((), penalty)[0])
    dispersion = deviance / (design.rows - used)
    beta, covariance = without_dependent(beta, inverted * dispersion)
    return Solution(beta, covariance, np.array([deviance, null, used, dispersion]), moments.explained())


def without_dependent(beta: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Return coefficients and their covariance with NaN for columns that others determine."""
    dependent = ~(np.diag(covariance) > 0)
    beta, covariance = np.where(dependent, np.nan, beta), covariance.copy()
    covariance[dependent] = covariance[:, dependent] = np.nan
    return beta, covariance


def ask_units(blocks: Blocks, *, every: bool) -> Questions[Callable[[], Floats]]:
    """Ask for the powers of two that columns are in units of, and return the function by which the solver reads them.

    They are ``[p + 1]``, the last one of the target; 1 where the solver is not to know.

    Parameters
    ----------
    blocks
        Columns.
    every
        True if a penalty needs those of all columns; otherwise the label holder tells that of the target alone.
    """
    design, roles = blocks.design, blocks.design.roles
    read = {}
    for party in roles.parties if every else (roles.label,):
        read[party] = yield from send_floats(
            partial(_units, blocks, party, every=every),
            size=len(design.positions(party)),
            sender=party,
            to=roles.solver,
        )

    def units() -> Floats:
        whole = np.ones(design.size + 1)
        for party, values in read.items():
            whole[design.positions(party)] = values()
        return whole

    return cache(units)


def ask_moments(factored: FactoredColumns, *, every: bool) -> Questions[Callable[[], Moments]]:
    """Ask for the Gram matrix, and return the function by which the solver reads it in units that it knows.

    Parameters
    ----------
    factored
        Columns as factors of products.
    every
        As of :func:`ask_units`.
    """
    units = yield from ask_units(factored.blocks, every=every)
    gram = yield from ask_gram(factored)
    return cache(lambda: Moments(gram() * units()[:, None] * units(), factored.blocks.design))


def _units(blocks: Blocks, party: str, *, every: bool) -> Floats:
    """Return the units of a party's columns; 1 where the solver is not to know them."""
    units = np.ldexp(1.0, -blocks.of(party).exponents)
    if not every:
        units[:-1] = 1.0
    return np.asarray(units)


def fit_linear(table: JoinedTable, source: Source, *, ridge: float = 0.0) -> Questions[LinearFit]:
    """Fit a linear model, least squares or ridge, with standard errors.

    Parameters
    ----------
    table, source
        Table of all columns, and the source of secret bytes.
    ridge
        This times the squared norm of the coefficients, without the intercept, is added to the sum of squares, as
        ``alpha`` of scikit-learn's ``Ridge``.

    References
    ----------
    Du, Han and Chen, Privacy-preserving multivariate statistical analysis, SDM 2004 (sums of products of two parties).
    """
    check_ridge(ridge)
    design = yield from ask_design(table)
    blocks = Blocks(design, table)
    factored = FactoredColumns(blocks, products_of(design.roles, source, design.rows), slice(None))
    moments = yield from ask_moments(factored, every=ridge > 0)
    return (yield from finish_linear(blocks, design, moments, ridge=ridge))


def finish_linear(
    blocks: Blocks, design: JoinedDesign, moments: Callable[[], Moments], *, ridge: float
) -> Questions[LinearFit]:
    """Solve a linear model, send each party its own part, and publish the figures.

    Parameters
    ----------
    blocks, design
        Columns, and the shape of the rows that are summed.
    moments, ridge
        Function by which the solver reads the sums of products, and the penalty.
    """
    roles, every = design.roles, ridge > 0
    solved = cache(lambda: solve_linear(moments(), ridge=ridge))
    own = yield from share_out(blocks, lambda: (solved().beta, solved().covariance), every=every)
    value = {}
    for number, party in enumerate(roles.parties):
        value[party] = yield from send_floats(partial(_value_of, solved, number), size=1, sender=roles.solver, to=party)
    values = yield from publish(lambda: solved().figures, size=len(FIGURES), sender=roles.solver)
    figures = _linear_facts(dict(zip(FIGURES, values.tolist(), strict=True)), design, ridge=ridge)
    return LinearFit(design, figures, lambda party: {**own(party), "value": value[party]()})


def _value_of(solved: Callable[[], Solution], number: int) -> Floats:
    return solved().value[number : number + 1]


def _linear_facts(facts: dict[str, float], design: JoinedDesign, *, ridge: float) -> dict[str, float]:
    """Return the published numbers with the tests that follow from them."""
    used = int(facts.pop("used"))
    facts["samples"] = design.rows
    if ridge:
        return facts
    facts = with_global_test(facts, used=used, intercepts=1, dispersed=True, linear=True)
    rows = float(design.rows)
    likelihood = Gaussian().log_likelihood(facts["deviance"], saturated=0.0, samples=rows, weights=rows)
    return with_criteria(facts, likelihood, parameters=used + 1)


def share_out(
    blocks: Blocks, solution: Callable[[], tuple[Floats, Floats]], *, every: bool, centred: bool = True
) -> Questions[Callable[[str], dict[str, Floats]]]:
    """Send each party its own coefficients and their covariance, and return the function by which it reads them.

    Parameters
    ----------
    blocks
        Columns.
    solution
        Function that returns all coefficients ``[p]`` and their covariance ``[p, p]`` at the solver.
    every
        True if they are in units of the columns; otherwise owners multiply by their powers of two.
    centred
        True if the mean of the target was taken off.
    """
    design, roles = blocks.design, blocks.design.roles
    received = {}
    for party in roles.parties:
        width = len(design.coefficients(party))
        received[party] = yield from send_floats(
            partial(_block_of, solution, design.coefficients(party)),
            size=width + width * width,
            sender=roles.solver,
            to=party,
        )

    def own(party: str) -> dict[str, Floats]:
        block, width = received[party](), len(design.coefficients(party))
        scale = np.ones(width) if every else np.ldexp(1.0, blocks.of(party).exponents[:width])
        beta, covariance = block[:width] * scale, block[width:].reshape(width, width) * scale[:, None] * scale
        if party != roles.label:
            return {"coefficients": beta, "errors": np.sqrt(np.diag(covariance))}
        *means, middle = blocks.of(party).means.tolist()
        back = np.array([1.0, *(-mean for mean in means[1:])])  # from columns less their means to the columns
        known = ~np.isnan(beta)
        intercept = middle * centred + back[known] @ beta[known]
        error = np.sqrt(back[known] @ covariance[np.ix_(known, known)] @ back[known])
        return {
            "coefficients": beta[1:],
            "errors": np.sqrt(np.diag(covariance))[1:],
            "intercept": np.array([intercept]),
            "intercept_error": np.array([error]),
        }

    return own


def _block_of(solution: Callable[[], tuple[Floats, Floats]], places: list[int]) -> Floats:
    beta, covariance = solution()
    return np.concatenate([beta[places], covariance[np.ix_(places, places)].ravel()])
