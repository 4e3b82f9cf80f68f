r"""Generalised linear models of columns of several parties, by Newton's method on noisy predictors.

The label holder sees the sum of the others' predictors of each row, which would give their columns away after a few
exact steps. So all but the last one have secret normal noise, which shrinks: Newton's method corrects its own errors.

.. math:: b \leftarrow b + (X^T W X + R)^{-1} (X^T d - R b)

The first step follows from the Gram matrix of all columns, with nothing of a single row. The leak was measured, not
proved: no guarantee follows from the schedule.

References
----------
McCullagh and Nelder, Generalized linear models, 1989; Weng et al., Privacy leakage of real-world vertical federated
learning, 2020 (what exact predictors give away).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, LearningError, ModelError, PrivacyError
from p2pfl.learning.additive import Questions
from p2pfl.plugins.exact.regression.families import Response, response
from p2pfl.plugins.exact.regression.inference import with_criteria, with_global_test
from p2pfl.plugins.exact.regression.links import Logit
from p2pfl.plugins.vertical.encrypted_products import products_of
from p2pfl.plugins.vertical.gram import Blocks, FactoredColumns, JoinedTable, PrivateFloats, ask_design, ask_gram
from p2pfl.plugins.vertical.label_protection import RandomisedBinomial, RandomisedResponse
from p2pfl.plugins.vertical.linear import LinearFit, ask_units, check_ridge, share_out, without_dependent
from p2pfl.plugins.vertical.newton_steps import (
    PREDICTOR_BITS,
    STILL,
    NewtonPoint,
    NewtonState,
    Problem,
    ShownPredictors,
    falling_factor,
    least_noise,
)
from p2pfl.plugins.vertical.private_messages import collect, publish, send_floats
from p2pfl.plugins.vertical.weighted_products import RowWeights, WeightedProducts
from p2pfl.privacy.keys import KEY_BYTES, Source
from p2pfl.privacy.normal_stream import grid_normals

SCORING_STEPS = 4
"""Steps with expected weights, before those with observed ones where they differ."""

NEAR = 2.0**-14
"""Distance over which the derivative of a score is taken."""

STEEPEST = 2.0**20
"""Bound of a predictor, which that of a model never reaches."""

FAMILIES = ("binomial", "poisson", "gamma")
"""Families of targets; ``gaussian`` needs no steps."""

FIGURES = ("deviance", "null_deviance", "saturated", "dispersion", "used", "steps", "moved")
"""Numbers that the solver publishes."""

SEPARATED = 1e-7
"""Deviance of a row, on average, below which two classes are separated perfectly."""


@dataclass(frozen=True)
class NewtonOptions:
    """Options of generalised linear models.

    Parameters
    ----------
    family
        ``binomial``, ``poisson`` or ``gamma``, with its usual link.
    ridge
        Half of this times the squared norm of the coefficients, without the intercept, is added to the negative
        log-likelihood.
    predictor_noise
        False for exact predictors, with which the label holder can compute the columns of the others.
    label_epsilon
        Privacy of each label under randomised response, whose targets are right on average; ``None`` for labels.
    """

    family: str = "binomial"
    ridge: float = 0.0
    predictor_noise: bool = True
    label_epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ModelError(
                f'model.options.family is "{self.family}", which vertical learning does not fit; choose "gaussian", '
                '"binomial", "poisson" or "gamma"'
            )
        check_ridge(self.ridge)
        if self.label_epsilon is not None and self.family != "binomial":
            raise ModelError(
                f'model.options.label_epsilon does not work with family = "{self.family}"; set family to "binomial", '
                "or leave label_epsilon out"
            )

    @property
    def randomised(self) -> RandomisedBinomial | None:
        """The family of changed labels, if labels are protected."""
        return None if self.label_epsilon is None else RandomisedBinomial(RandomisedResponse(self.label_epsilon))

    @property
    def response(self) -> Response:
        """The family with its link."""
        if self.randomised is not None:
            return Response(self.randomised, Logit())
        return response(self.family, None, alpha=1.0, classes=2 if self.family == "binomial" else None)


def fit_newton(table: JoinedTable, source: Source, options: NewtonOptions) -> Questions[LinearFit]:
    """Fit a generalised linear model, with standard errors.

    Parameters
    ----------
    table, source, options
        Table of all columns, the source of secret bytes, and options.

    Raises
    ------
    LearningError
        The steps do not end.
    """
    design = yield from ask_design(table)
    return (yield from _Fit(Blocks(design, table), source, options).ask())


class RowState(NamedTuple):
    """Linear predictor, mean, weight and score of each row at a point, which the label holder alone knows.

    Attributes
    ----------
    predictor, means, weights, scores
        ``[n]``, ``[n, 1]``, ``[n, 1, 1]`` and ``[n, 1]``.
    """

    predictor: Floats
    means: Floats
    weights: Floats
    scores: Floats


class _Fit:
    """One fit."""

    def __init__(self, blocks: Blocks, source: Source, options: NewtonOptions) -> None:
        self.blocks, self.source, self.options = blocks, source, options
        self.design, self.roles, self.kind = blocks.design, blocks.design.roles, options.response
        self.target = cache(lambda: self._checked(np.asarray(blocks.table.target(self.roles.label))))
        products = products_of(self.roles, source, self.design.rows)
        self.factored = FactoredColumns(blocks, products, slice(None), limbs=1)
        self.weighted = WeightedProducts(self.factored)
        self.every = options.ridge > 0

    def _checked(self, target: Floats) -> Floats:
        """Return the target, unless the family does not allow it."""
        if wrong := self.kind.family.valid(target):
            raise DataError(
                f"{self.roles.label} has {wrong} among its targets, which {self.options.family} does not allow; choose "
                "another family"
            )
        return target

    def ask(self) -> Questions[LinearFit]:
        """Run all steps."""
        solver, label = self.roles.solver, self.roles.label
        null = yield from send_floats(self._null, size=5, sender=label, to=solver)
        units = yield from ask_units(self.blocks, every=self.every)
        gram = yield from ask_gram(self.factored)
        state: Callable[[], NewtonState] = cache(lambda: self._begun(gram() * units()[:, None] * units(), null()))
        shown = ShownPredictors(self.options.predictor_noise, falling_factor(self.design.size, self.design.rows))
        point, at, number = null, self._before, 0
        own: PrivateFloats = self._nothing
        while True:
            state = _then(state, NewtonState.prepared)
            going, deviation = yield from publish(_decision(state), size=2, sender=solver)
            if not going:
                break
            at, own = yield from self._predictors(state, deviation, shown, own)
            point = yield from send_floats(partial(self._point, at), size=4, sender=label, to=solver)
            state = _judged(state, point)
            [accepted] = yield from publish(_acceptance(state), size=1, sender=solver)
            shown.judge(accepted=bool(accepted))
            if accepted:
                observed = not self.kind.canonical and (number >= SCORING_STEPS or not deviation)
                rows = partial(self._weighted, at, observed=observed)
                read = yield from self.weighted.ask(rows, exact=not deviation)
                state = _stepped(state, read, units)
            number += 1
        if not self.kind.canonical:
            read = yield from self.weighted.ask(partial(self._weighted, at), exact=True)
            state = _with_errors(state, read, units, NewtonState.with_errors)
        elif self.options.randomised is not None:
            read = yield from self.weighted.ask(partial(_changed, self.options.randomised, at), exact=True)
            state = _with_errors(state, read, units, NewtonState.with_meat)
        return (yield from self._result(state, point, null, at))

    def _null(self) -> Floats:
        """Return the linear predictor of the mean, the weight and factor of residuals there, and two deviances."""
        mean = self.blocks.of(self.roles.label).means[-1:]
        start = self.kind.start(mean)
        target = self.target()
        predictor = np.full((len(target), 1), start[0])
        means, weights, _ = self.kind.derived(target, predictor)
        variances = self.kind.family.variances(means)
        factor = 1.0 if self.kind.canonical else (self.kind.link.slopes(predictor) / variances)[0, 0]
        deviance = self.kind.family.deviances(target, means).sum()
        saturated = self.kind.family.saturated(target, np.ones(len(target))).sum()
        return np.array([start[0], weights[0, 0, 0], factor, deviance, saturated])

    def _before(self) -> RowState:
        """Return the state of the rows before the first point."""
        predictor = np.full(self.design.rows, self._null()[0])
        return RowState(predictor, *self.kind.derived(self.target(), predictor[:, None]))

    def _begun(self, matrix: Floats, null: Floats) -> NewtonState:
        """Return the first state."""
        size = self.design.size
        penalty = np.full(size, self.options.ridge)
        penalty[0] = 0.0
        problem = Problem(matrix[:size, :size], self.design.rows, penalty, self.options.predictor_noise)
        intercept, weight, factor, deviance, _ = null.tolist()
        score = factor * matrix[:size, size]
        return NewtonState.begin(problem, intercept=intercept, score=score, weight=weight, deviance=deviance)

    def _nothing(self, party: str) -> Floats:
        """Return the predictors of a party before it shows any."""
        del party
        return np.zeros(self.design.rows)

    def _predictors(
        self, state: Callable[[], NewtonState], deviation: float, shown: ShownPredictors, earlier: PrivateFloats
    ) -> Questions[tuple[Callable[[], RowState], PrivateFloats]]:
        """Send the coefficients of a point, and return what follows at the label holder, and the predictors of parties.

        The noise of each party has its part of the published deviation, and no less than what follows from its own
        predictors and those that it has shown earlier.
        """
        roles, number, share = self.roles, shown.points, shown.show(deviation)
        betas = {}
        for party in roles.parties:
            places = self.design.coefficients(party)
            betas[party] = yield from send_floats(
                partial(_part_of, state, places), size=len(places), sender=roles.solver, to=party
            )

        @cache
        def own(party: str) -> Floats:
            predictor = np.clip(self._predictor(party, betas[party]()), -STEEPEST, STEEPEST)
            if np.isnan(predictor).any():
                raise PrivacyError(
                    f"{party} has received coefficients that are no numbers from {roles.solver}; end the run"
                )
            return predictor

        @cache
        def hidden(party: str) -> Ints:
            predictor = own(party)
            points = np.rint(np.ldexp(predictor, PREDICTOR_BITS)).astype(np.int64)
            if not deviation:
                return points
            noise = max(deviation, least_noise(share, predictor, earlier(party))) / math.sqrt(len(roles.features))
            purpose = f"noise of predictor {number}"
            key = self.source.bytes(KEY_BYTES, purpose=purpose, peer=party)
            return points + grid_normals(key, len(points), deviation=noise, bits=PREDICTOR_BITS)

        others = yield from collect(hidden, size=self.design.rows, to=roles.label, among=roles.features)

        @cache
        def at() -> RowState:
            received = np.ldexp(others.read(roles.label).astype(np.float64), -PREDICTOR_BITS)
            eta = self._predictor(roles.label, betas[roles.label]()) + received
            return RowState(eta, *self.kind.derived(self.target(), eta[:, None]))

        return at, own

    def _predictor(self, party: str, beta: Floats) -> Floats:
        """Return a party's part of the linear predictors, ``[n]``."""
        columns = self.blocks.of(party)
        width = len(beta)
        scale = np.ones(width) if self.every else np.ldexp(1.0, columns.exponents[:width])
        return np.asarray(columns.centred[:, :width] @ (beta * scale))

    def _point(self, at: Callable[[], RowState]) -> Floats:
        """Return the sums over the rows at a point, which the label holder tells the solver."""
        rows, target = at(), self.target()
        deviance = self.kind.family.deviances(target, rows.means).sum()
        pearson = np.minimum(self.kind.squares(target, rows.means), 2.0**90).sum()
        return np.array([deviance, pearson, rows.weights.sum(), (rows.scores**2).sum()])

    def _weighted(self, at: Callable[[], RowState], *, observed: bool = False) -> RowWeights:
        """Return the scores and weights of rows, within bounds that everybody knows where there are some.

        Weights are expected, or with ``observed`` the derivatives of the scores, with which steps square the distance.
        """
        rows = at()
        weights = rows.weights[:, 0, 0]
        if observed:
            above, below = (
                self.kind.derived(self.target(), (rows.predictor + shift)[:, None])[2][:, 0] for shift in (NEAR, -NEAR)
            )
            weights = np.maximum((below - above) / (2 * NEAR), 0.0)
        elif self.options.family == "binomial":
            bound = 1.0 if self.options.label_epsilon is None else None
            return RowWeights(rows.scores[:, 0], weights, score_bound=bound, weight_bound=0.25)
        return RowWeights(rows.scores[:, 0], weights)

    def _result(
        self,
        state: Callable[[], NewtonState],
        point: Callable[[], Floats],
        null: Callable[[], Floats],
        at: Callable[[], RowState],
    ) -> Questions[LinearFit]:
        """Publish the figures, and send each party its own block."""
        rows, dispersed = self.design.rows, self.kind.family.dispersed

        @cache
        def figures() -> dict[str, float]:
            last, used = state(), len(state().problem.kept)
            dispersion = point()[1] / (rows - used) if dispersed else 1.0
            deviance, saturated = point()[0] - last.gain, null()[4]
            values = (deviance, null()[3], saturated, dispersion, used, last.steps, last.moved)
            return dict(zip(FIGURES, values, strict=True))

        published = yield from publish(
            lambda: np.array([*figures().values()]), size=len(FIGURES), sender=self.roles.solver
        )
        facts = dict(zip(FIGURES, published.tolist(), strict=True))
        self._check_end(facts)

        def solution() -> tuple[Floats, Floats]:
            return without_dependent(state().beta, state().covariance * figures()["dispersion"])

        own = yield from share_out(self.blocks, cache(solution), every=self.every, centred=False)

        def with_predictor(party: str) -> Mapping[str, Floats]:
            return {**own(party), "predictor": at().predictor} if party == self.roles.label else own(party)

        return LinearFit(self.design, self._facts(facts), with_predictor)

    def _check_end(self, facts: dict[str, float]) -> None:
        """Refuse a fit that did not end."""
        rows = self.design.rows
        known = self.options.family == "binomial" and self.options.label_epsilon is None
        if known and facts["deviance"] < SEPARATED * rows:
            raise LearningError(
                "the columns separate the classes perfectly, so the coefficients grow without bound; set "
                "model.options.ridge, or leave out the column that tells the class"
            )
        if not facts["moved"] <= STILL:
            raise LearningError(
                f"the coefficients still move after {facts['steps']:.0f} steps, the most that a party shows predictors "
                "for; set model.options.ridge, merge rare levels, or leave out columns"
            )

    def _facts(self, facts: dict[str, float]) -> dict[str, float]:
        """Return the published numbers with the tests that follow from them."""
        used, saturated, rows = int(facts.pop("used")), facts.pop("saturated"), float(self.design.rows)
        facts["samples"] = self.design.rows
        if self.options.ridge or self.options.label_epsilon is not None:
            return facts
        family = self.kind.family
        facts = with_global_test(facts, used=used, intercepts=1, dispersed=family.dispersed, linear=False)
        likelihood = family.log_likelihood(facts["deviance"], saturated=saturated, samples=rows, weights=rows)
        return with_criteria(facts, likelihood, parameters=used + family.dispersed)


def _changed(family: RandomisedBinomial, at: Callable[[], RowState]) -> RowWeights:
    """Return the variances of targets under randomised response as weights."""
    return RowWeights(at().scores[:, 0], family.target_variances(at().means)[:, 0])


def _then(state: Callable[[], NewtonState], change: Callable[[NewtonState], NewtonState]) -> Callable[[], NewtonState]:
    return cache(lambda: change(state()))


def _judged(state: Callable[[], NewtonState], point: Callable[[], Floats]) -> Callable[[], NewtonState]:
    return cache(lambda: state().judged(NewtonPoint(*point().tolist())))


def _stepped(
    state: Callable[[], NewtonState], read: Callable[[], tuple[Floats, Floats]], units: Callable[[], Floats]
) -> Callable[[], NewtonState]:
    def after() -> NewtonState:
        information, score = read()
        scale = units()[:-1]
        return state().stepped(information * scale[:, None] * scale, score * scale)

    return cache(after)


def _with_errors(
    state: Callable[[], NewtonState],
    read: Callable[[], tuple[Floats, Floats]],
    units: Callable[[], Floats],
    change: Callable[[NewtonState, Floats], NewtonState],
) -> Callable[[], NewtonState]:
    def after() -> NewtonState:
        scale = units()[:-1]
        return change(state(), read()[0] * scale[:, None] * scale)

    return cache(after)


def _decision(state: Callable[[], NewtonState]) -> Callable[[], Floats]:
    return lambda: np.array([state().going, state().deviation], np.float64)


def _acceptance(state: Callable[[], NewtonState]) -> Callable[[], Floats]:
    return lambda: np.array([state().accepted], np.float64)


def _part_of(state: Callable[[], NewtonState], places: list[int]) -> Floats:
    return state().beta[places]
