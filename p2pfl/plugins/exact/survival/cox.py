""":class:`Cox`, proportional hazards from exact totals over cells of time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.explanations import Explained
from p2pfl.core.tensors import torch
from p2pfl.data.data_description import Field, feature_names
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Own, Owns, Part, Round, Tensors
from p2pfl.learning.small_cells import CellCheck
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import labels_of, located
from p2pfl.plugins.exact.design_cells import Design, OutcomeCells, check_design
from p2pfl.plugins.exact.elementary import added, inverse, product, times
from p2pfl.plugins.exact.leverage import RowSums
from p2pfl.plugins.exact.regression.fits import UNKNOWN, LikelihoodModel, converged, newton, shown_knots, with_errors
from p2pfl.plugins.exact.regression.inference import chi_squared_tail, used_coefficients
from p2pfl.plugins.exact.regression.sandwich import CLASSICAL, CLUSTER, Scores
from p2pfl.plugins.exact.survival.concordance import concordance_of, tally
from p2pfl.plugins.exact.survival.grid import Grid, TimedModel, UnionGrid
from p2pfl.plugins.exact.survival.risk_sets import (
    TRANSFORMS,
    CellSums,
    drift,
    hazards,
    partial_likelihood,
    transformed,
)
from p2pfl.plugins.exact.survival.roles import TimeRoles
from p2pfl.plugins.exact.survival.score_residuals import ScoreCells, proportionality
from p2pfl.plugins.exact.survival.time_cells import TimeCells, check_time
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


@dataclass(frozen=True, kw_only=True)
class Cox(LikelihoodModel, TimedModel):
    r"""Proportional hazards, with standard errors.

    A round is one step of Newton's method on the partial likelihood. Peers add up, by the stratum and the cell in which
    a sample leaves, :math:`w, w x, w x x^T` with :math:`w = e^{x^T \beta}`, and the same of those with the event, and
    of those that enter in a cell. Risk sets are differences of sums of later cells, so they need no total of their own.
    A sample whose features change over time is several rows, each with its time of entry.

    Parameters
    ----------
    features
        Number of features.
    classes
        ``None``: the target is a time.
    horizon
        End of the grid of times.
    width
        Width of a cell of the grid; times within a cell are tied. ``auto`` for cells that are cut in two as long as
        few samples leave in neither.
    times
        ``grid``, or ``union`` for cells that begin at the times of all samples, up to 4,096, which every peer then
        learns; it needs ``least`` of 1.
    ties
        ``efron`` or ``breslow``.
    strata
        Column with levels, each of which has a hazard of its own.
    entry
        Column of numbers: the time after which a row is at risk. All are from the begin on if ``None``.
    cause
        Column with levels that says which kind of event happened; its first level is none.
    failure
        Level of ``cause`` that is the event of interest.
    hazard
        With ``cause``: ``cause_specific``, under which other events censor, or ``subdistribution``, under which whoever
        has one stays at risk as long as censoring would have left them (Fine and Gray).
    errors
        ``classical``, or ``robust`` as those of subdistribution hazards always are; or ``cluster``, robust to
        dependence within clusters, such as the rows of a person.
    cluster
        Name of the column of clusters, whose groups lie within one peer; each peer is a cluster by default. The owners
        make sure of it where clusters are numbers; levels are checked.
    transform
        Function of time with which coefficients change in the test of proportional hazards: ``km``, ``identity`` or
        ``rank``, as in R's ``cox.zph``.
    ridge
        Half of this times the squared norm of the coefficients is subtracted from the log-likelihood.
    least
        Least number of samples of whatever a total singles out; 1 if a single one may be shown. A peer with fewer
        training samples takes no part.
    merge
        ``rare`` to merge levels with fewer samples; ``""`` to refuse them.
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
        "with least = 1, a cell that one sample leaves shows all features of that sample"
    )
    checks: ClassVar[str] = (
        "a cell of time, those with the event in it, those with a level or one of two values of a column among them, "
        "or nearly alone in a combination of columns"
    )
    column_options: ClassVar[tuple[str, ...]] = ("strata", "entry", "cause", "cluster")

    ties: str = "efron"
    strata: str | None = None
    entry: str | None = None
    cause: str | None = None
    failure: str | None = None
    hazard: str = "cause_specific"
    errors: str = CLASSICAL
    cluster: str | None = None
    transform: str = "km"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ties not in {"efron", "breslow"}:
            raise ModelError(f'model.options.ties is "{self.ties}"; set it to "efron" or "breslow"')
        if self.transform not in TRANSFORMS:
            raise ModelError(f'model.options.transform is "{self.transform}"; choose from {", ".join(TRANSFORMS)}')
        if self.errors not in {CLASSICAL, "robust", CLUSTER}:
            raise ModelError(f'model.options.errors is "{self.errors}"; set it to "classical", "robust" or "cluster"')
        if self.cluster is not None and not self.clustered:
            raise ModelError(
                f'model.options.cluster has no effect with errors = "{self.errors}"; set errors to "cluster"'
            )
        self._check_hazard()
        self.check_limits()
        _ = self.roles  # checks the columns

    def _check_hazard(self) -> None:
        if self.hazard not in {"cause_specific", "subdistribution"}:
            raise ModelError(
                f'model.options.hazard is "{self.hazard}"; set it to "cause_specific" or "subdistribution"'
            )
        if self.subdistribution and self.cause is None:
            raise ModelError('model.options.hazard = "subdistribution" needs kinds of events; set cause and failure')
        if self.subdistribution and self.entry is not None:
            raise ModelError(
                'model.options.entry does not work with hazard = "subdistribution", whose weights would need the '
                'distribution of entries; leave it out, or set hazard = "cause_specific"'
            )
        if self.robust and self.ridge:
            raise ModelError("model.options.ridge does not work with robust errors; leave one of the two out")

    @property
    def subdistribution(self) -> bool:
        """True if whoever has another event stays at risk."""
        return self.hazard == "subdistribution"

    @property
    def robust(self) -> bool:
        """True if standard errors follow from the residuals."""
        return self.errors != CLASSICAL or self.subdistribution

    @property
    def clustered(self) -> bool:
        """True if standard errors are robust to dependence within clusters."""
        return self.errors == CLUSTER

    @property
    def alone(self) -> Self:
        """The model without limits, for a peer that learns alone, which is one cluster."""
        peers = self.clustered and self.cluster is None
        return replace(super().alone, errors=CLASSICAL) if peers else super().alone

    @property
    def event_kinds(self) -> str | None:
        """Name of the column that says which kind of event happened."""
        return self.cause

    @cached_property
    def roles(self) -> TimeRoles:
        """Columns that are no features."""
        names = {"strata": self.strata, "entry": self.entry, "cause": self.cause, "failure": self.failure}
        names |= {"cluster": self.cluster}
        return TimeRoles.of(self.features, self.fields, **names)

    @property
    def unscaled(self) -> tuple[int, ...]:
        """Positions of the columns that must keep their units."""
        return self.roles.unscaled

    @property
    def training_only(self) -> tuple[str, ...]:
        """Names of the columns on which log risks do not depend."""
        return tuple(name for name in (self.strata, self.entry, self.cause, self.cluster) if name is not None)

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        robust = options.get("errors", CLASSICAL) != CLASSICAL or options.get("hazard") == "subdistribution"
        sets = " of each cluster, and their number" if options.get("errors") == CLUSTER else ""
        roles = {"strata": "of each stratum", "entry": "or enter", "hazard": "or have another event"}
        ways = " ".join(words for option, words in roles.items() if options.get(option) not in {None, "cause_specific"})
        shows = (
            super()
            .shown(options)
            .replace("leave in each cell", f"leave {ways} in each cell" if ways else "leave in each cell")
        )
        return shows + (f"; and the sums of products of score residuals{sets}" if robust else "") + shown_knots(options)

    @property
    def scored(self) -> str:
        """Kind of the score."""
        return "risks" if self.strata is None and self.entry is None and self.cause is None else "tallied risks"

    @property
    def cells(self) -> int:
        """Number of cells that the tensors have room for."""
        return self.room + 1 if self.listed else self.grid({}).cells

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        width, by_cell = len(self.roles.kept), (len(self.roles.levels), self.cells)
        shapes: Shapes = {"weight": (1, self.features), "means": (self.features,), "step": (width,)}
        shapes |= dict.fromkeys(("covariance", "moments", "drift_variance"), (width, width)) | {"drift": (width,)}
        shapes |= {"hazard": by_cell, "hazard_square": by_cell, "hazard_means": (*by_cell, width)}
        shapes |= dict.fromkeys(SCALARS, (1,))
        shapes |= {"levels": (self.features,)} if self.merges_levels else {}
        shapes |= {"clusters": (1,)} if self.clustered else {}
        return shapes | self.splines.shapes | self.time_shapes

    @property
    def design_columns(self) -> Design:
        """Columns that have coefficients."""
        return Design.of(self.features, self.fields, kept=self.roles.kept)

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Refuse or merge levels and cells of time in which few samples leave or enter, by stratum, event and feature.

        With times of entry, each row of a sample counts.
        """
        tensors, agreed = yield from self.agree(tensors, check)
        if agreed.least == 1 and not self.auto:
            return tensors
        design = yield from self.design_columns.find_pairs(agreed)
        outcomes: tuple[str, ...] = ("rows without the event", "rows with the event")
        outcomes += ("rows with another event",) if self.subdistribution else ()
        design = yield from check_design(
            design, agreed, outcomes=outcomes, count=self._count_cells, merges=self.merges_levels
        )
        strata = [f"{self.strata}={level}" for level in self.roles.levels] if self.strata is not None else []
        cells = TimeCells(self.grid(tensors), design.sets, lambda own: [own.train], self._moves, self._ways, strata)
        tensors = yield from check_time(self, tensors, agreed, cells)
        return {**tensors, "levels": design.levels.astype(np.float64)} if self.merges_levels else tensors

    def row_sums(self, tensors: Tensors) -> RowSums | None:
        """Return the sum over all cells of time before the first step; those of a cell are of few people anyway."""
        if tensors["samples"][0]:
            return None
        kept, names = self.roles.kept, feature_names(self.features, self.fields)
        merged = self.design_columns.merging(tensors["levels"]) if self.merges_levels else None

        def columns(part: Part) -> Floats:
            valued = self.splines.evaluated(tensors, part.features)
            features = valued if merged is None else merged.joined(valued)
            return features[:, kept].astype(np.float64)

        return RowSums.unweighted(columns, [names[index] for index in kept.tolist()])

    def _count_cells(self, cells: OutcomeCells, own: Own) -> Ints:
        _, event = UnionGrid(np.zeros(1), self.last).placed(own.train.targets)
        diverted = self.roles.diverted(own.train.features, event)
        other = 2 if self.subdistribution else 0
        return cells.count(own.train, np.where(diverted, other, event.astype(np.int64)))

    @property
    def _ways(self) -> int:
        return len(self.roles.levels) * (2 + (self.entry is not None) + self.subdistribution)

    def _moves(self, part: Part, grid: Grid | UnionGrid) -> list[Ints]:
        """Return the cell of each sample that leaves without an event, with one, or enters, by stratum; -1 for none."""
        cell, event, entered = self._cells(part, grid)
        diverted = self._diverted(part, grid) & self.subdistribution
        moves = [np.where(event | diverted, -1, cell), np.where(event, cell, -1)]
        moves += [] if entered is None else [entered]
        moves += [np.where(diverted, cell, -1)] if self.subdistribution else []
        strata = range(len(self.roles.levels))
        return [np.where(each // grid.cells == stratum, each % grid.cells, -1) for stratum in strata for each in moves]

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
            self.check_coefficients(len(self.roles.kept), samples)
            means = sums.numbers(total[:-2]) / samples
            counts = scalars(samples=samples, held_out=held if self.owned else UNKNOWN)
            tensors = {**tensors, **counts, "means": means}
            tensors = {**tensors, **(yield from self.unite(lambda peer: own(peer).train.targets))}
        summed = yield from self._summed(tensors, own)
        if not summed.compares:
            raise LearningError(
                "nobody is at risk in a cell of time in which others have the event, so there is nothing to compare; "
                "take narrower cells by model.options.width, or more people"
            )
        outcome = self._step(summed, tensors)
        if not (outcome.over and self.robust):
            return outcome
        cells = ScoreCells.of(summed, efron=self.ties == "efron")
        residuals = cache(lambda part: self._residuals(part, tensors, cells))
        scores = Scores(
            len(self.roles.kept),
            lambda part, where: residuals(part)[where],
            lambda part, where: np.ones(len(part))[where],
        )
        if self.clustered:
            where = self.roles.clusters
            levels = 0 if where is None or where.stop - where.start == 1 else where.stop - where.start
            meat = yield from scores.of_clusters(own, lambda part: self.roles.groups(part.features), levels=levels)
        else:
            meat = yield from scores.of_samples(own)
        bread = outcome.tensors["covariance"]
        given = {"covariance": product(product(bread, meat.matrix), bread)}
        given |= scalars(clusters=meat.clusters) if self.clustered else {}
        return replace(outcome, tensors={**outcome.tensors, **given})

    def _residuals(self, part: Part, tensors: Tensors, scores: ScoreCells) -> Floats:
        """Return the score residuals of the samples of a peer, ``[n, p]``."""
        grid, values = self.grid(tensors), self._centred(tensors, part.features)
        cell, event, entered = self._cells(part, grid)
        risks = np.exp(np.clip(times(values, self._beta(tensors)), -STEEPEST, STEEPEST))
        diverted = self._diverted(part, grid) & self.subdistribution
        return scores.residuals(values, risks, cell, event=event, diverted=diverted, entered=entered, cells=grid.cells)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return the log of the risk relative to a sample of mean features, ``[n, 1]``."""
        return self._risk(tensors, part)[:, None]

    def tally(self, tensors: Tensors, part: Part) -> Ints:
        """Return histograms of risks by cell of time, see :func:`p2pfl.plugins.exact.survival.concordance.tally`."""
        beta, grid = self._beta(tensors), self.grid(tensors)
        variance = added(beta * times(tensors["moments"], beta)) / max(1.0, float(tensors["samples"][0]))
        spread, cells = math.sqrt(max(0.0, variance)), grid.cells * len(self.roles.levels)
        cell, event, entered = self._cells(part, grid)
        return tally(self._risk(tensors, part), cell, event, spread=spread, cells=cells, entered=entered)

    def tallied(self, tensors: Tensors, total: Ints) -> dict[str, float]:
        """Return the scores that follow from the sum of histograms over all peers."""
        strata = len(self.roles.levels)
        concordance = concordance_of(total, cells=self.grid(tensors).cells * strata, strata=strata)
        return {"loss": 1 - concordance["concordance"], **concordance} if concordance else {}

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return the coefficients, once the steps have converged, and the test of proportional hazards."""
        del classes
        facts = converged(tensors, (*FACTS, *(("clusters",) if self.clustered else ())))
        if facts is None:
            return None
        labels, kept = self.merged_labels(labels_of(fields), tensors), self.roles.kept.tolist()
        beta, names = self._beta(tensors), [labels[index] for index in kept]
        freedom = used_coefficients(tensors["covariance"])
        if not (self.ridge or self.subdistribution) and freedom:
            gain = 2 * (facts["likelihood"] - facts["null_likelihood"])
            facts |= {"chi2": gain, "chi2_freedom": freedom, "chi2_p": chi_squared_tail(gain, freedom)}
        facts |= self.splines.facts(tensors)
        ratio = "subdistribution hazard ratio" if self.subdistribution else "hazard ratio"
        kind = CLUSTER if self.clustered else "robust" if self.robust else None
        fit = with_errors(self.name, beta, tensors, names, facts, ridge=self.ridge, ratio=ratio, errors=kind)
        if self.ridge or self.subdistribution or fit.regression is None:
            return fit
        tests = proportionality(tensors, kept, located(self.features, fields))
        return replace(fit, regression=replace(fit.regression, tests=tests))

    def _beta(self, tensors: Tensors) -> Floats:
        """Return the coefficients, ``[p]``."""
        return np.asarray(tensors["weight"][0][self.roles.kept])

    def _weighing(self, beta: Floats) -> Floats:
        """Return coefficients as the tensor of weights, in which columns with a role have none."""
        weight = np.zeros((1, self.features))
        weight[0, self.roles.kept] = beta
        return weight

    def _centred(self, tensors: Tensors, features: np.ndarray) -> Floats:
        """Return the features less their means, ``[n, p]``."""
        kept = self.roles.kept
        return np.asarray(features[:, kept].astype(np.float64) - tensors["means"][kept])

    def _risk(self, tensors: Tensors, part: Part) -> Floats:
        features = self.splines.evaluated(tensors, part.features)
        return times(self._centred(tensors, features), self._beta(tensors))

    def _counted(self, peer: str, own: Own) -> Ints:
        part = own.train
        check_least(peer, len(part), least=self.least)
        part.check_complete(peer, model=self.name)
        self.roles.check(peer, part.features, part.targets)
        wide = part.features.astype(np.float64)
        if self.roles.clusters is not None:
            wide[:, self.roles.clusters] = 0.0  # nobody needs a sum of numbers of people
        counts = [len(part), self.held_out(own)]
        return np.append(sums.summed(len(part), self.features, lambda where: wide[where]), counts)

    def _cells(self, part: Part, grid: Grid | UnionGrid) -> tuple[Ints, npt.NDArray[np.bool_], Ints | None]:
        """Return the cells in which samples leave, whether with the event, and in which they enter; -1 for none.

        The cells of a stratum follow those of the one before. Whoever has the event in the cell in which they enter is
        at risk in it.
        """
        cell, event = grid.placed(part.targets)
        event = event & ~self.roles.diverted(part.features, event)
        begin = self.roles.stratum(part.features) * grid.cells
        times_of_entry = self.roles.entered(part.features)
        if times_of_entry is None:
            return begin + cell, event, None
        entered = grid.entered(times_of_entry)
        entered = np.where(event, np.minimum(entered, cell - 1), np.minimum(entered, cell))
        return begin + cell, event, np.where(entered >= 0, begin + entered, -1)

    def _diverted(self, part: Part, grid: Grid | UnionGrid) -> npt.NDArray[np.bool_]:
        """Return whether each sample has another event than that of interest, ``[n]``."""
        return self.roles.diverted(part.features, grid.placed(part.targets)[1])

    def _summed(self, tensors: Tensors, own: Owns) -> Asked[CellSums]:
        """Ask for the sums by stratum and cell at the coefficients of a model."""
        width, grid, strata = len(self.roles.kept), self.grid(tensors), len(self.roles.levels)
        groups, terms = strata * grid.cells, 1 + width + width * (width + 1) // 2
        blocks = 2 + (self.entry is not None or self.subdistribution)
        size = sums.size(groups * (blocks * terms + width))
        total = yield Question(lambda peer: self._terms(own(peer).train, tensors, grid), size=size + blocks * groups)
        numbers = sums.numbers(total[:size])
        by_cell = numbers[: blocks * groups * terms].reshape(blocks, strata, grid.cells, terms)
        counts = total[size:].reshape(blocks, strata, grid.cells)
        nobody = (np.zeros_like(by_cell[0]), np.zeros_like(counts[0]))
        entering, entered = nobody if self.entry is None else (by_cell[2], counts[2])
        diverted, lost = (by_cell[2], counts[2]) if self.subdistribution else nobody
        covered = numbers[blocks * groups * terms :].reshape(strata, grid.cells, width)
        return CellSums(by_cell[0], by_cell[1], entering, diverted, covered, counts[0], counts[1], entered, lost)

    def _terms(self, part: Part, tensors: Tensors, grid: Grid | UnionGrid) -> Ints:
        """Return the sums of a peer by stratum and cell: of those that leave, have an event, or enter."""
        beta, groups = self._beta(tensors), len(self.roles.levels) * grid.cells
        upper = np.triu_indices(len(beta))

        def centred(chosen: Ints) -> Callable[[slice], Floats]:
            return lambda where: self._centred(tensors, part.features[chosen[where]])

        def weighted(chosen: Ints) -> Callable[[slice], Floats]:
            def each(where: slice) -> Floats:
                values = self._centred(tensors, part.features[chosen[where]])
                risk = np.exp(np.clip(times(values, beta), -STEEPEST, STEEPEST))[:, None]
                return np.concatenate([risk, risk * values, risk * values[:, upper[0]] * values[:, upper[1]]], axis=1)

            return each

        cell, event, entered = self._cells(part, grid)
        blocks = [(np.arange(len(part)), cell), (np.flatnonzero(event), cell[event])]
        if entered is not None:
            blocks.append((np.flatnonzero(entered >= 0), entered[entered >= 0]))
        if self.subdistribution:
            diverted = np.flatnonzero(self._diverted(part, grid))
            blocks.append((diverted, cell[diverted]))
        terms = 1 + len(beta) + len(upper[0])
        tables = [
            sums.summed(len(chosen), terms, weighted(chosen), groups=where, number=groups) for chosen, where in blocks
        ]
        chosen, where = blocks[1]
        tables.append(sums.summed(len(chosen), len(beta), centred(chosen), groups=where, number=groups))
        counts = [np.bincount(where, minlength=groups) for _, where in blocks]
        return np.concatenate(
            [np.concatenate([each.reshape(sums.WORDS, -1) for each in tables], axis=1).ravel(), *counts]
        ).astype(np.int64)

    def _step(self, summed: CellSums, tensors: Tensors) -> Outcome:
        """Return the model after a step, or after half of the last one if that lowered the likelihood."""
        beta, efron = self._beta(tensors), self.ties == "efron"
        taken, before = int(tensors["steps"][0]), float(tensors["objective"][0])
        partial = partial_likelihood(summed, beta, efron=efron)
        events = int(summed.died.sum())
        objective = partial.value - 0.5 * self.ridge * added(beta * beta)
        tensors = {**tensors, **scalars(events=events), **({} if taken else {"moments": summed.moments})}
        loss = -partial.value / max(1, events)
        if taken and objective < before - 1e-10 * max(1.0, abs(before)):
            half, halvings = tensors["step"] / 2, tensors["halvings"] + 1
            if halvings[0] > HALVINGS:
                raise self._endless(_steepest(beta, tensors["moments"]))
            shorter = {"weight": self._weighing(beta - half), "step": half, "halvings": halvings}
            return Outcome({**tensors, **shorter}, loss)
        if partial.value > 1e-6:  # probabilities are at most 1, so log risks are beyond their bound
            raise self._endless(_steepest(beta, tensors["moments"]))
        covariance, _ = inverse(partial.information + self.ridge * np.eye(len(beta)))
        gained = float(tensors["decrement"][0]) if taken else None
        score = partial.score - self.ridge * beta
        new = newton(covariance, score, tensors["moments"], before=gained, size=partial.value)
        if new.endless is not None:
            raise self._endless(new.endless)
        weight = self._weighing(beta if new.converged else beta + new.step)
        given = {"weight": weight, "step": new.step, "covariance": covariance} | scalars(
            likelihood=partial.value,
            objective=objective,
            null_likelihood=tensors["null_likelihood"][0] if taken else partial.value,
            decrement=new.decrement,
            steps=taken + (not new.converged),
            halvings=0.0,
            converged=new.converged,
        )
        if new.converged:
            given |= self._over_time(summed, tensors)
        return Outcome({**tensors, **given}, loss, over=new.converged)

    def _over_time(self, summed: CellSums, tensors: Tensors) -> Tensors:
        """Return the hazards of a model that has converged, and how its coefficients change over time."""
        efron, grid = self.ties == "efron", self.grid(tensors)
        baseline = hazards(summed, efron=efron)
        ends = np.append(grid.ends(np.arange(grid.cells - 1)), 0.0)  # nobody has the event beyond the last
        change = drift(summed, transformed(summed, ends, transform=self.transform), efron=efron)
        room = {"hazard": baseline.hazard, "hazard_square": baseline.square, "hazard_means": baseline.means}
        shapes = self.shapes
        padded = {name: np.zeros(shapes[name]) for name in room}
        for name, values in room.items():
            padded[name][:, : grid.cells] = values
        return {**padded, "drift": change.score, "drift_variance": change.variance}

    def _endless(self, index: int) -> LearningError:
        """Return the error of a coefficient that grows without bound."""
        name = feature_names(self.features, self.fields)[self.roles.kept[index]]
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
        risks: torch.Tensor = (self.inputs(features) - self.means) @ self.weight.T
        return risks
