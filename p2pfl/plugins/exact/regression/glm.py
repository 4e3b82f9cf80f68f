""":class:`GLM`, generalised linear models by Fisher scoring on exact totals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, LearningError
from p2pfl.core.explanations import Explained
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Own, Owns, Part, Round, Tensors, symmetric
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import labels_of
from p2pfl.plugins.exact.elementary import added, inverse
from p2pfl.plugins.exact.regression.families import ALPHA_TERMS, Response, estimate_alpha, overdispersion_terms
from p2pfl.plugins.exact.regression.fits import DECREMENT, UNKNOWN, converged, newton, shown_knots, with_errors
from p2pfl.plugins.exact.regression.inference import used_coefficients, with_criteria, with_global_test
from p2pfl.plugins.exact.regression.regression import ESTIMATE, Regression
from p2pfl.plugins.exact.regression.sandwich import CLASSICAL, CLUSTER, SHOWN, Scores, sandwich
from p2pfl.plugins.exact.tensor_model import check_least, scalars

HALVINGS = 8
"""Shortened steps that are tried at once where the deviance has risen."""

ROUNDING = 1e-10
"""Rise of the deviance, as a share, that is rounding."""

SEPARATED = 1e-7
"""Deviance of a sample, on average, below which two classes are separated perfectly."""

MAX_NULL_STEPS = 60
"""Most steps of the model without features, where samples have offsets."""

FACTS = ("samples", "held_out", "deviance", "null_deviance", "saturated", "dispersion", "steps", "converged")
"""Numbers that are printed with the coefficients."""


@dataclass(frozen=True, kw_only=True)
class GLM(Regression):
    r"""Generalised linear model, with standard errors.

    A round is one step of Fisher scoring (Newton's method where the link is canonical):

    .. math:: \beta \leftarrow \beta + (X^T W X + R)^{-1} (X^T r - R \beta)

    with W and r of the family, R the ridge penalty, and both sums totals over all peers. The steps end where they
    change nothing, usually after five to ten. With C > 2 classes there are C - 1 linear predictors, the log-odds of
    each class against the first one.

    Parameters
    ----------
    features, classes
        Number of features, and of classes; ``None`` where a number is predicted.
    family
        ``binomial``, ``multinomial``, ``gaussian`` (identity), ``poisson``, ``gamma`` or ``negative_binomial``
        (logarithm); by default ``binomial`` for two classes, ``multinomial`` for more, ``gaussian`` for numbers.
    link
        Of two classes: ``logit`` by default, ``probit`` or ``cloglog``.
    alpha
        With ``negative_binomial``, the variance is :math:`\mu + \alpha \mu^2`; 1 / theta of R. ``"estimate"`` finds the
        alpha of the largest likelihood under the means of each step, as R's ``glm.nb`` does.
    offset, exposure
        Name of a column that is added to the linear predictor, itself or its logarithm, without a coefficient.
    freq_weights, var_weights
        Name of a column of how many samples a row stands for; and of one by which the variance of a row is divided.
        All four refuse ``data.scale``.
    ridge
        Half of this times the squared norm of the coefficients, without the intercept, is added to the negative
        log-likelihood: 1 / C of scikit-learn's ``LogisticRegression``, ``alpha`` of its ``Ridge``. With one
        there are no tests.
    fit_intercept
        True if there is an intercept.
    errors
        Standard errors: ``classical``; ``HC0`` or ``HC1``, robust to another variance than that of the family; or
        ``cluster``, robust to dependence within clusters. Of n samples, p coefficients and G clusters, HC1 is
        n / (n - p) times HC0, and that of clusters has the factor G / (G - 1), in families with a dispersion times
        (n - 1) / (n - p); t then has G - 1 degrees of freedom.
    cluster
        Name of the column of clusters, whose groups lie within one peer; each peer is a cluster by default. The owners
        make sure of it where clusters are numbers; levels are checked.
    least
        A peer with fewer training samples takes no part.
    coefficients_per_sample
        Largest number of coefficients for each sample of all peers; with more, totals would be close to the data.
    fields
        Columns of the table that the features come from; ``None`` if there is none.

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

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take one step."""
        if tensors["converged"][0]:
            return Outcome(tensors, over=True)
        if not tensors["samples"][0]:
            tensors = yield from self._begin(tensors, own)
            if not tensors["samples"][0]:
                return Outcome(tensors, over=True)
        if self.estimates:
            return (yield from self._alternating(tensors, own))
        beta = self.stacked(tensors)
        derived = yield from self._derived(self.kind, beta, tensors, own)
        if self._risen(derived["objective"], tensors):
            beta = yield from self._shortened(self.kind, beta, tensors, own)
            derived = yield from self._derived(self.kind, beta, tensors, own)
        outcome = self._step(beta, derived, tensors)
        return (yield from self._robust(self.kind, beta, outcome, own)) if outcome.over else outcome

    @property
    def alone(self) -> Self:
        """The model without limits, for a peer that learns alone, which is one cluster."""
        peers = self.errors == CLUSTER and self.cluster is None
        return replace(super().alone, errors=CLASSICAL) if peers else super().alone

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        more = "the derivatives of the likelihood by alpha, and, " if options.get("alpha") == ESTIMATE else ""
        robust = SHOWN.get(options.get("errors", CLASSICAL), "")
        return f"{more}{cls.shows}" + (f", and {robust}" if robust else "") + shown_knots(options)

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return the coefficients, once the steps have converged."""
        facts = converged(tensors, (*FACTS, *(key for key in ("alpha", "alpha_error", "clusters") if key in tensors)))
        if facts is None:
            return None
        labels = self.labels(self.merged_labels(labels_of(fields), tensors), classes)
        freedom = None
        if not self.ridge:
            used = used_coefficients(tensors["covariance"])
            facts = self._tested(facts, tensors, used=used)
            below = facts["clusters"] - 1 if "clusters" in facts else facts["samples"] - used
            freedom = below if self.kind.family.dispersed else None
        facts.pop("saturated")
        facts |= self.splines.facts(tensors)
        beta, errors = self.stacked(tensors), None if self.errors == CLASSICAL else self.errors
        return with_errors(
            self.name, beta, tensors, labels, facts, ridge=self.ridge, freedom=freedom, ratio=self.ratio, errors=errors
        )

    def _tested(self, facts: dict[str, float], tensors: Tensors, *, used: int) -> dict[str, float]:
        """Return facts with the test of all coefficients, the likelihood and its criteria."""
        family = self.kind.family
        if self.fit_intercept and not self.estimates and not self.roles.shifted:
            linear = self.chosen == "gaussian"
            facts = with_global_test(
                facts, used=used, intercepts=self.kind.predictors, dispersed=family.dispersed, linear=linear
            )
        weights, samples = float(tensors["weight_sum"][0]), facts["samples"]
        likelihood = family.log_likelihood(
            facts["deviance"], saturated=facts["saturated"], samples=samples, weights=weights
        )
        return with_criteria(facts, likelihood, parameters=used + family.dispersed + self.estimates)

    def _risen(self, objective: float, tensors: Tensors) -> bool:
        """Return whether the last step has raised the objective."""
        before = float(tensors["objective"][0])
        return bool(tensors["steps"][0]) and objective > before + ROUNDING * max(1.0, abs(before))

    def _alternating(self, tensors: Tensors, own: Owns) -> Round:
        """Take one step under the alpha of the largest likelihood, which is found first."""
        beta, before = self.stacked(tensors), float(tensors["alpha"][0])
        if tensors["steps"][0]:
            last = self.response(before)
            [deviance] = yield from self._deviances(last, [beta], own)
            if self._risen(float(deviance) + added(self._penalty() * beta * beta), tensors):
                beta = yield from self._shortened(last, beta, tensors, own)
        alpha = yield from estimate_alpha(before, lambda theta: self._by_alpha(beta, theta, own))
        kind = self.response(alpha.value)
        derived = yield from self._derived(kind, beta, tensors, own)
        outcome = self._step(beta, derived, tensors)
        given = {"alpha": alpha.value, "alpha_error": alpha.error, "saturated": alpha.saturated}
        if outcome.over:
            outcome = yield from self._robust(kind, beta, outcome, own)
            given["null_deviance"], _ = yield from self._null(kind, np.zeros(1), own)
        return replace(outcome, tensors={**outcome.tensors, **scalars(**given)})

    def _by_alpha(self, beta: Floats, theta: float, own: Owns) -> Asked[Floats]:
        """Ask for the derivatives of the likelihood by 1 / alpha, and what an estimate by moments needs."""

        def answer(peer: str) -> Ints:
            part = own(peer).train
            means = self.kind.means(self._predictor(beta, part.features))[:, 0]
            return self._summed(
                part, ALPHA_TERMS, lambda where: overdispersion_terms(part.targets[where], means[where], theta)
            )

        return (yield from sums.total(answer, ALPHA_TERMS))

    def _begin(self, tensors: Tensors, own: Owns) -> Asked[Tensors]:
        """Agree on the number of samples and on the mean, from which the intercept starts."""
        terms = self.kind.predictors + 2
        total = yield Question(lambda peer: self._counted(peer, own(peer), terms), size=sums.size(terms) + 2)
        samples, held = (int(count) for count in total[-2:])
        if not samples:
            return tensors
        self.check_coefficients(self.width, samples)
        *observed, weights, saturated = sums.numbers(total[:-2]).tolist()
        start = self.kind.start(np.array(observed) / weights)
        if self.roles.shifted:
            null, start = yield from self._null(self.kind, start, own)
        else:
            null = yield from self._constant(np.array(observed) / weights, own)
        new = scalars(
            samples=samples,
            held_out=held if self.owned else UNKNOWN,
            weight_sum=weights,
            saturated=saturated,
            null_deviance=null,
        )
        return {**tensors, **self._weighing(self._constant_model(start, np.array(observed) / weights)), **new}

    def _constant_model(self, start: Floats, means: Floats) -> Floats:
        """Return coefficients of which the intercepts ``[K]`` alone are not zero, which give these means."""
        del means
        beta = np.zeros((self.kind.predictors, self.length))
        if self.fit_intercept:
            beta[:, -1] = start
        return beta.ravel()

    def _counted(self, peer: str, own: Own, terms: int) -> Ints:
        part = own.train
        part.check_complete(peer, model=self.name)
        self.roles.check(peer, part.features)
        count = self.roles.count(part.features)
        check_least(peer, count, least=self.least)
        if wrong := self.kind.family.valid(part.targets):
            raise DataError(
                f"{peer} has {wrong} among its targets, which {self.chosen} does not allow; choose another family"
            )

        def each(where: slice) -> Floats:
            targets = part.targets[where]
            saturated = self.kind.family.saturated(targets, self.roles.precisions(part.features[where]))
            return np.column_stack([self.kind.observed(targets), np.ones(len(targets)), saturated])

        return np.append(self._summed(part, terms, each), [count, self.held_out(own)])

    def _constant(self, means: Floats, own: Owns) -> Asked[float]:
        """Return the deviance of the model of one mean."""

        def answer(peer: str) -> Ints:
            part = own(peer).train
            each = np.tile(means, (len(part), 1))
            return self._summed(
                part, 1, lambda where: self.kind.family.deviances(part.targets[where], each[where])[:, None]
            )

        return float((yield from sums.total(answer, 1))[0])

    def _null(self, kind: Response, start: Floats, own: Owns) -> Asked[tuple[float, Floats]]:
        """Return the deviance and the intercept of the model without features, where samples have offsets."""

        def answer(peer: str, intercept: Floats) -> Ints:
            part = own(peer).train

            def each(where: slice) -> Floats:
                targets = part.targets[where]
                predictor = self.roles.offsets(part.features[where])[:, None] + intercept
                means, weights, scores = kind.derived(targets, predictor)
                return np.column_stack([weights[:, 0, 0], scores[:, 0], kind.family.deviances(targets, means)])

            return self._summed(part, 3, each)

        deviance = 0.0
        for _ in range(MAX_NULL_STEPS):
            weight, score, deviance = (yield from sums.total(partial(answer, intercept=start), 3)).tolist()
            step = min(max(score / max(weight, 2.0**-50), -2.0), 2.0)
            if abs(step * score) <= DECREMENT * max(1.0, abs(deviance)):
                break
            start = start + step
        return deviance, start

    def _deviances(self, kind: Response, betas: Sequence[Floats], own: Owns) -> Asked[Floats]:
        """Ask for the deviance of each of some models over the training parts."""
        return (yield from sums.total(lambda peer: self._compared(kind, own(peer).train, betas), len(betas)))

    def _compared(self, kind: Response, part: Part, betas: Sequence[Floats]) -> Ints:
        """Return the deviance of each of some models on samples, as integers."""

        def each(where: slice) -> Floats:
            means = (kind.means(self._predictor(beta, part.features[where])) for beta in betas)
            return np.stack([kind.family.deviances(part.targets[where], mean) for mean in means], axis=1)

        return self._summed(part, len(betas), each)

    def _derived(self, kind: Response, beta: Floats, tensors: Tensors, own: Owns) -> Asked[dict[str, Any]]:
        """Ask for the information, the score, the deviance and Pearson's statistic of a model."""
        width = self.width
        upper = np.triu_indices(width)
        terms = len(upper[0]) + width + 2
        values = yield from sums.total(lambda peer: self._terms(kind, own(peer).train, beta), terms)
        information = symmetric(values[: len(upper[0])], size=width)
        score, (deviance, pearson) = values[len(upper[0]) : -2], values[-2:].tolist()
        penalty = self._penalty()
        samples = float(tensors["samples"][0])
        if self.classes is not None and deviance < SEPARATED * samples:
            steepest = self.label(self._steepest(beta, tensors))
            raise LearningError(
                f'the features separate the classes perfectly, most of all "{steepest}", so the coefficients grow '
                f"without bound; {self._ridged('or ')}leave out the feature that tells the class"
            )
        return {
            "information": information + np.diag(penalty),
            "score": score - penalty * beta,
            "deviance": deviance,
            "pearson": pearson,
            "objective": deviance + added(penalty * beta * beta),
        }

    def _terms(self, kind: Response, part: Part, beta: Floats) -> Ints:
        """Return what the samples of a peer add, as integers."""
        upper = np.triu_indices(self.width)
        (one, row), (two, column) = (np.divmod(each, self.length) for each in upper)  # predictor and coefficient
        predictor, every = np.divmod(np.arange(self.width), self.length)

        def each(where: slice) -> Floats:
            design, targets = self._design(part.features[where]), part.targets[where]
            means, weights, scores = kind.derived(targets, self._predictor(beta, part.features[where]))
            return np.concatenate(
                [
                    design[:, row] * weights[:, one, two] * design[:, column],
                    design[:, every] * scores[:, predictor],
                    kind.family.deviances(targets, means)[:, None],
                    np.minimum(kind.squares(targets, means), 2.0**90)[:, None],
                ],
                axis=1,
            )

        return self._summed(part, len(row) + len(every) + 2, each)

    def _shortened(self, kind: Response, beta: Floats, tensors: Tensors, own: Owns) -> Asked[Floats]:
        """Return the best model on the way of the last step, which was too long."""
        tried = [beta - tensors["step"] * (1 - 0.5**power) for power in range(1, HALVINGS + 1)]
        penalty = self._penalty()
        deviances = yield from self._deviances(kind, tried, own)
        return tried[int((deviances + np.array([added(penalty * each * each) for each in tried])).argmin())]

    def _step(self, beta: Floats, derived: dict[str, Any], tensors: Tensors) -> Outcome:
        """Return the model after a step, with the covariance before it."""
        covariance, dependent = self._inverse(derived["information"])
        samples, free, taken = float(tensors["samples"][0]), self.width - len(dependent), tensors["steps"][0]
        moments = tensors["moments"] if taken else self._moments(derived["information"], samples)
        before = float(tensors["decrement"][0]) if taken else None
        slowest = 0.25 if self.kind.canonical else 0.9  # scoring only divides the distance
        new = newton(covariance, derived["score"], moments, before=before, size=derived["deviance"], slowest=slowest)
        if new.endless is not None and self.kind.family.bounded:
            raise LearningError(
                f'the likelihood has no maximum, because "{self.label(new.endless)}" separates some targets from all '
                f"others, so its coefficient grows without bound; {self._ridged()}merge rare levels, or leave out the "
                "feature"
            )
        dispersion = self._dispersion(derived["pearson"], freedom=samples - free)
        facts = scalars(
            objective=derived["objective"],
            deviance=derived["deviance"],
            dispersion=dispersion,
            decrement=new.decrement,
            steps=taken + (not new.converged),
            converged=new.converged,
        )
        facts |= {"step": new.step, "covariance": covariance * dispersion, "moments": moments}
        after = {**tensors, **facts, **self._weighing(beta + new.step)}
        return Outcome(after, derived["deviance"] / samples, over=new.converged)

    def _robust(self, kind: Response, beta: Floats, outcome: Outcome, own: Owns) -> Asked[Outcome]:
        """Return the outcome with the covariance that the model asks for."""
        if self.errors == CLASSICAL:
            return outcome
        predictor, every = np.divmod(np.arange(self.width), self.length)

        def each(part: Part, where: slice) -> Floats:
            features = part.features[where]
            scores = kind.derived(part.targets[where], self._predictor(beta, features))[2][:, predictor]
            return self._design(features)[:, every] * scores * self.roles.precisions(features)[:, None]

        scores = Scores(self.width, each, lambda part, where: self.roles.frequencies(part.features[where]))
        if self.errors == CLUSTER:
            levels = len(self.roles.clusters) if len(self.roles.clusters) > 1 else 0
            meat = yield from scores.of_clusters(own, lambda part: self.roles.groups(part.features), levels=levels)
        else:
            meat = yield from scores.of_samples(own)
        tensors = outcome.tensors
        covariance = sandwich(
            tensors["covariance"] / tensors["dispersion"][0],
            meat,
            errors=self.errors,
            samples=float(tensors["samples"][0]),
            used=used_coefficients(tensors["covariance"]),
            dispersed=self.kind.family.dispersed,
        )
        clusters = scalars(clusters=meat.clusters) if self.errors == CLUSTER else {}
        return replace(outcome, tensors={**tensors, "covariance": covariance, **clusters})

    def _ridged(self, joint: str = "") -> str:
        """Return the advice to set a ridge, where there may be one."""
        return "" if self.kind.several else f"set model.options.ridge, {joint}"

    def _steepest(self, beta: Floats, tensors: Tensors) -> int:
        """Return the coefficient that moves linear predictors most, intercepts aside."""
        moved = np.abs(beta) * np.sqrt(np.maximum(np.diag(tensors["moments"]), 0.0))
        if self.fit_intercept:
            moved[self.length - 1 :: self.length] = 0.0
        return int(moved.argmax())

    def _inverse(self, information: Floats) -> tuple[Floats, list[int]]:
        """Return the inverse and the dependent columns; intercepts come first, so that features depend on them."""
        stacked = np.arange(self.width).reshape(self.kind.predictors, self.length)
        order = np.roll(stacked, int(self.fit_intercept), axis=1).ravel()
        inverted, dependent = inverse(information[np.ix_(order, order)])
        back = np.argsort(order)
        return inverted[np.ix_(back, back)], [int(order[column]) for column in dependent]

    def _moments(self, information: Floats, samples: float) -> Floats:
        """Return about the sums of products of features, from the first information, whose weights are alike."""
        each = (information - np.diag(self._penalty()))[: self.length, : self.length]
        weight = each[-1, -1] / samples if self.fit_intercept else 1.0
        moments = np.zeros((self.width, self.width))
        for low in range(0, self.width, self.length):
            moments[low : low + self.length, low : low + self.length] = each / max(weight, 2.0**-50)
        return moments

    def _dispersion(self, pearson: float, *, freedom: float) -> float:
        """Return the estimate of the dispersion; not a number where a ridge alone makes the model unique."""
        if not self.kind.family.dispersed:
            return 1.0
        if freedom > 0:
            return pearson / freedom
        if self.ridge:
            return math.nan
        raise LearningError(
            "there are no more samples than coefficients, so the model repeats the data and has no standard errors; "
            "use fewer features, or set model.options.ridge"
        )
