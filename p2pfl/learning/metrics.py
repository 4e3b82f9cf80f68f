"""Scores of a whole set of predictions, each by its exact definition, and their intervals by the bootstrap.

The functions take numpy arrays and know nothing of models. ``probabilities`` are ``[n, C]`` with rows that sum to 1,
``targets`` are ``[n]`` positions of classes. A score is NaN where it has no value, such as the AUC of a single class.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.draws import draw
from p2pfl.learning import probability_calibration
from p2pfl.learning.histograms import CONFIDENCE_BINS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BOOTSTRAP_DRAWS = 1000
"""Bootstrap samples of an interval."""

MAX_DRAWN_SAMPLES = 20_000_000
"""Largest number of samples that the bootstrap draws in all, but it draws at least 100 times."""

MIN_PROBABILITY = float(np.finfo(np.float64).eps)
"""Probabilities are kept this far from 0 and 1 in the log loss, as scikit-learn does."""


def accuracy(probabilities: Floats, targets: Ints) -> float:
    """Return the share of samples whose most likely class is the target.

    Examples
    --------
    >>> accuracy(np.array([[0.8, 0.2], [0.6, 0.4]]), np.array([0, 1]))
    0.5
    """
    return float((probabilities.argmax(1) == targets).mean())


def balanced_accuracy(probabilities: Floats, targets: Ints) -> float:
    """Return the mean, over the classes that occur, of the share of samples that are recognised."""
    right = probabilities.argmax(1) == targets
    return float(np.mean([right[targets == label].mean() for label in np.unique(targets)]))


def log_loss(probabilities: Floats, targets: Ints) -> float:
    r"""Return the mean of :math:`-\log p_t` in nats."""
    own = probabilities[np.arange(len(targets)), targets]
    return float(-np.log(own.clip(MIN_PROBABILITY, 1 - MIN_PROBABILITY)).mean())


def brier(probabilities: Floats, targets: Ints) -> float:
    r"""Return the Brier score: the mean of :math:`\sum_c (p_c - [c = t])^2`, halved, so that it is at most 1.

    For two classes this is the mean of :math:`(p_1 - t)^2`.
    """
    hot = np.eye(probabilities.shape[1])[targets]
    return float(np.square(probabilities - hot).sum(1).mean() / 2)


def auc(scores: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve: the probability that a positive sample scores higher than a negative one.

    Ties count half. NaN without a positive or without a negative sample.

    Parameters
    ----------
    scores
        ``[n]``, larger for samples that look positive.
    positive
        ``[n]``.

    Examples
    --------
    >>> auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    0.75
    """
    count = int(positive.sum())
    if not 0 < count < len(positive):
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2)[inverse]  # [n], from 1; ties share their mean rank
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(positive) - count)))


def average_precision(scores: Floats, positive: npt.NDArray[np.bool_]) -> float:
    r"""Return :math:`\sum_k (R_k - R_{k-1}) P_k` over the thresholds, with recall R and precision P.

    NaN without a positive sample.
    """
    if not positive.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    hits = positive[order].cumsum()[last]
    precision = hits / (last + 1)
    return float((np.diff(hits, prepend=0) * precision).sum() / positive.sum())


def macro_auc(probabilities: Floats, targets: Ints) -> float:
    """Return the AUC; with more than two classes, the mean over the classes of each one against the rest.

    NaN unless all classes occur.
    """
    classes = probabilities.shape[1]
    if classes == 2:
        return auc(probabilities[:, 1], targets == 1)
    return float(np.mean([auc(probabilities[:, label], targets == label) for label in range(classes)]))


def calibration_error(probabilities: Floats, targets: Ints) -> float:
    r"""Return the expected calibration error :math:`\sum_b \frac{n_b}{n} |\bar y_b - \bar p_b|`.

    The bins, :data:`~p2pfl.learning.histograms.CONFIDENCE_BINS` of equal width, are those of the probability of the
    most likely class, as for the common model of all peers (:mod:`p2pfl.learning.histograms`).
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == targets
    bins = np.minimum((confidence * CONFIDENCE_BINS).astype(np.int64), CONFIDENCE_BINS - 1)
    gaps = np.bincount(bins, weights=right - confidence, minlength=CONFIDENCE_BINS)
    return float(np.abs(gaps).sum() / len(targets))


def mean_squared_error(predictions: Floats, targets: Floats) -> float:
    """Return the mean squared error."""
    return float(np.square(predictions - targets).mean())


def mean_absolute_error(predictions: Floats, targets: Floats) -> float:
    """Return the mean absolute error."""
    return float(np.abs(predictions - targets).mean())


def r2(predictions: Floats, targets: Floats) -> float:
    r"""Return the coefficient of determination :math:`R^2`; NaN where the targets do not vary."""
    return determination(mean_squared_error(predictions, targets), float(targets.var()))


def determination(error: float, variance: float) -> float:
    r"""Return :math:`R^2 = 1 - \text{mean squared error} / \text{variance of the targets}`; NaN without a variance.

    Examples
    --------
    >>> determination(0.5, 2.0)
    0.75
    """
    return 1 - error / variance if variance else float("nan")


Metric = Callable[[Floats, npt.NDArray[Any]], float]
"""Score of predictions and targets."""

CLASSIFICATION_METRICS: Mapping[str, Metric] = {
    "loss": log_loss,
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "auc": macro_auc,
    "brier": brier,
    "calibration_error": calibration_error,
}
"""Scores of probabilities by name."""

BINARY_METRICS: Mapping[str, Metric] = {
    **CLASSIFICATION_METRICS,
    "average_precision": lambda probabilities, targets: average_precision(probabilities[:, 1], targets == 1),
    "calibration_slope": probability_calibration.slope,
    "calibration_intercept": probability_calibration.intercept,
}
"""Scores of the probabilities of two classes by name."""

REGRESSION_METRICS: Mapping[str, Metric] = {
    "loss": mean_squared_error,
    "mean_absolute_error": mean_absolute_error,
    "r2": r2,
}
"""Scores of predicted numbers by name."""


def affordable(samples: int) -> int:
    """Return the number of bootstrap samples for so many samples in all.

    Examples
    --------
    >>> affordable(500), affordable(50_000)
    (1000, 400)
    """
    return max(100, min(BOOTSTRAP_DRAWS, MAX_DRAWN_SAMPLES // samples))


def intervals(
    metrics: Mapping[str, Metric],
    predictions: Floats,
    targets: npt.NDArray[Any],
    *,
    seed: int,
    draws: int = BOOTSTRAP_DRAWS,
) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of each score by the percentile bootstrap over samples.

    All scores use the same draws. A draw in which a score has no value does not count for that score. The interval is
    NaN if all draws that count have the same score, as those of a single sample: they do not show how far it varies.

    Parameters
    ----------
    metrics
        Scores by name.
    predictions, targets
        ``[n, ...]`` and ``[n]``.
    seed
        Seed of the draws, by the key ``(seed, "bootstrap")``.
    draws
        Number of bootstrap samples.

    References
    ----------
    Efron, Tibshirani. An introduction to the bootstrap. Chapman and Hall, 1993.

    Examples
    --------
    >>> rng = draw(7, "example")
    >>> predictions = rng.normal(size=400)
    >>> low, high = intervals(REGRESSION_METRICS, predictions, predictions + rng.normal(size=400), seed=0)["loss"]
    >>> low < 1 < high
    True
    """
    size, rng = len(targets), draw(seed, "bootstrap")
    drawn: dict[str, list[float]] = {name: [] for name in metrics}
    for _ in range(draws):
        chosen = rng.integers(size, size=size)
        for name, metric in metrics.items():
            drawn[name].append(metric(predictions[chosen], targets[chosen]))
    return {name: _middle(np.array(values)) for name, values in drawn.items()}


def _middle(values: Floats) -> tuple[float, float]:
    numbers = values[~np.isnan(values)]
    if not len(numbers) or numbers.min() == numbers.max():
        return float("nan"), float("nan")
    low, high = np.quantile(numbers, [0.025, 0.975])
    return float(low), float(high)


def concordance(risks: Floats, targets: npt.NDArray[Any]) -> float:
    """Return Harrell's concordance: the share of comparable pairs that the risks order correctly; ties count half.

    Examples
    --------
    >>> concordance(np.array([3.0, 2.0, 1.0]), np.array([1.0, 2.0, -3.0]))
    1.0
    """
    passed, event = np.abs(targets), ~np.signbit(targets)
    right = pairs = 0.0
    for index in np.flatnonzero(event).tolist():
        later = (passed > passed[index]) | ((passed == passed[index]) & ~event)
        right += float((risks[index] > risks[later]).sum() + 0.5 * (risks[index] == risks[later]).sum())
        pairs += int(later.sum())
    return right / pairs if pairs else 0.5
