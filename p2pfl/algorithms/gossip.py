"""Averaging by gossip: steps that bring all models to their mean."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from p2pfl.core.neighbourhood import Neighbourhood, Released, mix_steps
from p2pfl.core.tensors import torch


@dataclass(frozen=True)
class Gossip:
    r"""A number of gossip steps, plain or accelerated.

    Plain gossip is :math:`y_{k+1} = W y_k`, whose disagreement falls by :math:`\rho`, the second
    singular value of W, each step. Given ``rho``, the Chebyshev semi-iteration

    .. math:: y_{k+1} = \omega_{k+1} (W y_k - y_{k-1}) + y_{k-1}, \quad
              \omega_1 = 1,\ \omega_2 = \frac{2}{2 - \rho^2},\ \omega_{k+1} = \frac{4}{4 - \rho^2 \omega_k}

    needs about the square root of as many steps, for a symmetric and constant W; every step conserves the
    mean, because its coefficients sum to one. Mixed models are public, so more steps cost no privacy.

    Parameters
    ----------
    steps
        Gossip steps per round.
    rho
        Second singular value of W; ``None`` for plain gossip.

    Examples
    --------
    >>> Gossip(3).omegas
    [1.0, 1.0, 1.0]
    >>> [round(omega, 3) for omega in Gossip(3, rho=0.8).omegas]
    [1.0, 1.471, 1.308]

    References
    ----------
    Golub and Varga, Chebyshev semi-iterative methods, successive overrelaxation iterative methods, and
    second order Richardson iterative methods, Numerische Mathematik 1961.
    """

    steps: int = 1
    rho: float | None = None

    def __call__(self, net: Neighbourhood, released: Released) -> Coroutine[Any, Any, Released]:
        """Return ``released`` after all gossip steps over the neighbourhood."""
        return mix_steps(net, released, self.omegas)

    @property
    def omegas(self) -> list[float]:
        r"""Coefficients :math:`\omega_1, \dots`, one for each step; all are 1 for plain gossip."""
        omegas = [1.0] * self.steps
        for step in range(1, self.steps if self.rho is not None else 0):
            square = (self.rho or 0.0) ** 2
            omegas[step] = 2 / (2 - square) if step == 1 else 4 / (4 - square * omegas[step - 1])
        return omegas


UNSET = Gossip()
"""One gossip step; marks that the number of steps was not chosen."""

BLOCK = 256
"""Number of columns that are compared at a time, because there are more edges than rows."""


async def maximum(net: Neighbourhood, values: torch.Tensor, *, steps: int) -> torch.Tensor:
    """Flood the largest of all peers' public values, column by column.

    All peers end with the same numbers, so they take the same decision in the same round.

    Parameters
    ----------
    net
        Neighbourhood that carries the messages.
    values
        Public values, ``[R, K]``.
    steps
        Number of gossip steps; the result is exact if it is at least the diameter of the graph.

    Returns
    -------
    torch.Tensor
        Largest values ``[R, K]``.
    """
    for _ in range(steps):
        received = await net.receive(Released(values))
        values = values.clone()  # [R, K]
        listener, sender, _ = received.beside()  # [E]
        for own, all_rows in zip(torch.split(values, BLOCK, -1), torch.split(received.rows, BLOCK, -1), strict=True):
            theirs = all_rows[sender]  # [E, B]
            own.scatter_reduce_(0, listener.unsqueeze(-1).expand_as(theirs), theirs, "amax")  # writes into values
    return values
