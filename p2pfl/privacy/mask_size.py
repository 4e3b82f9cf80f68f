r"""The default deviation of a pairwise mask, from numbers that everybody knows.

A mask should be large, so that a neighbour that subtracts the one mask it knows reads little of the update under the
others. It should also be small: when a peer dies between masking and sending, its d masks stay in the average, and
move each of the N averaged models by

.. math:: r = m \sqrt{d}\, \Big(\frac{1}{N} + \rho\Big),

m the deviation of a mask and :math:`\rho` what is left of a disagreement after the gossip steps of a round. The
default equates r with u, the root mean square of a number of an update: a death then disturbs a model about as much as
one round of a peer's training moves it. It is at least 2 u, which hides the update where few gossip steps average
little, and at most :math:`u \sqrt{P}`, the norm of the update.

The norm of an update is unknown, and private. Its public bound is the sum of its steps at a gradient of norm 1
(:math:`\sqrt{P}` for optimisers that scale each number of the gradient to about 1), and at most the norm of the initial
parameters, which training does not move by more than themselves in a round.

``python -m benchmarks.mask_size`` prints what a neighbour reads and what a death costs, for multiples of u at 3, 8 and
16 peers; docs/protection.md shows the table.
"""

from __future__ import annotations

import math

ADAPTIVE = {"adadelta", "adagrad", "adam", "adamax", "adamw", "nadam", "radam", "rmsprop", "rprop"}
"""Optimisers of torch.optim that scale each number of the gradient by its own history."""

LEAST = 2.0
"""Multiple of an update's size below which a neighbour reads too much of it: see the table."""


def update_size(
    *, norm: float, size: int, rate: float, steps: int | None, optimizer: str = "sgd", momentum: float = 0.0
) -> float:
    """Return the root mean square of a number of one round's update, as far as public numbers bound it.

    Parameters
    ----------
    norm
        L2 norm of the initial parameters; 0 if all of them are zero.
    size
        P, how many there are.
    rate
        The learning rate.
    steps
        Optimiser steps in a round; ``None`` where they depend on private numbers of samples.
    optimizer, momentum
        As in torch.optim.

    Returns
    -------
    float
        Above zero.

    Examples
    --------
    >>> round(update_size(norm=5.0, size=2500, rate=0.1, steps=10), 3)
    0.02
    >>> update_size(norm=5.0, size=2500, rate=0.1, steps=None)
    0.1
    """
    gradient = math.sqrt(size) if optimizer.lower() in ADAPTIVE else 1.0
    path = math.inf if steps is None else rate * steps * gradient / max(1 - momentum, 0.01)
    bounds = [each for each in (path, norm) if 0 < each < math.inf]
    return min(bounds, default=1.0) / math.sqrt(size)


def mask_deviation(update: float, *, size: int, peers: int, degree: int, unmixed: float = 0.0) -> float:
    """Return the deviation of a mask whose loss disturbs a model about as much as one update.

    Parameters
    ----------
    update
        Of :func:`update_size`.
    size
        P, how many parameters there are.
    peers
        N, how many peers average.
    degree
        d, how many masks a peer shares at most.
    unmixed
        Share of a disagreement that the gossip steps of a round leave: 0 where they average completely.

    Returns
    -------
    float
        Rounded to two digits, so that every device computes the same.

    Examples
    --------
    >>> mask_deviation(0.01, size=10_000, peers=3, degree=2), mask_deviation(0.01, size=10_000, peers=16, degree=2)
    (0.021, 0.11)
    """
    multiple = 1 / (math.sqrt(max(degree, 1)) * (1 / peers + unmixed))
    return float(f"{update * min(max(multiple, LEAST), math.sqrt(size)):.2g}")
