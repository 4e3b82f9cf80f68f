"""Arithmetic of numpy and torch that gives the same bits on every device, and in every stack of rows.

Sums have a fixed order, and roots consist of operations that IEEE 754 fixes. ``torch.sqrt`` is not one of them on CPUs:
MKL computes it, and the last bit differs for one number in 140.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

Array = TypeVar("Array", npt.NDArray[np.floating[Any]], torch.Tensor)
"""Array of numpy or tensor of torch with floating-point numbers."""

_HALF = 0x1FF8000000000000
"""Half the bits of 1.0."""


def fold_sums(values: Array) -> Array:
    r"""Return the sums along the last axis, ``[...]``, and overwrite ``values``.

    While more than one number is left, with h the largest power of two below their count n, number i becomes

    .. math:: x_i + x_{i + h} \quad (i < n - h)

    and the first h are left. Zeros at the end change nothing. The error grows as :math:`\log_2 n`.

    Parameters
    ----------
    values
        ``[..., n]`` with n at least 1.

    Examples
    --------
    >>> fold_sums(np.array([[1.0, 2.0, 3.0], [0.5, 0.0, 0.0]]))
    array([6. , 0.5])
    """
    width = values.shape[-1]
    while width > 1:
        half = 1 << ((width - 1).bit_length() - 1)
        first = values[..., : width - half]
        first += values[..., half:width]
        width = half
    return values[..., 0]


def root(values: Array) -> Array:
    r"""Return square roots ``[...]`` in double precision, up to a unit in the last place.

    Four of Heron's steps :math:`s \leftarrow (s + x / s) / 2`, from a number with half the exponent of x, which is
    6 % too large at most.

    Parameters
    ----------
    values
        ``[...]`` normal float64 above zero.

    Examples
    --------
    >>> root(np.array([2.0, 9.0]))
    array([1.41421356, 3.        ])
    """
    found: Array
    if isinstance(values, np.ndarray):
        found = ((values.view(np.int64) >> 1) + _HALF).view(np.float64)
    else:
        found = ((values.view(torch.int64) >> 1) + _HALF).view(torch.float64)
    for _ in range(4):
        found = (found + values / found) * 0.5
    return found
