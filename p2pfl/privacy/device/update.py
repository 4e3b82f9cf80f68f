"""The release of rows on an accelerator: clipping and rounding as :mod:`p2pfl.privacy.release` does them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from p2pfl.core.rows import Rows, to_device
from p2pfl.privacy.device.stream import WIDE, to_grid
from p2pfl.privacy.limits import check_finite, check_range
from p2pfl.privacy.normal_stream import BLOCK, Floats, spans
from p2pfl.privacy.portable import fold_sums, root

Largest = tuple[slice, torch.Tensor]
"""Rows, and the largest magnitudes ``[G]`` of numbers of each, on the device."""


@dataclass(frozen=True)
class Computed:
    """Magnitudes of what a release computed, which hold no models until they are checked.

    Attributes
    ----------
    squares, largest
        Squared norms and largest magnitudes, of which :meth:`check` reads whether all is finite and on the grid.
    """

    squares: list[Largest] = field(default_factory=list)
    largest: list[Largest] = field(default_factory=list)

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
            check_finite(squares.cpu().numpy(), peers=peers[group])
        for group, largest in self.largest:
            check_range(largest[:, None].cpu().numpy(), peers=peers[group], bits=bits)


@dataclass(frozen=True)
class DeviceUpdate:
    """Public start and private change of a release, in double precision on the device of the rows.

    It computes what ``release._Update`` does by the same operations, but on many rows at a time.

    Attributes
    ----------
    computed
        Magnitudes of what was computed, which are checked later.
    """

    rows: Rows
    since: Rows
    masses: torch.Tensor | None
    joins: torch.Tensor | None
    layers: tuple[int, ...]
    bounds: tuple[float, ...]
    computed: Computed = field(default_factory=Computed, init=False)

    @classmethod
    def of(
        cls,
        rows: Rows,
        since: Rows,
        *,
        masses: torch.Tensor | None,
        joins: Floats | None,
        layers: tuple[int, ...],
        bounds: tuple[float, ...],
    ) -> DeviceUpdate:
        """Return an update after copying what the CPU has; the CPU does not wait for the copies."""
        device = rows.device
        return cls(
            rows,
            to_device(since, device),
            None if masses is None else to_device(masses.to(torch.float64), device),
            None if joins is None else to_device(torch.from_numpy(joins), device),
            layers,
            bounds,
        )

    def floats(self) -> Rows:
        """Return the sum of ``w * since`` and the clipped difference, ``[R, P]`` in the type of the rows."""
        out = torch.empty_like(self.rows)  # [R, P]
        for group in self.groups():
            out[group] = (self._start(group) + self._clipped(group)).to(out.dtype)
        return out

    def add_to(self, points: torch.Tensor, *, bits: int) -> None:
        """Add both, rounded to the grid, to masks and private noise ``[R, P]``."""
        for group in self.groups():
            here = points[group]
            for values in (self._start(group), self._clipped(group)):  # [G, P]
                self.computed.largest.append((group, values.abs().amax(-1)))
                here += to_grid(values, scale=2.0**bits)
            sums = here.to(torch.float64) * 2.0**-bits
            self.computed.largest.append((group, sums.abs().amax(-1)))

    def groups(self) -> Iterable[slice]:
        """Return the rows that are computed together."""
        count, size = self.rows.shape
        return spans(count, max(1, WIDE // size))

    def _start(self, group: slice) -> torch.Tensor:
        """Return ``w * since``, ``[G, P]``."""
        start = self.since[group].to(torch.float64, copy=True)
        return start if self.masses is None else start.mul_(self.masses[group])

    def _clipped(self, group: slice) -> torch.Tensor:
        """Return ``w * (rows - since)``, each layer scaled to at most its bound, ``[G, P]``; zero for who abstains."""
        difference = self.rows[group].to(torch.float64, copy=True).sub_(self.since[group].to(torch.float64))
        weight = 1.0 if self.masses is None else self.masses[group]
        if self.joins is not None:
            weight = weight * self.joins[group]
        difference *= weight
        if math.isinf(self.bounds[0]):
            return difference
        parts = torch.split(difference, list(self.layers), dim=-1)
        squares = torch.stack([_squared(part) for part in parts], dim=-1)  # [G, L]
        self.computed.squares.append((group, squares))
        lengths = root(squares.clamp(min=torch.finfo(torch.float64).tiny))
        bounds = to_device(torch.tensor(self.bounds, dtype=torch.float64), squares.device)  # [L]
        factors = (bounds / lengths).clamp(max=1.0)  # a number over a tensor would be its product with a reciprocal
        for part, factor in zip(parts, torch.split(factors, 1, dim=-1), strict=True):
            part.mul_(factor)
        return difference


def _squared(values: torch.Tensor) -> torch.Tensor:
    """Return squared norms ``[G]``, summed in blocks as on the CPU."""
    count, size = values.shape
    if not size:
        return values.new_zeros(count)
    squares = values.square()
    if size <= BLOCK:
        return fold_sums(squares)
    whole = torch.nn.functional.pad(squares, (0, -size % BLOCK))  # zeros change no sum
    return fold_sums(fold_sums(whole.view(count, -1, BLOCK)))
