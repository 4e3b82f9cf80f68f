"""Clipping and rounding of a release, by the same operations on the CPU and on an accelerator.

A row is cut alike however many there are, so a peer computes the same numbers alone, in a stack and on every device.
Sums have a fixed order, and roots consist of operations that IEEE 754 fixes. ``torch.sqrt`` is not one of them on CPUs:
MKL computes it, and the last bit differs for one number in 140.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import LearningError, PrivacyError
from p2pfl.core.rows import Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.privacy.device_masks import NUMBERS_PER_DRAW, to_grid
from p2pfl.privacy.normal_stream import POINT_LIMIT, VALUES_PER_BLOCK, Floats, spans

Magnitudes = list[tuple[slice, torch.Tensor]]
"""Rows, and the magnitudes ``[G, ...]`` of numbers of each, on the device."""


@dataclass(frozen=True)
class Update:
    """Public start and private change of a release, in double precision and piece by piece on the device of the rows.

    Attributes
    ----------
    squares, largest
        Squared norms and largest magnitudes of what was computed, which :meth:`check` reads.
    """

    rows: Rows
    since: Rows
    masses: torch.Tensor | None
    joins: torch.Tensor | None
    clip: float
    squares: Magnitudes = field(default_factory=list, init=False)
    largest: Magnitudes = field(default_factory=list, init=False)

    @classmethod
    def of(
        cls,
        rows: Rows,
        since: Rows,
        *,
        masses: torch.Tensor | None,
        joins: Floats | None,
        clip: float,
    ) -> Update:
        """Return an update after copying what the CPU has; the CPU does not wait for the copies."""
        device = rows.device
        return cls(
            rows.detach(),
            to_device(since.detach(), device),
            None if masses is None else to_device(masses.to(torch.float64), device),
            None if joins is None else to_device(torch.from_numpy(joins), device),
            clip,
        )

    def floats(self) -> Rows:
        """Return the sum of ``w * since`` and the clipped difference, ``[R, P]`` in the type of the rows."""
        out = torch.empty_like(self.rows)  # [R, P]
        for group, columns, start, clipped in self._pieces():
            out[group, columns] = (start + clipped).to(out.dtype)
        return out

    def add_to(self, points: torch.Tensor, *, bits: int) -> None:
        """Add both, rounded to the grid, to masks and private noise ``[R, P]`` in place."""
        for group, columns, start, clipped in self._pieces():
            here = points[group, columns]
            for values in (start, clipped):  # [G, columns]
                self.largest.append((group, values.abs().amax(-1)))
                here += to_grid(values, scale=2.0**bits)
            sums = here.to(torch.float64) * 2.0**-bits
            self.largest.append((group, sums.abs().amax(-1)))

    def check(self, *, peers: tuple[str, ...], bits: int) -> None:
        """Check what was computed, which waits for the device.

        Raises
        ------
        LearningError
            A row is not finite.
        PrivacyError
            A released value leaves the grid.
        """
        for group, squares in self.squares:
            _check_finite(squares.cpu().numpy(), peers=peers[group])
        for group, largest in self.largest:
            _check_range(largest.cpu().numpy(), peers=peers[group], bits=bits)

    @property
    def _step(self) -> int:
        """Numbers that are computed together."""
        return VALUES_PER_BLOCK if self.rows.device.type == "cpu" else NUMBERS_PER_DRAW

    def _pieces(self) -> Iterator[tuple[slice, slice, torch.Tensor, torch.Tensor]]:
        """Yield rows and columns with their start and their clipped change, ``[G, columns]``."""
        count, size = self.rows.shape
        for group in spans(count, max(1, self._step // size)):
            factors = self.factors(group)
            for columns in spans(size, self._step):
                yield group, columns, self._start(group, columns), self._clip(group, columns, factors)

    def _start(self, group: slice, columns: slice) -> torch.Tensor:
        """Return ``w * since``, ``[G, columns]``."""
        start = self.since[group, columns].to(torch.float64, copy=True)
        return start if self.masses is None else start.mul_(self.masses[group])

    def _difference(self, group: slice, columns: slice) -> torch.Tensor:
        """Return ``w * (rows - since)``, ``[G, columns]``; zero for abstaining peers."""
        difference = self.rows[group, columns].to(torch.float64, copy=True)
        difference -= self.since[group, columns].to(torch.float64)
        weight = 1.0 if self.masses is None else self.masses[group]
        if self.joins is not None:
            weight = weight * self.joins[group]
        return difference.mul_(weight)

    def factors(self, group: slice) -> torch.Tensor | None:
        """Return the factors that scale each difference to at most the clip, ``[G, 1]``; None without one."""
        if math.isinf(self.clip):
            return None
        sums = [_sum_squares(self._difference(group, part)) for part in spans(self.rows.shape[-1], self._step)]
        squares = fold_sums(torch.cat(sums, dim=-1))[:, None]  # [G, 1]
        self.squares.append((group, squares))
        lengths = root(squares.clamp(min=torch.finfo(torch.float64).tiny))
        bound = to_device(torch.tensor(self.clip, dtype=torch.float64), squares.device)
        return (bound / lengths).clamp(max=1.0)  # a number over a tensor would be its product with a reciprocal

    def _clip(self, group: slice, columns: slice, factors: torch.Tensor | None) -> torch.Tensor:
        """Return ``w * (rows - since)``, scaled by the factors, ``[G, columns]``."""
        difference = self._difference(group, columns)
        return difference if factors is None else difference.mul_(factors)


def _sum_squares(values: torch.Tensor) -> torch.Tensor:
    """Return the sums of squares of each block of numbers, ``[G, blocks]``."""
    squares = values.square()
    if squares.shape[-1] <= VALUES_PER_BLOCK:
        return fold_sums(squares)[:, None]
    whole = torch.nn.functional.pad(squares, (0, -squares.shape[-1] % VALUES_PER_BLOCK))  # zeros change no sum
    return fold_sums(whole.view(len(squares), -1, VALUES_PER_BLOCK))


def _check_finite(values: Floats, *, peers: tuple[str, ...]) -> None:
    """Raise :class:`LearningError` for NaN or infinity in ``[G, ...]``, and name the peer."""
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=-1)  # [G]
    if not finite.all():
        raise LearningError(
            f"the model of {peers[int(np.argmin(finite))]} contains NaN or infinity before its release; lower "
            "the learning rate or check its data"
        )


def _check_range(largest: Floats, *, peers: tuple[str, ...], bits: int) -> None:
    """Raise :class:`PrivacyError` for magnitudes ``[G]`` outside of the grid, and name the peer."""
    limit = POINT_LIMIT * 2.0**-bits
    if not (largest < limit).all():
        _check_finite(largest, peers=peers)
        worst = int(np.argmax(largest))
        raise PrivacyError(
            f"a released value of {peers[worst]} is {largest[worst]:.6g}, above the limit of {limit:.6g} where "
            f"a grid of {bits} bits is exact; clip, lower the learning rate or use fewer bits"
        )


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
    estimate: Array
    if isinstance(values, np.ndarray):
        estimate = ((values.view(np.int64) >> 1) + _HALF).view(np.float64)
    else:
        estimate = ((values.view(torch.int64) >> 1) + _HALF).view(torch.float64)
    for _ in range(4):
        estimate = (estimate + values / estimate) * 0.5
    return estimate
