"""Comparison of losses and gradients that two engines compute, to rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

RELATIVE = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Largest difference of gradients and losses that counts as rounding, relative to them, by type of number.

Rounding puts a few numbers on the other side of a ReLU; a hook or a layer that is left out changes everything.
"""

ACCELERATED = 3e-2
"""The same on an accelerator, whose convolutions round single precision to 10 bits."""

MIXED = 0.2
"""The same in mixed precision."""

REPEATED = 1e-5
"""Largest difference between two calls of one engine, relative to the result: threads may sum in another order."""


@dataclass(frozen=True)
class Tolerance:
    """Largest differences that count as rounding.

    Attributes
    ----------
    relative
        Relative to the norm.
    absolute
        In units of the loss or of the gradient.
    """

    relative: float
    absolute: float

    @classmethod
    def of(cls, dtype: torch.dtype, device: torch.device, *, mixed: bool = False) -> Tolerance:
        """Return the tolerance of a number type on a device."""
        relative = MIXED if mixed else RELATIVE[dtype] if device.type == "cpu" else ACCELERATED
        return cls(relative, relative / 1000)

    def equal(self, one: torch.Tensor, other: torch.Tensor, *, scale: float = 0.0) -> bool:
        """Return whether two tensors of one shape are equal to rounding; what is not finite is equal to its like.

        Parameters
        ----------
        one, other
            The tensors.
        scale
            Size of the numbers that were added up to them, if it is larger than they are.

        Examples
        --------
        >>> close = Tolerance(1e-3, 1e-6)
        >>> close.equal(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0005]))
        True
        >>> close.equal(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1]))
        False
        """
        one, other = one.detach(), other.detach()
        if torch.equal(one, other):
            return True
        distance = _norm(one - other)
        if not math.isfinite(distance):
            finite = one.isfinite()
            if not torch.equal(finite, other.isfinite()):
                return False
            one, other = torch.where(finite, one, 0), torch.where(finite, other, 0)
            distance = _norm(one - other)
        size = max(scale, _norm(one), _norm(other))
        return distance <= self.relative * size + self.absolute


def _norm(numbers: torch.Tensor) -> float:
    """Return the L2 norm, summed in double precision where the device has it."""
    exact = torch.float32 if numbers.device.type == "mps" else torch.float64
    return float(torch.linalg.vector_norm(numbers, dtype=exact))


ATTEMPTS = 3
"""Rows on which engines are compared before they count as different.

Where the input of a ReLU is zero to rounding, two right engines differ by the whole gradient of a unit. At another row
it is not.
"""

NEARBY = 0.01
"""Largest difference of numbers of these rows."""


def perturb_row(row: torch.Tensor, attempt: int) -> torch.Tensor:
    """Return a row next to another one, which itself is attempt 0.

    Examples
    --------
    >>> row = torch.zeros(2)
    >>> torch.equal(perturb_row(row, 0), row), torch.equal(perturb_row(row, 1), perturb_row(row, 2))
    (True, False)
    """
    if attempt == 0:
        return row
    waves = torch.cos(attempt * torch.arange(row.shape[-1], device=row.device).float())
    return row + NEARBY * waves.to(row.dtype)


AGAIN = Tolerance(REPEATED, REPEATED / 100)
"""Tolerance of two calls of one engine."""
