""":class:`Cox`, proportional hazards from exact totals over cells of time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.explanations import Explained
from p2pfl.core.rows import Layout
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field, feature_names
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, ExactModel, Outcome, Owns, Part, Round, Tensors, symmetric, zeros
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.elementary import added, inverse, log, times
from p2pfl.plugins.exact.regression.coefficients import check_ridge, unbounded
from p2pfl.plugins.exact.regression.disclosure import (
    LEAST,
    MOST_COEFFICIENTS,
    check_coefficients,
    check_least,
    check_limits,
)
from p2pfl.plugins.exact.regression.fits import converged, labels_of, with_errors
from p2pfl.plugins.exact.survival.grid import Grid, check_times
from p2pfl.plugins.exact.survival.tallies import scored, tally
from p2pfl.plugins.exact.survival.union import SHAPES, Union, union_of, united

DECREMENT = 1e-22
"""The model is final where a step would change the likelihood by less than this."""

STEEPEST = 40.0
"""Bound of the log risk of a sample, relative to the mean; steps that go beyond are halved."""

HALVINGS = 12
"""Number of times that a step is halved; log risks are at their bound where that is not enough."""

SCALARS = (
    *("samples", "events", "likelihood", "objective", "null_likelihood"),
    *("decrement", "steps", "halvings", "converged"),
)
"""Numbers of a fit."""

FACTS = ("samples", "events", "likelihood", "null_likelihood", "steps", "converged")
"""Numbers that are printed with the coefficients."""


@dataclass(frozen=True, kw_only=True)
class Cox(ExactModel):
    r"""Proportional hazards, with standard errors.

    A round is one step of Newton's method on the partial likelihood. Peers add up, by the cell in which a sample
    leaves, :math:`w, w x, w x x^T` with :math:`w = e^{x^T \beta}`, and the same of those with the event. Risk sets
    are sums of later cells, so they need no total of their own.

    Parameters
    ----------
    features
        Number of features.
    classes
        ``None``: the target is a time.
    horizon
        End of the grid of times.
    width
        Width of a cell of the grid; times within a cell are tied.
    times
        ``grid``, or ``union`` for cells that begin at the times of all samples, which every peer then learns.
    ties
        ``efron`` or ``breslow``.
    ridge
        Half of this times the squared norm of the coefficients is subtracted from the log-likelihood.
    least
        A peer with fewer training samples takes no part.
    coefficients_per_sample
        Largest number of coefficients for each sample of all peers; with more, totals would be close to the data.
    fields
        Columns of the table that the features come from; ``None`` if there is none.

    Examples
    --------
    >>> Cox(features=2, classes=None, horizon=52).layout.names[:1]
    ('weight',)

    References
    ----------
    Cox, Regression models and life-tables, JRSS B 34, 1972; Efron, The efficiency of Cox's likelihood function for
    censored data, JASA 72, 1977; Lu et al., WebDISCO, JAMIA 22, 2015.
    """

    name: ClassVar[str] = "cox"
    shows: ClassVar[str] = (
        "how many samples leave in each cell of time, with their sums and weighted products of all pairs of features; "
        "a cell that one sample leaves shows all features of that sample"
    )
    traits: ClassVar[ModelTraits] = ModelTraits(converges=True, command="coefficients")

    features: int
    classes: int | None
    horizon: float | None = None
    width: float = 1.0
    times: str = "grid"
    ties: str = "efron"
    ridge: float = 0.0
    least: int = LEAST
    coefficients_per_sample: float = MOST_COEFFICIENTS
    fields: tuple[Field, ...] | None = None

    def __post_init__(self) -> None:
        check_times(self.times, horizon=self.horizon, width=self.width)
        if self.times == "grid":
            _ = self.grid({})
        if self.classes is not None:
            raise ModelError("model.name: cox takes times until an event, not classes; choose another target")
        if self.ties not in {"efron", "breslow"}:
            raise ModelError(f'model.options.ties is "{self.ties}"; set it to "efron" or "breslow"')
        check_ridge(self.ridge)
        check_limits(self.least, self.coefficients_per_sample)

    @property
    def scored(self) -> str:
        """Kind of the score."""
        return "risks"

    @property
    def alone(self) -> Cox:
        """The model without limits, for a peer that learns alone and shows its totals to nobody."""
        return replace(self, least=1, coefficients_per_sample=math.inf)

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        return f"the time of every sample, {cls.shows}" if options.get("times") == "union" else cls.shows

    def grid(self, tensors: Tensors) -> Grid | Union:
        """Return the cells of time."""
        if self.times == "union":
            return union_of(tensors, horizon=self.horizon)
        return Grid(width=self.width, horizon=self.horizon or 0.0)

    @property
    def layout(self) -> Layout:
        """Names and shapes of the tensors."""
        shapes = {"weight": (1, self.features)} | self._others
        return Layout(tuple(shapes), tuple(shapes.values()))

    @property
    def _others(self) -> dict[str, tuple[int, ...]]:
        scalars: dict[str, tuple[int, ...]] = dict.fromkeys(SCALARS, (1,))
        square = (self.features, self.features)
        found = {"means": (self.features,), "step": (self.features,), "covariance": square, "moments": square} | scalars
        return found | SHAPES if self.times == "union" else found

    def module(self) -> Risk:
        """Return the torch module for predictions."""
        return Risk(self.features, shapes=self._others)

    def start(self) -> Tensors:
        """Return the model with zero coefficients."""
        return zeros(self.layout)

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take one step; a step that lowers the likelihood is halved instead."""
        if tensors["converged"][0]:
            return Outcome(tensors, over=True)
        if not tensors["samples"][0]:
            total = yield Question(lambda peer: self._counted(peer, own(peer).train), size=sums.size(self.features) + 1)
            samples = int(total[-1])
            if samples:
                check_coefficients(self.features, samples, most=self.coefficients_per_sample)
            means = sums.numbers(total[:-1]) / max(1, samples)
            tensors = {**tensors, "samples": np.array([float(samples)]), "means": means}
            if self.times == "union" and samples:
                horizon = math.inf if self.horizon is None else self.horizon
                tensors = {**tensors, **(yield from united(lambda peer: own(peer).train.targets, horizon=horizon))}
        if not tensors["samples"][0]:
            return Outcome(tensors, over=True)
        beta = tensors["weight"][0]
        found = yield from self._derived(beta, tensors, own)
        return self._step(beta, found, tensors)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return the log of the risk relative to a sample of mean features, ``[n, 1]``."""
        return self._risk(tensors["weight"][0], tensors["means"], part.features)[:, None]

    def tally(self, tensors: Tensors, part: Part) -> Ints:
        """Return histograms of risks by cell of time, see :mod:`p2pfl.plugins.exact.survival.tallies`."""
        beta = tensors["weight"][0]
        variance = added(beta * times(tensors["moments"], beta)) / max(1.0, float(tensors["samples"][0]))
        grid = self.grid(tensors)
        cell, event = grid.placed(part.targets)
        risks = self._risk(beta, tensors["means"], part.features)
        return tally(risks, cell, event, spread=math.sqrt(max(0.0, variance)), cells=grid.cells)

    def tallied(self, tensors: Tensors, total: Ints) -> dict[str, float]:
        """Return the scores that follow from the sum of histograms over all peers."""
        found = scored(total, cells=self.grid(tensors).cells)
        return {"loss": 1 - found["concordance"], **found} if found else {}

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return the coefficients, once the steps have converged."""
        del classes
        facts = converged(tensors, FACTS)
        if facts is None:
            return None
        return with_errors(self.name, tensors["weight"][0], tensors, labels_of(fields), facts, ridge=self.ridge)

    def _risk(self, beta: Floats, means: Floats, features: np.ndarray) -> Floats:
        return times(features.astype(np.float64) - means, beta)

    def _counted(self, peer: str, part: Part) -> Ints:
        check_least(peer, len(part), least=self.least)
        part.check_complete(peer, model=self.name)
        wide = part.features.astype(np.float64)
        return np.append(sums.summed(len(part), self.features, lambda where: wide[where]), len(part))

    def _derived(self, beta: Floats, tensors: Tensors, own: Owns) -> Asked[dict[str, Any]]:
        """Ask for the sums by cell, and return likelihood, score and information."""
        upper = np.triu_indices(self.features)
        grid = self.grid(tensors)
        terms, cells = 1 + self.features + len(upper[0]), grid.cells
        size = sums.size(2 * cells * terms + self.features) + cells
        total = yield Question(
            lambda peer: self._terms(own(peer).train, beta, tensors["means"], upper, grid), size=size
        )
        first = sums.size(2 * cells * terms)
        by_cell = sums.numbers(total[:first]).reshape(2, cells, terms)
        events, covered = total[-cells:], sums.numbers(total[first:-cells])
        return self._likelihood(beta, by_cell, events, covered)

    def _terms(self, part: Part, beta: Floats, means: Floats, upper: tuple[Ints, Ints], grid: Grid | Union) -> Ints:
        """Return the sums of a peer by cell: of samples that leave, of those with the event, and numbers of events."""
        cell, event = grid.placed(part.targets)
        cells, count = grid.cells, 1 + self.features + len(upper[0])

        def summed(some: Part, cell: Ints) -> Ints:
            def each(where: slice) -> Floats:
                centred = some.features[where].astype(np.float64) - means
                risk = np.exp(np.clip(times(centred, beta), -STEEPEST, STEEPEST))[:, None]
                return np.concatenate(
                    [risk, risk * centred, risk * centred[:, upper[0]] * centred[:, upper[1]]], axis=1
                )

            return sums.summed(len(some), count, each, groups=cell, number=cells).reshape(sums.WORDS, -1)

        chosen = np.flatnonzero(event)
        some = Part(part.features[chosen], part.targets[chosen])
        both = np.stack([summed(part, cell), summed(some, cell[chosen])], axis=1)
        centred = some.features.astype(np.float64) - means
        covered = sums.summed(len(some), self.features, lambda where: centred[where])
        return np.concatenate([both.ravel(), covered, np.bincount(cell[chosen], minlength=cells)])

    def _likelihood(self, beta: Floats, by_cell: Floats, events: Ints, covered: Floats) -> dict[str, Any]:
        """Return the partial likelihood with its derivatives."""
        at_risk = np.cumsum(by_cell[0][::-1], axis=0)[::-1]  # [cells, terms]
        likelihood = added(beta * covered)
        score, information = covered.copy(), np.zeros((self.features, self.features))
        for cell in np.flatnonzero(events).tolist():
            tied = int(events[cell])
            for place in range(tied):
                share = place / tied if self.ties == "efron" else 0.0
                sums_of = at_risk[cell] - share * by_cell[1, cell]
                if not sums_of[0] > 0:
                    raise LearningError(
                        "the totals of the times cannot be right, because a peer has added what it does not have; "
                        "compare with the other owners which peers take part"
                    )
                mean = sums_of[1 : 1 + self.features] / sums_of[0]
                square = symmetric(sums_of[1 + self.features :] / sums_of[0], size=self.features)
                likelihood -= log(float(sums_of[0]))
                score = score - mean
                information = information + square - mean[:, None] * mean[None, :]
        penalty = np.full(self.features, self.ridge)
        return {
            "likelihood": likelihood,
            "objective": likelihood - 0.5 * added(penalty * beta * beta),
            "score": score - penalty * beta,
            "information": information + np.diag(penalty),
            "events": int(events.sum()),
            "moments": symmetric(at_risk[0, 1 + self.features :], size=self.features),  # read before the first step
        }

    def _step(self, beta: Floats, found: dict[str, Any], tensors: Tensors) -> Outcome:
        """Return the model after a step, or after half of the last one if that lowered the likelihood."""
        taken, before = int(tensors["steps"][0]), float(tensors["objective"][0])
        events = {"events": np.array([float(found["events"])])}
        loss = -found["likelihood"] / max(1, found["events"])
        if taken and found["objective"] < before - 1e-10 * max(1.0, abs(before)):
            half, halvings = tensors["step"] / 2, tensors["halvings"] + 1
            if halvings[0] > HALVINGS:
                raise self._endless(_steepest(beta, tensors["moments"]))
            return Outcome(
                {**tensors, **events, "weight": (beta - half)[None], "step": half, "halvings": halvings}, loss
            )
        if found["likelihood"] > 1e-6:  # probabilities are at most 1, so log risks are beyond their bound
            raise self._endless(_steepest(beta, tensors["moments"]))
        covariance, _ = inverse(found["information"])
        step = times(covariance, found["score"])
        decrement = abs(added(step * found["score"]))
        moments = tensors["moments"] if taken else found["moments"]
        gained = float(tensors["decrement"][0]) if taken else None
        endless = unbounded(step, moments, decrement=decrement, before=gained)
        if endless is not None:
            raise self._endless(endless)
        stalled = taken > 0 and decrement < 1e-12 and decrement > 0.25 * tensors["decrement"][0]
        converged = decrement <= DECREMENT * max(1.0, abs(found["likelihood"])) or bool(stalled)
        given = {
            "weight": (beta if converged else beta + step)[None],
            "step": step,
            "covariance": covariance,
            "moments": moments,
            "likelihood": np.array([found["likelihood"]]),
            "objective": np.array([found["objective"]]),
            "null_likelihood": tensors["null_likelihood"] if taken else np.array([found["likelihood"]]),
            "decrement": np.array([decrement]),
            "steps": np.array([float(taken + (not converged))]),
            "halvings": np.zeros(1),
            "converged": np.array([float(converged)]),
        }
        return Outcome({**tensors, **events, **given}, loss, over=converged)

    def _endless(self, place: int) -> LearningError:
        """Return the error of a coefficient that grows without bound."""
        name = feature_names(self.features, self.fields)[place]
        return LearningError(
            f'the likelihood has no maximum, because whoever has the event is always extreme in "{name}" among those '
            "at risk, so its coefficient grows without bound; set model.options.ridge, or leave out the feature"
        )


def _steepest(beta: Floats, moments: Floats) -> int:
    """Return the feature that moves log risks most."""
    return int((np.abs(beta) * np.sqrt(np.diag(moments))).argmax())


class Risk(nn.Module):
    """Log risks: features in, numbers out.

    Parameters
    ----------
    features
        Number of features.
    shapes
        Shapes of further tensors of the model.

    Examples
    --------
    >>> Risk(2, shapes={"means": (2,)})(torch.zeros(3, 2)).tolist()
    [[0.0], [0.0], [0.0]]
    """

    weight: torch.Tensor
    means: torch.Tensor

    def __init__(self, features: int, *, shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        for name, shape in ({"weight": (1, features)} | shapes).items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return log risks ``[n, 1]`` for features ``[n, F]``."""
        found: torch.Tensor = (features.flatten(1).double() - self.means) @ self.weight.T
        return found
