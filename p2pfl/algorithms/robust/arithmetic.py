r"""Arithmetic of robust rules on the models of many peers at once, ``[..., n, P]``, on the device where these are.

Nothing here waits for a device. Means are added up one model after the other, so that they are the same on each device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

from p2pfl.core.rows import NUMBERS_PER_DEVICE_BLOCK, Rows
from p2pfl.core.tensors import torch

BLOCK = 2**17
"""Numbers of the models that one core compares at a time: in double precision they stay in its cache."""


HELD = 2**24
"""Numbers of the models that all cores compare at a time: in double precision with their differences about 250 MB."""


def room(device: torch.device) -> int:
    """Return the numbers of the models that are compared at a time on a device."""
    return BLOCK if device.type == "cpu" else NUMBERS_PER_DEVICE_BLOCK


@functools.cache
def network(count: int, low: int, high: int) -> tuple[tuple[int, int, bool, bool], ...]:
    """Return comparisons that sort ``count`` values as far as the places from ``low`` to ``high`` are concerned.

    They are those of Batcher's odd-even merge sort without the ones on which these places do not depend.

    Parameters
    ----------
    count
        Number of values.
    low, high
        First place, and the place after the last one.

    Returns
    -------
    tuple
        Places i < j of each comparison, and whether the smaller value is needed in i and the larger one in j.

    References
    ----------
    Knuth, The art of computer programming 3, section 5.2.2, algorithm M.

    Examples
    --------
    >>> network(3, 1, 2)
    ((0, 2, True, True), (0, 1, False, True), (1, 2, True, False))
    """
    needed, kept = set(range(low, high)), []
    for i, j in reversed(tuple(_comparisons(count))):
        if i in needed or j in needed:
            kept.append((i, j, i in needed, j in needed))
            needed |= {i, j}
    return tuple(reversed(kept))


def _comparisons(count: int) -> Iterator[tuple[int, int]]:
    """Yield the comparisons of Batcher's odd-even merge sort."""
    top = 1 << max(0, (count - 1).bit_length() - 1)
    size = top
    while size:
        step, offset, apart = top, 0, size
        while True:
            yield from ((i, i + apart) for i in range(count - apart) if i & size == offset)
            if step == size:
                break
            apart, step, offset = step - size, step >> 1, size
        size >>= 1


def select_ordered(rows: Rows, low: int, high: int) -> list[torch.Tensor]:
    """Return the values in some places of the order of ``[..., n, P]`` along n, each ``[..., P]``; NaN is the largest.

    Parameters
    ----------
    rows
        Models.
    low, high
        First place, and the place after the last one.

    Examples
    --------
    >>> select_ordered(torch.tensor([[5.0], [torch.nan], [1.0], [4.0]]), 1, 3)
    [tensor([4.]), tensor([5.])]
    """
    values = list(rows.nan_to_num(torch.inf, torch.inf, -torch.inf).unbind(-2))
    for i, j, smaller, larger in network(len(values), low, high):
        one, other = values[i], values[j]
        if smaller:
            values[i] = torch.minimum(one, other)
        if larger:
            values[j] = torch.maximum(one, other)
    return values[low:high]


def apply_by_columns(function: Callable[[Rows], torch.Tensor], rows: Rows) -> torch.Tensor:
    """Return ``function(rows)``, ``[..., P]``, of a function of each column by itself, in blocks of columns."""
    width = max(1, room(rows.device) * rows.shape[-1] // max(1, rows.numel()))
    if width >= rows.shape[-1]:
        return function(rows)
    return torch.cat([function(part) for part in torch.split(rows, width, dim=-1)], dim=-1)  # [..., P]


def mean(each: Callable[[int], torch.Tensor], count: int) -> torch.Tensor:
    """Return the mean of ``each(0)`` to ``each(count - 1)``, added up in this order, even if the sum overflows.

    Examples
    --------
    >>> mean(lambda _: torch.tensor([3e38]), 4)
    tensor([3.0000e+38])
    """
    average = functools.reduce(torch.add, map(each, range(count))) / count
    largest = torch.finfo(average.dtype).max

    def again() -> torch.Tensor:
        parts = (each(index) / count for index in range(count))
        return functools.reduce(torch.add, parts).clamp(-largest, largest)

    return _repair(average, again)


def take_models(rows: Rows, positions: torch.Tensor) -> Rows:
    """Return the models ``[..., m, P]`` of ``[..., n, P]`` in places ``[..., m]``.

    Examples
    --------
    >>> take_models(torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]]), torch.tensor([[1], [0]])).flatten()
    tensor([2., 3.])
    """
    above = rows.shape[:-2]
    flat = rows.movedim(-2, 0).reshape(-1, rows.shape[-1])  # [n R, P], a copy only of models in another order
    each = torch.arange(math.prod(above), device=rows.device)  # [R]
    index = positions.movedim(-1, 0).reshape(-1, len(each)) * len(each) + each  # [m, R]
    return flat.index_select(0, index.flatten()).view(-1, *above, rows.shape[-1]).movedim(0, -2)


def _repair(numbers: torch.Tensor, again: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return numbers, with those from a second way of computing them where the first one overflows.

    The CPU computes the second way where it is needed; elsewhere both are computed, as the CPU would have to wait.
    """
    finite = numbers.isfinite()
    if numbers.device.type == "cpu" and bool(finite.all()):
        return numbers
    return torch.where(finite, numbers, again())


def distances(rows: Rows) -> torch.Tensor:
    r"""Return :math:`\lVert x_i - x_j \rVert_2` of ``[..., n, P]``, ``[..., n, n]`` float64.

    Differences are in double precision, and at most ``[..., n, P]`` of them are held. A distance is infinite if it
    overflows, but not if only its square does.
    """
    doubles, count = rows.double(), rows.shape[-2]
    matrix = doubles.new_zeros(*rows.shape[:-1], count)  # [..., n, n]
    for index in range(count - 1):
        far = _distances_from(
            doubles[..., index + 1 :, :], doubles[..., index : index + 1, :], rows.dtype
        )  # [..., n - i - 1]
        matrix[..., index, index + 1 :] = far
        matrix[..., index + 1 :, index] = far
    return matrix


def measure_from_first(rows: Rows) -> torch.Tensor:
    r"""Return :math:`\lVert x_i - x_0 \rVert_2` of ``[..., n, P]`` as :func:`distances` does, ``[..., n]`` float64."""
    doubles = rows.double()  # [..., n, P]
    return _distances_from(doubles, doubles[..., :1, :], rows.dtype)


def _distances_from(some: Rows, other: Rows, kind: torch.dtype) -> torch.Tensor:
    """Return the distances of some models from another, which are in double precision and were of some kind."""
    norms: torch.Tensor = torch.linalg.vector_norm(some - other, dim=-1)  # [..., n]
    if kind != torch.float64:  # no square of smaller numbers overflows
        return norms
    return _repair(norms, lambda: 2 * scaled_norms(some / 2 - other / 2))  # half of a difference does not overflow


def scaled_norms(rows: Rows) -> torch.Tensor:
    r"""Return :math:`\lVert x \rVert_2` of the last axis, in units of the largest number, as squares may overflow."""
    if not rows.shape[-1]:
        return rows.new_zeros(rows.shape[:-1])  # []
    unit = rows.abs().amax(-1, keepdim=True)  # [..., 1]
    ones = torch.linalg.vector_norm(rows / unit, dim=-1, keepdim=True)  # [..., 1]
    return torch.where(unit.isinf() | (unit == 0), unit, unit * ones).squeeze(-1)  # [...]


def average(rows: Rows, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sums of models ``[..., n, P]``, ``[..., P]``, given weights ``[..., n]``.

    Examples
    --------
    >>> average(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([0.5, 0.5]))
    tensor([2., 4.])
    """
    return (weights.to(rows.dtype).unsqueeze(-2) @ rows).squeeze(-2)


def sum_clipped(rows: Rows, weights: torch.Tensor, apart: torch.Tensor, radius: torch.Tensor) -> torch.Tensor:
    r"""Return the sums of models, each clipped around the first one to a radius.

    It is :math:`\sum_j w_j (x_0 + \mathrm{clip}(x_j - x_0, \tau))`. Clipping moves weight to the own model, so the
    result is one sum of models. Models at an infinite distance have no weight, even under an infinite radius.

    Parameters
    ----------
    rows
        Models ``[..., n, P]``.
    weights, apart
        Weights and all :math:`\lVert x_j - x_0 \rVert`, ``[..., n]`` float64.
    radius
        :math:`\tau`, ``[..., 1]`` float64.

    Returns
    -------
    torch.Tensor
        ``[..., P]``.
    """
    tiny = torch.finfo(torch.float64).tiny
    kept = torch.where(apart > radius, radius / apart.clamp_min(tiny), 1.0)  # [..., n]
    factors = weights * torch.where(apart.isinf(), 0.0, kept)  # [..., n]
    factors[..., 0] += (weights - factors).sum(-1)
    return average(rows, factors)
