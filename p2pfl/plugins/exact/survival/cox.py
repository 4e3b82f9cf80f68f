""":class:`Cox`, proportional hazards from exact totals over cells of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB
import torch

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.explanations import Explained
from p2pfl.data.data_description import Field, feature_names
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Own, Owns, Part, Round, Tensors, symmetric
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import labels_of
from p2pfl.plugins.exact.elementary import added, inverse, log, times
from p2pfl.plugins.exact.regression.fits import UNKNOWN, LikelihoodModel, converged, newton, with_errors
from p2pfl.plugins.exact.survival.grid import UNION_SHAPES, Grid, TimedModel, UnionGrid
from p2pfl.plugins.exact.tensor_model import Shapes, TensorModule, check_least, scalars

STEEPEST = 40.0
"""Bound of the log risk of a sample, relative to the mean; steps that go beyond are halved."""

HALVINGS = 12
"""Number of times that a step is halved; log risks are at their bound where that is not enough."""

SCALARS = (
    *("samples", "held_out", "events", "likelihood", "objective", "null_likelihood"),
    *("decrement", "steps", "halvings", "converged"),
)
"""Numbers of a fit."""

FACTS = ("samples", "held_out", "events", "likelihood", "null_likelihood", "steps", "converged")
"""Numbers that are printed with the coefficients."""

MAX_RISK_BINS, MIN_RISK_BINS = 256, 16
"""Bins of the risk in a histogram: as many as fit, within these."""

MAX_TALLY = 2**16
"""Numbers of a histogram of cells and bins, as long as there are more bins than the fewest."""


@dataclass(frozen=True, kw_only=True)
class Cox(LikelihoodModel, TimedModel):
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
    ties: str = "efron"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ties not in {"efron", "breslow"}:
            raise ModelError(f'model.options.ties is "{self.ties}"; set it to "efron" or "breslow"')
        self.check_limits()

    @property
    def scored(self) -> str:
        """Kind of the score."""
        return "risks"

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        width, square = (self.features,), (self.features, self.features)
        shapes: Shapes = {"weight": (1, self.features), "means": width, "step": width}
        shapes |= {"covariance": square, "moments": square} | dict.fromkeys(SCALARS, (1,))
        return shapes | UNION_SHAPES if self.united else shapes

    def module(self) -> Risk:
        """Return the torch module for predictions."""
        return Risk(self.shapes)

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take one step; a step that lowers the likelihood is halved instead."""
        if tensors["converged"][0]:
            return Outcome(tensors, over=True)
        if not tensors["samples"][0]:
            total = yield Question(lambda peer: self._counted(peer, own(peer)), size=sums.size(self.features) + 2)
            samples, held = (int(count) for count in total[-2:])
            if not samples:
                return Outcome(tensors, over=True)
            self.check_coefficients(self.features, samples)
            means = sums.numbers(total[:-2]) / samples
            counts = scalars(samples=samples, held_out=held if self.owned else UNKNOWN)
            tensors = {**tensors, **counts, "means": means}
            tensors = {**tensors, **(yield from self.unite(lambda peer: own(peer).train.targets))}
        beta = tensors["weight"][0]
        found = yield from self._derived(beta, tensors, own)
        return self._step(beta, found, tensors)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return the log of the risk relative to a sample of mean features, ``[n, 1]``."""
        return self._risk(tensors["weight"][0], tensors["means"], part.features)[:, None]

    def tally(self, tensors: Tensors, part: Part) -> Ints:
        """Return histograms of risks by cell of time, see :func:`tally`."""
        beta = tensors["weight"][0]
        variance = added(beta * times(tensors["moments"], beta)) / max(1.0, float(tensors["samples"][0]))
        grid = self.grid(tensors)
        cell, event = grid.placed(part.targets)
        risks = self._risk(beta, tensors["means"], part.features)
        return tally(risks, cell, event, spread=math.sqrt(max(0.0, variance)), cells=grid.cells)

    def tallied(self, tensors: Tensors, total: Ints) -> dict[str, float]:
        """Return the scores that follow from the sum of histograms over all peers."""
        found = concordance_of(total, cells=self.grid(tensors).cells)
        return {"loss": 1 - found["concordance"], **found} if found else {}

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return the coefficients, once the steps have converged."""
        del classes
        facts = converged(tensors, FACTS)
        if facts is None:
            return None
        return with_errors(
            self.name, tensors["weight"][0], tensors, labels_of(fields), facts, ridge=self.ridge, ratio="hazard ratio"
        )

    def _risk(self, beta: Floats, means: Floats, features: np.ndarray) -> Floats:
        return times(features.astype(np.float64) - means, beta)

    def _counted(self, peer: str, own: Own) -> Ints:
        part = own.train
        check_least(peer, len(part), least=self.least)
        part.check_complete(peer, model=self.name)
        wide = part.features.astype(np.float64)
        counts = [len(part), self.held_out(own)]
        return np.append(sums.summed(len(part), self.features, lambda where: wide[where]), counts)

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

    def _terms(self, part: Part, beta: Floats, means: Floats, upper: tuple[Ints, Ints], grid: Grid | UnionGrid) -> Ints:
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
        events = scalars(events=found["events"])
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
        moments = tensors["moments"] if taken else found["moments"]
        gained = float(tensors["decrement"][0]) if taken else None
        new = newton(covariance, found["score"], moments, before=gained, size=found["likelihood"])
        if new.endless is not None:
            raise self._endless(new.endless)
        weight = beta if new.converged else beta + new.step
        given = {"weight": weight[None], "step": new.step, "covariance": covariance}
        given |= {"moments": moments} | scalars(
            likelihood=found["likelihood"],
            objective=found["objective"],
            null_likelihood=tensors["null_likelihood"][0] if taken else found["likelihood"],
            decrement=new.decrement,
            steps=taken + (not new.converged),
            halvings=0.0,
            converged=new.converged,
        )
        return Outcome({**tensors, **events, **given}, loss, over=new.converged)

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


class Risk(TensorModule):
    """Log risks: features in, numbers out.

    Examples
    --------
    >>> Risk({"weight": (1, 2), "means": (2,)})(torch.zeros(3, 2)).tolist()
    [[0.0], [0.0], [0.0]]
    """

    weight: torch.Tensor
    means: torch.Tensor

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return log risks ``[n, 1]`` for features ``[n, F]``."""
        risks: torch.Tensor = (features.flatten(1).double() - self.means) @ self.weight.T
        return risks


def risk_bins(cells: int) -> int:
    """Return the number of bins of the risk.

    Examples
    --------
    >>> risk_bins(53), risk_bins(1000), risk_bins(100_000)
    (256, 65, 16)
    """
    return min(MAX_RISK_BINS, max(MIN_RISK_BINS, MAX_TALLY // cells))


def tally(risks: Floats, cell: Ints, event: npt.NDArray[np.bool_], *, spread: float, cells: int) -> Ints:
    r"""Return events, and departures with or without the event, by cell and bin, ``[2 cells bins]``.

    Samples fall into cells of time, and their risks into bins. With :math:`e_{cb}` events of bin b in cell c, and
    :math:`l_{cb}` samples of bin b that leave in a later cell, or in cell c without the event,

    .. math:: C = \frac{1}{P} \sum_c \sum_b e_{cb} \Bigl( \sum_{a < b} l_{ca} + \tfrac{1}{2} l_{cb} \Bigr), \qquad
              P = \sum_c \sum_b e_{cb} \sum_a l_{ca}

    is Harrell's concordance of times rounded down to their cell and risks rounded to their bin. Rounding of risks moves
    it by at most :math:`\sum_{cb} e_{cb} l_{cb} / (2 P)`.

    Parameters
    ----------
    risks
        Log risks relative to the mean, ``[n]``.
    cell, event
        Cell in which each sample leaves, and whether with the event, ``[n]``.
    spread
        Deviation of log risks as all peers know it: bins have equal shares of a normal distribution.
    cells
        Number of cells.

    References
    ----------
    Harrell et al., Evaluating the yield of medical tests, JAMA 247, 1982.
    """
    count = risk_bins(cells)
    share: Floats = scipy.special.ndtr(risks / spread) if spread > 0 else np.zeros(len(risks))
    place = cell * count + np.minimum((share * count).astype(np.int64), count - 1)
    found = [np.bincount(each, minlength=cells * count) for each in (place[event], place)]
    return np.concatenate(found).astype(np.int64)


def concordance_of(total: Ints, *, cells: int) -> dict[str, float]:
    """Return the concordance and by how much that of the risks themselves can differ; nothing without a pair.

    Parameters
    ----------
    total
        Sum of :func:`tally` over all peers.
    cells
        Number of cells.

    Examples
    --------
    >>> found = tally(np.array([3.0, 2.0, 1.0]), np.array([0, 1, 2]), np.ones(3, bool), spread=1.0, cells=4)
    >>> concordance_of(found, cells=4)
    {'concordance': 1.0, 'concordance_bound': 0.0}
    """
    events, leaving = total.reshape(2, cells, -1)
    later = np.cumsum(leaving[::-1], axis=0)[::-1] - events  # those of the same cell without the event remain
    below = np.cumsum(later, axis=1) - later
    pairs = int((events * later.sum(axis=1, keepdims=True)).sum())
    if not pairs:
        return {}
    tied = int((events * later).sum())
    right = int((events * below).sum())
    return {"concordance": (2 * right + tied) / (2 * pairs), "concordance_bound": tied / (2 * pairs)}
