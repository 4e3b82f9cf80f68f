"""Private noise on an accelerator: the numbers of :class:`p2pfl.privacy.noise.NoiseSampler`, without waiting for them.

A sampler by rejection does not know beforehand how many numbers it has to draw again. Here each attempt has room for so
many that a block needs more with probability :math:`2^{-60}`, and numbers are left after the last attempt with that
probability. The device decides in doubles what 20 bits leave undecided. The closest of these decisions the CPU makes
again when the round is over, exactly; the device errs in one number of about :math:`2^{51}`. Both end the run with an
error, so noise always has its exact distribution, and what a run releases equals what it would on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import torch

from p2pfl.core.errors import RunError
from p2pfl.core.rows import to_device
from p2pfl.privacy.device.device_stream import WIDE, WORDS, blocks, key_words
from p2pfl.privacy.noise import BINS, CAPACITY, CLOSE, FIRST, LOW, MORE, SECOND, FinePoints, SamplerTable, table_of
from p2pfl.privacy.normal_stream import BLOCK, Ints, spans

CLOSEST = 4
"""Decisions of each attempt that the CPU makes again."""

RARE = 2.0**-60
"""Probability, for a block of numbers, that there is too little room for them."""

_SIGN = -(2**63)  # signed numbers whose sign is flipped compare as unsigned ones
_MANTISSA = (1 << 53) - 1


class DeviceNoise:
    """Sampler of private noise on a device.

    Parameters
    ----------
    deviation
        Standard deviation in grid points, as in :class:`p2pfl.privacy.noise.NoiseSampler`.
    device
        Device of the noise.
    close
        Largest difference of two numbers that the CPU compares exactly.

    Examples
    --------
    >>> from p2pfl.privacy.noise import NoiseSampler
    >>> keys, drawn = [bytes(32), bytes(range(32))], DeviceNoise(2.0**20, torch.device("cpu"))
    >>> noise = torch.zeros(2, 1000, dtype=torch.int64)
    >>> drawn.add_to(noise, keys)
    >>> drawn.check()
    >>> bool((noise.numpy() == NoiseSampler(2.0**20).window(keys, slice(0, 1000))).all())
    True
    """

    def __init__(self, deviation: float, device: torch.device, *, close: float = CLOSE) -> None:
        self._table, self._device, self._close = table_of(deviation), device, close
        self._there = _tensors(deviation, str(device))
        self._share = undecided(self._table)
        self._closest = list[tuple[_Piece, int, torch.Tensor]]()
        self._lost = list[torch.Tensor]()

    def add_to(self, points: torch.Tensor, keys: Sequence[bytes]) -> None:
        """Add the first numbers of several streams to grid points ``[K, P]``; :meth:`check` must approve of them.

        Parameters
        ----------
        points
            int64 on the device.
        keys
            K keys of 32 bytes, used for nothing else.
        """
        for start, width, count in _stretches(points.shape[-1]):
            for group in spans(len(keys), max(1, WIDE // 2 // (width * count))):
                here = points[group, start : start + width * count]
                here += self._drawn(_Piece(list(keys[group]), start, width, count))

    def check(self) -> None:
        """Make close decisions once more, which waits for the device.

        Raises
        ------
        RunError
            A decision was wrong, or there was too little room.
        """
        lost, self._lost = self._lost, []
        closest, self._closest = self._closest, []
        if not lost:
            return
        wrong = bool(torch.stack(lost).any())
        found: Ints = torch.stack([each for *_, each in closest]).cpu().numpy()  # [decisions, 8, 4]
        for (piece, attempt, _), made in zip(closest, found, strict=True):
            near = made[:, made[0].view(np.float64) <= self._close].T  # [close, 8]
            wrong |= len(near) == CLOSEST  # others may be close as well
            wrong |= any(_is_wrong(self._table, piece, attempt, each) for each in near)
        if wrong:
            raise RunError(
                "private noise could not be drawn on the device, which happens for one number in 2^50; run the "
                'simulation again, with another source if it was given one, or with learning.device = "cpu"'
            )

    def _drawn(self, piece: _Piece) -> torch.Tensor:
        """Return the numbers of a piece, ``[K, width * count]``."""
        width = piece.width
        rooms = rooms_of(width, self._share)
        first, second, *further = piece.words(rooms, self._device)  # [U, ...] each
        now, unsure = self._there.proposed(first, second)
        points = torch.nn.functional.pad(now.points, (0, 1))  # [U, width + 1]; the last column is nobody's
        at = torch.arange(width, device=self._device).expand_as(first)  # [U, width]
        for attempt, (room, words) in enumerate(zip(rooms, further, strict=True)):
            now, at, alive = self._gathered(now, at, unsure, room=room)
            more, first, second = words.reshape(-1, room, 3).unbind(-1)  # [U, room] each
            accepted, gap = self._there.accepted(now, more)
            facts = (now.points, now.cells, now.words, more, at, accepted)
            self._closest.append((piece, attempt, _nearest(torch.where(alive, gap, torch.inf), facts)))
            now, again = self._there.proposed(first, second)
            rejected = alive & ~accepted
            points.scatter_(1, torch.where(rejected, at, width), now.points)
            unsure = again & rejected
        self._lost.append(unsure.any())
        points += self._table.half
        points >>= self._table.shift
        return points[:, :width].reshape(len(piece.keys), -1)

    def _gathered(
        self, now: _Numbers, at: torch.Tensor, wanted: torch.Tensor, *, room: int
    ) -> tuple[_Numbers, torch.Tensor, torch.Tensor]:
        """Return the wanted numbers of each block in their order, ``[U, room]``, their columns, and which there are."""
        rank = wanted.cumsum(-1)  # [U, n]
        count = rank[:, -1:]
        self._lost.append((count > room).any())
        place = torch.where(wanted, rank - 1, room).clamp_(max=room)  # [U, n]; the last place is nobody's

        def gathered(values: torch.Tensor) -> torch.Tensor:
            return values.new_zeros(len(values), room + 1).scatter_(1, place, values)[:, :room]

        alive = torch.arange(room, device=self._device) < count  # [U, room]
        return _Numbers(*map(gathered, (now.points, now.cells, now.words))), gathered(at), alive


@dataclass(frozen=True)
class _Piece:
    """Blocks of the streams of K keys: ``count`` of them from column ``start`` on, each of ``width`` numbers.

    Together they are U = K * count units.
    """

    keys: list[bytes]
    start: int
    width: int
    count: int

    def words(self, rooms: Sequence[int], device: torch.device) -> list[torch.Tensor]:
        """Return the first and the second words, ``[U, width]``, and those of each attempt, ``[U, 3 room]``."""
        wanted = [self.width, self.width, *(3 * room for room in rooms)]
        lengths = [-(-each // WORDS) for each in wanted]  # in blocks of the cipher
        here = np.concatenate([np.arange(each) for each in lengths])  # [B]
        purposes = [FIRST, SECOND, *(MORE | attempt << 8 for attempt in range(len(rooms)))]
        at = self.start + self.width * np.arange(self.count)[:, None]  # [count, 1]
        count, purpose, start, eighth = (
            to_device(torch.from_numpy(each.astype(np.int32)), device)
            for each in (here, np.repeat(purposes, lengths), at, at // WORDS)
        )
        early = purpose < MORE  # [B]
        last = [
            count + torch.where(early, eighth, 0),
            purpose.expand(self.count, -1),
            torch.where(early, 0, start),
            torch.zeros_like(purpose).expand(self.count, -1),
        ]
        given = torch.stack(last)  # [4, count, B]
        keys = key_words(self.keys, device)[:, None].expand(-1, self.count, -1).reshape(-1, 8)  # [U, 8]
        found = blocks(keys, given.repeat(1, len(self.keys), 1))  # [U, 8 B]
        parts = torch.split(found, [WORDS * each for each in lengths], dim=-1)
        return [part[:, :each] for part, each in zip(parts, wanted, strict=True)]


@dataclass(frozen=True)
class _Numbers:
    """Fine points, their cells, and the words of which 20 bits decide whether they are accepted, each ``[U, n]``."""

    points: torch.Tensor
    cells: torch.Tensor
    words: torch.Tensor


def _is_wrong(table: SamplerTable, piece: _Piece, attempt: int, facts: Ints) -> bool:
    """Decide exactly about one number, of which :func:`_nearest` returned facts ``[8]``."""
    _, unit, point, cell, word, more, column, accepted = facts.tolist()
    row, block = divmod(unit, piece.count)
    number = piece.start + block * piece.width + column
    said = number.to_bytes(8, "little") + attempt.to_bytes(8, "little")
    digits = int.from_bytes(blake2b(said, key=piece.keys[row], digest_size=32).digest(), "little")
    drawn = FinePoints(np.array([point]), np.array([cell]), np.array([word % 2**64], np.uint64))
    return table.decides(drawn, 0, more=more % 2**64, digits=digits) != bool(accepted)


def _nearest(gap: torch.Tensor, facts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return facts ``[8, 4]`` int64 about the decisions with the smallest differences ``[U, n]``.

    They are the bits of the difference, the unit, the point, the cell, two words, the column in the unit, and the
    decision.
    """
    padded = torch.nn.functional.pad(gap.flatten(), (0, max(0, CLOSEST - gap.numel())), value=math.inf)
    found, where = padded.topk(CLOSEST, largest=False)
    where = where.clamp(max=gap.numel() - 1)
    others = [each.flatten()[where].long() for each in facts]
    return torch.stack([found.view(torch.int64), where // gap.shape[-1], *others])


@dataclass(frozen=True)
class DeviceTable:
    """Constants of :class:`p2pfl.privacy.noise.SamplerTable` on a device; words have their sign flipped."""

    table: SamplerTable
    last: torch.Tensor
    choices: torch.Tensor
    sure: torch.Tensor
    factors: torch.Tensor

    def proposed(self, first: torch.Tensor, second: torch.Tensor) -> tuple[_Numbers, torch.Tensor]:
        """Return fine points from two words each, ``[U, n]``, and where 20 bits do not accept."""
        bins = (first >> (64 - BINS)) & ((1 << BINS) - 1)
        other = (first ^ _SIGN) > self.last[bins]
        cells = self.choices[(bins << 1) + other]
        points = ((cells - self.table.count) << LOW) + (second & ((1 << LOW) - 1))
        return _Numbers(points, cells, second), (second ^ _SIGN) >= self.sure[cells]

    def accepted(self, now: _Numbers, more: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return which are accepted by 64 bits more, and how close that was; points of the last cell never are."""
        magnitude = torch.maximum(now.points, -1 - now.points)  # |k + 1/2| - 1/2
        within = (magnitude & ((1 << LOW) - 1)).double() + 0.5
        start = (magnitude >> LOW).double() * 2.0**LOW
        chance = (within * (2 * start + within) * (-0.5 / self.table.deviation**2)).exp() * self.factors[now.cells]
        uniform = ((now.words >> LOW) & ((1 << 64 - LOW) - 1)).double() * 2.0 ** (LOW - 64)
        uniform += ((more >> 11) & _MANTISSA).double() * 2.0 ** (11 + LOW - 128)
        some = now.cells < 2 * self.table.count
        return (uniform < chance) & some, torch.where(some, (uniform - chance).abs(), torch.inf)


@lru_cache(maxsize=4)
def _tensors(deviation: float, device: str) -> DeviceTable:
    table = table_of(deviation)
    flipped = [each.view(np.int64) ^ np.int64(_SIGN) for each in (table.last, table.sure)]
    last, sure, choices, factors = (
        to_device(torch.from_numpy(each), torch.device(device)) for each in (*flipped, table.choices, table.factors)
    )
    return DeviceTable(table, last, choices, sure, factors)


def undecided(table: SamplerTable) -> float:
    """Return the probability that 20 bits do not accept a proposed point."""
    bins = np.arange(1 << BINS, dtype=np.uint64)
    first = (table.last - bins * np.uint64(CAPACITY)).astype(np.float64) + 1  # words that choose the first cell
    words = np.stack([first, CAPACITY - first], axis=-1).reshape(-1)
    return float((words * (1 - table.sure[table.choices] * 2.0**-64)).sum() * 2.0**-64)


@lru_cache(maxsize=16)
def rooms_of(width: int, share: float) -> tuple[int, ...]:
    """Return how many numbers each attempt has room for, given the share that 20 bits do not accept."""
    rooms, mean = list[int](), width * share
    while mean > RARE:
        rooms.append(next(room for room in range(1, width + 1) if room == width or _excess(mean, room) < RARE))
        mean *= share
    return tuple(rooms)


def _excess(mean: float, room: int) -> float:
    """Return a bound on the probability that more than ``room`` of many rare events occur (Chernoff)."""
    more = room + 1
    return math.exp(more - mean + more * math.log(mean / more)) if more > mean else 1.0


def _stretches(size: int) -> Iterator[tuple[int, int, int]]:
    """Cut numbers into blocks as the CPU does: where they start, their width, and how many are drawn at a time."""
    whole = size // BLOCK
    for span in spans(whole, max(1, WIDE // 2 // BLOCK)):
        yield span.start * BLOCK, BLOCK, span.stop - span.start
    if size % BLOCK:
        yield whole * BLOCK, size % BLOCK, 1
