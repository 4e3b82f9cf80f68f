r"""Scores of classifiers that follow from integer histograms, whose sums over peers are exact.

With C classes, :math:`p_i` the softmax of the outputs for sample i, and :math:`\hat c_i` the most likely class:

- **Expected calibration error**: samples fall into ``CONFIDENCE_BINS`` equal bins of :math:`\max_c p_{ic}`, and

  .. math:: \mathrm{ECE} = \frac{1}{n} \sum_b \Bigl\lvert \sum_{i \in b} [\hat c_i = y_i]
            - \sum_{i \in b} \max_c p_{ic} \Bigr\rvert,

  where each confidence is rounded to a multiple of :math:`2^{-20}`.
- **Area under the ROC curve**, for two classes: samples fall into ``SCORE_BINS`` equal bins of :math:`p_{i1}`, and with
  :math:`P_b` and :math:`N_b` samples of class 1 and 0 in bin b

  .. math:: \mathrm{AUC} = \frac{1}{P N} \sum_b P_b \Bigl( \sum_{a < b} N_a + \tfrac{1}{2} N_b \Bigr),

  which is the area for scores that are rounded down to their bin.
  Bins hide the order of scores within them, so it is at most :math:`\sum_b P_b N_b / (2 P N)` from the area for the
  scores themselves.
- **Brier score**: :math:`\tfrac{1}{2 n} \sum_i \sum_c (p_{ic} - [c = y_i])^2`, where what each sample adds is
  rounded to a multiple of :math:`2^{-30}`.
- **Test of Hosmer and Lemeshow**, for two classes: the same bins, with the sums of :math:`p_{i1}`, each rounded to a
  multiple of :math:`2^{-30}`, make ten groups, see
  :func:`p2pfl.learning.probability_calibration.hosmer_lemeshow`.

References
----------
Guo, Pleiss, Sun, Weinberger, On calibration of modern neural networks, ICML 2017; Hanley and McNeil, The meaning and
use of the area under a receiver operating characteristic (ROC) curve, Radiology 143, 1982.
"""

from __future__ import annotations

import numpy as np

from p2pfl.core.tensors import torch
from p2pfl.data import IntArray
from p2pfl.learning.probability_calibration import hosmer_lemeshow

CONFIDENCE_BINS = 15
"""Bins of the confidence."""

SCORE_BINS = 1000
"""Bins of the probability of class 1."""

_POINTS_PER_UNIT = 2**20  # resolution of a confidence

_FINE_PER_UNIT = 2**30  # resolution of a probability of class 1, and of a squared error


def length(classes: int) -> int:
    """Return the number of integers of the histograms of a classifier.

    Examples
    --------
    >>> length(10), length(2)
    (46, 3046)
    """
    return 3 * CONFIDENCE_BINS + 1 + (3 * SCORE_BINS if classes == 2 else 0)


def histograms(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the histograms of samples, ``[T]`` int64.

    They are counts, hits and confidences by bin, the sum of squared errors, and for two classes counts of both classes
    and sums of scores by bin.

    Parameters
    ----------
    outputs
        Logits, ``[B, C]``.
    targets
        Classes, ``[B]``.

    Examples
    --------
    >>> counts = histograms(torch.tensor([[0.0, 9.0], [9.0, 0.0]]), torch.tensor([1, 1]))
    >>> counts[:15].sum(), counts[15:30].sum(), counts[46:2046].sum()
    (tensor(2), tensor(1), tensor(2))
    """
    chances = outputs.double().softmax(-1)  # [B, C]
    confidence, likely = chances.max(-1)  # [B]
    bins = _bins_of(confidence, CONFIDENCE_BINS)
    points = (confidence * _POINTS_PER_UNIT).round().long()  # [B]
    hits = (likely == targets).long()  # [B]
    parts = [_count(bins, values, CONFIDENCE_BINS) for values in (torch.ones_like(hits), hits, points)]
    gaps = chances - torch.nn.functional.one_hot(targets.long(), chances.shape[-1])  # [B, C]
    parts.append((gaps.square().sum(-1) * (_FINE_PER_UNIT / 2)).round().long().sum().reshape(1))
    if chances.shape[-1] == 2:
        bins = _bins_of(chances[:, 1], SCORE_BINS) + SCORE_BINS * targets.long()  # class 0, then class 1
        parts.append(_count(bins, torch.ones_like(hits), 2 * SCORE_BINS))
        fine = (chances[:, 1] * _FINE_PER_UNIT).round().long()
        parts.append(_count(_bins_of(chances[:, 1], SCORE_BINS), fine, SCORE_BINS))
    return torch.cat(parts)


def count_samples(total: IntArray) -> int:
    """Return the number of samples in the sum of histograms."""
    return int(total[:CONFIDENCE_BINS].sum())


def score_histograms(total: IntArray, *, copies: int = 1) -> dict[str, float]:
    """Return the scores that follow from the sum of histograms over all peers, by name; none without samples.

    Parameters
    ----------
    total
        ``[T]``.
    copies
        How often each sample counts: once, or by as many peers as share a common test part. A test would take copies
        for further samples.

    Examples
    --------
    >>> logits = torch.tensor([[0.0, 2.0], [0.0, 1.0], [1.0, 0.0], [2.0, 0.0]])
    >>> scores = score_histograms(histograms(logits, torch.tensor([1, 0, 1, 0])).numpy())
    >>> round(scores["calibration_error"], 3), scores["auc"]
    (0.425, 0.75)
    """
    counts, hits, points = total[: 3 * CONFIDENCE_BINS].reshape(3, CONFIDENCE_BINS)
    samples = int(counts.sum())
    if not samples:
        return {}
    gaps = np.abs(hits * _POINTS_PER_UNIT - points)  # [B], exact
    first = 3 * CONFIDENCE_BINS
    scores = {
        "calibration_error": int(gaps.sum()) / (_POINTS_PER_UNIT * samples),
        "brier": int(total[first]) / (_FINE_PER_UNIT * samples),
    }
    if len(total) > first + 1:
        negative, positive, fine = total[first + 1 :].reshape(3, SCORE_BINS)
        pairs = int(negative.sum()) * int(positive.sum())
        below = np.cumsum(negative) - negative  # [B]
        if pairs:  # with one class alone there is no curve
            scores["auc"] = int((positive * (2 * below + negative)).sum()) / (2 * pairs)
            scores["auc_bound"] = int((positive * negative).sum()) / (2 * pairs)
        test = hosmer_lemeshow((negative + positive) // copies, positive // copies, fine / (_FINE_PER_UNIT * copies))
        if test is not None:
            scores |= {"hosmer_lemeshow": test.statistic, "hosmer_lemeshow_p": test.p}
    return scores


def _bins_of(values: torch.Tensor, bins: int) -> torch.Tensor:
    return (values * bins).long().clamp(0, bins - 1)


def _count(bins: torch.Tensor, values: torch.Tensor, count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64, device=bins.device).index_add_(0, bins, values)
