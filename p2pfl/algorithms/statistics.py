"""Results of sums over all peers: statistics of their features, and the score of one model on all their data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from p2pfl.core.tensors import torch


@dataclass(frozen=True)
class Statistics:
    r"""Statistics of the training data of all peers; the rows are equal.

    Attributes
    ----------
    samples
        ``[R, 1]``: how many.
    classes
        ``[R, C]``: how many of each class; C = 0 where a number is predicted.
    mean, deviation
        ``[R, F]`` of each feature, in single precision; a constant one has the deviation 1.
    """

    samples: torch.Tensor
    classes: torch.Tensor
    mean: torch.Tensor
    deviation: torch.Tensor

    def tensors(self) -> dict[str, torch.Tensor]:
        """By name, to be saved beside a model, which is of no use without them."""
        return {f"scale.{name}": rows[0] for name, rows in vars(self).items()}


Sum = Callable[[torch.Tensor], Awaitable[torch.Tensor]]
"""Function that returns the sum over all peers of private numbers ``[R, K]``, the same in each of the R rows."""


async def statistics(
    total: Sum,
    *,
    totals: torch.Tensor,
    squares: Callable[[torch.Tensor], torch.Tensor],
    features: int,
    resolution: float = 0.0,
) -> Statistics:
    r"""Return mean and deviation of each feature over the samples of all peers.

    .. math:: \mu = \frac{\sum_k \sum_{i \in k} x_i}{\sum_k n_k}, \qquad
              \sigma^2 = \frac{\sum_k \sum_{i \in k} (x_i - \mu)^2}{\sum_k n_k}

    in two sums one after the other, because the one-pass formula loses all digits where the mean is far
    larger than the deviation.

    Parameters
    ----------
    total
        Returns the sum of private numbers over all peers: by exact totals, or directly where all data are at hand.
    totals
        ``[R, 1 + C + F]``: each peer's samples, samples by class, and sums of features.
    squares
        ``squares(mean)`` gives each peer's :math:`\sum_i (x_i - \mu)^2` for a mean ``[R, F]``.
    features
        F.
    resolution
        Resolution of the sums: a feature whose squares add up to no more counts as constant.
    """
    sums = await total(totals)  # [R, 1 + C + F]
    samples = sums[:, :1]  # [R, 1]
    # Single precision, so that totals and sums over all data at once give the same bits.
    middle = (sums[:, -features:] / samples).float()  # [R, F]
    spread = await total(squares(middle.double()))  # [R, F]
    constant = spread <= (samples * (1e-7 * middle.double()) ** 2).clamp_min(resolution)  # [R, F]
    deviation = torch.where(constant, 1.0, spread.clamp_min(0) / samples).sqrt()  # [R, F]
    counts = sums[:, :-features].round().long()  # [R, 1 + C]
    return Statistics(counts[:, :1], counts[:, 1:], middle, deviation.float())


async def score_pooled(
    total: Sum, *, scores: Mapping[str, torch.Tensor], targets: torch.Tensor, squared: bool
) -> dict[str, torch.Tensor]:
    r"""Return the scores of one model on the test data of all peers, each ``[R]``.

    A score is a mean over samples, so :math:`\sum_k n_k s_k / \sum_k n_k` is the score on all of them;
    :math:`R^2` is not, and is taken from the squared error and the variance of all targets.

    Parameters
    ----------
    total
        As in :func:`statistics`.
    scores
        Of each peer on its own test part, ``[R]``.
    targets
        ``[R, 3]``: samples of the test part, the sum of their targets, and of their squares.
    squared
        True if the loss is the squared error, without which there is no :math:`R^2`.
    """
    names = [name for name in scores if name != "r2"]
    counts = targets[:, :1]  # [R, 1]
    columns = [scores[name].double().cpu() for name in names]
    own = torch.stack(columns, dim=-1) if columns else torch.zeros(len(counts), 0, dtype=torch.float64)  # [R, S]
    sums = torch.where(counts > 0, own * counts, 0.0)  # [R, S]; without samples a score is not a number
    pooled = await total(torch.cat([sums, targets], dim=-1))  # [R, S + 3]
    samples = pooled[:, len(names)]  # [R]
    means = {name: pooled[:, column] / samples for column, name in enumerate(names)}
    if "r2" in scores and squared:
        first, second = pooled[:, -2] / samples, pooled[:, -1] / samples  # [R]
        variance = second - first.square()
        means["r2"] = torch.where(variance > 0, 1 - means["loss"] / variance, 0.0)
    return means
