"""Losses and metrics: a number for each sample, ``f(outputs, targets) -> [B]``."""

from collections.abc import Callable

import torch
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

PerSample = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    r"""Minus the log-likelihood :math:`-\log \mathrm{softmax}(o)_t` in nats, ``[B]``."""
    return F.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Squared distance to the target, ``[B]``; a model may give ``[B]`` or ``[B, 1]``."""
    return (outputs.reshape(targets.shape) - targets).square()


def mean(loss: PerSample, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean of a loss over a batch, in one operation where torch has one."""
    if loss is cross_entropy:
        return F.cross_entropy(outputs, targets)
    if loss is squared_error:
        return F.mse_loss(outputs.reshape(targets.shape), targets)
    return loss(outputs, targets).mean()


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One where the likeliest class is the right one, ``[B]``."""
    return (outputs.argmax(dim=-1) == targets).double()


def each_sample(function: PerSample, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss or metric of K rows, ``[K, B]``, from outputs ``[K, B, *outputs]``."""
    if function is cross_entropy:  # classes second: softmax along the last axis is ten times slower for few classes
        return F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")
    if function is accuracy:
        return accuracy(outputs, targets)
    return function(outputs.flatten(0, 1), targets.flatten(0, 1)).view(targets.shape)
