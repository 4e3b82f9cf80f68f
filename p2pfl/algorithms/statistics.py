"""Sums over all peers without a server: exact means, statistics of features, one model and its score on all data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import torch

from p2pfl.algorithms.gossip import Gossip, maximum
from p2pfl.neighbourhood import Neighbourhood, Released
from p2pfl.rows import Rows


@dataclass(frozen=True)
class Accord:
    r"""Agreement on the mean of public models, after which all peers hold the same numbers, bit for bit.

    Gossip brings every model to the mean, up to its tolerance. Then the peers flood the largest of the nearly equal
    numbers, parameter by parameter, which takes as many gossip steps as the diameter of the graph.

    Parameters
    ----------
    gossip
        To a tolerance that is below what matters.
    diameter
        Gossip steps in which a number reaches all peers.

    References
    ----------
    Boyd, Ghosh, Prabhakar, Shah, Randomized gossip algorithms, IEEE Trans. Information Theory 52, 2006
    (averaging); the flood is the max-consensus of Olfati-Saber and Murray, IEEE Trans. Automatic Control 49, 2004.
    """

    gossip: Gossip
    diameter: int

    @property
    def exchanges(self) -> int:
        """Number of gossip steps of one agreement."""
        return self.gossip.steps + self.diameter

    async def settle(self, net: Neighbourhood, released: Released) -> Rows:
        """Return the mean over all peers of public numbers, ``[R, P]``."""
        mixed = (await self.gossip(net, released)).values  # [R, P]
        return await maximum(net, mixed, steps=self.diameter)


@dataclass(frozen=True)
class Statistics:
    r"""What the training data of all peers look like together; the rows are equal.

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


Mean = Callable[[torch.Tensor], Awaitable[torch.Tensor]]
"""Of private numbers ``[R, K]`` over all peers, for each of the R."""


async def statistics(
    mean: Mean,
    *,
    peers: int,
    totals: torch.Tensor,
    squares: Callable[[torch.Tensor], torch.Tensor],
    features: int,
    resolution: float = 0.0,
) -> Statistics:
    r"""Mean and deviation of each feature over the samples of all peers.

    .. math:: \mu = \frac{\sum_k \sum_{i \in k} x_i}{\sum_k n_k}, \qquad
              \sigma^2 = \frac{\sum_k \sum_{i \in k} (x_i - \mu)^2}{\sum_k n_k}

    in two sums one after the other, for the one-pass formula loses all digits where the mean is far
    larger than the deviation.

    Parameters
    ----------
    mean
        Returns the mean of private numbers over all peers: by exact totals, or directly where all data are at hand.
    peers
        N, of all.
    totals
        ``[R, 1 + C + F]``: each peer's samples, samples by class, and sums of features.
    squares
        ``squares(mean)`` gives each peer's :math:`\sum_i (x_i - \mu)^2` for a mean ``[R, F]``.
    features
        F.
    resolution
        What a peer's sums are rounded to, where they are masked: a feature whose squares add up to no
        more than that a peer cannot be told from a constant.
    """
    average = await mean(totals)  # [R, 1 + C + F]
    samples = average[:, :1]  # [R, 1], of a peer
    # Single precision, so that means by totals and means of all data at once give the same bits.
    middle = (average[:, -features:] / samples).float()  # [R, F]
    spread = await mean(squares(middle.double()))  # [R, F]
    constant = spread <= (samples * (1e-7 * middle.double()) ** 2).clamp_min(resolution)  # [R, F]
    deviation = torch.where(constant, 1.0, spread.clamp_min(0) / samples).sqrt()  # [R, F]
    counts = (peers * average[:, :-features]).round().long()  # [R, 1 + C]
    return Statistics(counts[:, :1], counts[:, 1:], middle, deviation.float())


async def pooled(
    mean: Mean, *, scores: Mapping[str, torch.Tensor], targets: torch.Tensor, squared: bool
) -> dict[str, torch.Tensor]:
    r"""Return the scores of one model on the test data of all peers, each ``[R]``.

    A score is a mean over samples, so :math:`\sum_k n_k s_k / \sum_k n_k` is the score on all of them;
    :math:`R^2` is not, and is taken from the squared error and the variance of all targets.

    Parameters
    ----------
    mean
        As in :func:`statistics`.
    scores
        Of each peer on its own test part, ``[R]``.
    targets
        ``[R, 3]``: samples of the test part, the sum of their targets, and of their squares.
    squared
        Whether the loss is the squared error, without which there is no :math:`R^2`.
    """
    names = [name for name in scores if name != "r2"]
    counts = targets[:, :1]  # [R, 1]
    own = torch.stack([scores[name].double().cpu() for name in names], dim=-1)  # [R, S]
    sums = torch.where(counts > 0, own * counts, 0.0)  # [R, S]; without samples a score is not a number
    average = await mean(torch.cat([sums, targets], dim=-1))  # [R, S + 3]
    samples = average[:, len(names)]  # [R]
    found = {name: average[:, column] / samples for column, name in enumerate(names)}
    if "r2" in scores and squared:
        first, second = average[:, -2] / samples, average[:, -1] / samples  # [R]
        variance = second - first.square()
        found["r2"] = torch.where(variance > 0, 1 - found["loss"] / variance, 0.0)
    return found
