"""Evaluation of a saved model on a table: scores with intervals, for all samples and for groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from p2pfl.core.errors import DataError
from p2pfl.data.tables.cells import TextCells, is_missing
from p2pfl.data.tables.encoding import complete_rows
from p2pfl.learning import metrics
from p2pfl.learning.probability_calibration import GoodnessOfFit, hosmer_lemeshow_ungrouped
from p2pfl.results.models.predictor import Predictor, cells_of

MAX_GROUPS = 20
"""Largest number of groups that a column may make."""


@dataclass(frozen=True)
class Score:
    """Score with its 95 % interval; NaN where it has no value."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class GroupScores:
    """Scores of the samples of one group.

    Parameters
    ----------
    name
        Value of the column; "all" for all samples.
    samples
        Number of samples.
    scores
        Scores by name.
    """

    name: str
    samples: int
    scores: Mapping[str, Score]


@dataclass(frozen=True)
class Evaluation:
    """Scores of a model on a table.

    Parameters
    ----------
    whole
        Scores of all samples.
    by
        Column of the groups; ``None`` without one.
    groups
        Scores of each group, in the order of their names.
    seed, draws
        Seed and number of the bootstrap samples behind the intervals.
    goodness
        Test of Hosmer and Lemeshow of all samples; ``None`` unless there are two classes.
    left_out
        Rows that were left out because a cell is missing, as training leaves them out.
    """

    whole: GroupScores
    by: str | None
    groups: tuple[GroupScores, ...]
    seed: int
    draws: int
    goodness: GoodnessOfFit | None = None
    left_out: int = 0

    def results(self) -> dict[str, Any]:
        """Return the scores as JSON values; NaN becomes null."""
        groups = [_results(group) | {"group": group.name} for group in self.groups]
        whole = _results(self.whole) | {"by": self.by, "groups": groups, "left_out": self.left_out}
        goodness = None if self.goodness is None else asdict(self.goodness)
        interval = {"level": 0.95, "method": "percentile bootstrap", "draws": self.draws, "seed": self.seed}
        return whole | {"hosmer_lemeshow": goodness, "interval": interval}


def evaluate(
    predictor: Predictor,
    source: Any,
    *,
    by: str | None = None,
    seed: int = 0,
    draws: int | None = None,
    unaccounted: bool = False,
) -> Evaluation:
    """Score a model on a table that has the target.

    Parameters
    ----------
    predictor
        The model.
    source
        Path of a CSV or Parquet file, a data frame, or cells already read.
    by
        Column that groups the samples; it need not be a feature. Missing cells are a group of their own.
    seed
        Seed of the bootstrap.
    draws
        Number of bootstrap samples; by default 1,000, and fewer for tables of more than 20,000 rows, down to 100.
    unaccounted
        True if a file that has an account may be scored outside of it.

    Returns
    -------
    Evaluation
        For classes: log loss, accuracy, balanced accuracy, AUC, Brier score and calibration error; for two classes also
        the average precision, slope and intercept of the calibration, and the test of Hosmer and Lemeshow; for numbers:
        squared error, absolute error and :math:`R^2`.

    Raises
    ------
    InputError
        The file has an account.
    DataError
        A column is missing, a cell does not fit it, or the column of the groups has too many values.
    """
    every = cells_of(source, unaccounted=unaccounted)
    cells, _ = complete_rows(every, predictor.fields, missing=predictor.saved.missing)
    names = None if by is None else _groups(cells, by, missing=predictor.saved.missing)
    draws = draws or metrics.affordable(len(cells))
    targets, predictions = predictor.targets(cells), predictor.predict(cells).values
    kinds = {0: metrics.REGRESSION_METRICS, 2: metrics.BINARY_METRICS}.get(
        len(predictor.saved.names), metrics.CLASSIFICATION_METRICS
    )

    def scored(name: str, chosen: Any) -> GroupScores:
        own = predictions[chosen], targets[chosen]
        ranges = metrics.intervals(kinds, *own, seed=seed, draws=draws)
        return GroupScores(name, len(own[1]), {key: Score(kinds[key](*own), *ranges[key]) for key in kinds})

    groups = [] if names is None else [scored(name, names == name) for name in np.unique(names)]
    goodness = hosmer_lemeshow_ungrouped(predictions[:, 1], targets == 1) if kinds is metrics.BINARY_METRICS else None
    return Evaluation(scored("all", slice(None)), by, tuple(groups), seed, draws, goodness, len(every) - len(cells))


def _groups(cells: TextCells, by: str, *, missing: Collection[str]) -> Any:
    names = np.array(["missing" if is_missing(cell, missing) else cell for cell in cells.column(by)])
    count = len(np.unique(names))
    if count > MAX_GROUPS:
        raise DataError(
            f'column "{by}" of {cells.source} has {count} different values, more than {MAX_GROUPS} groups; name a '
            "column with fewer"
        )
    return names


def _results(group: GroupScores) -> dict[str, Any]:
    scores = {
        name: {key: None if np.isnan(value) else value for key, value in asdict(score).items()}
        for name, score in group.scores.items()
    }
    return {"samples": group.samples, "scores": scores}
