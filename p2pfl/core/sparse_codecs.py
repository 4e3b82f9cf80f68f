"""Codecs that send a few numbers of a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from p2pfl.core.codecs import VALUES_PER_SCALE, At, Codes, Part, Whole
from p2pfl.core.draws import draw
from p2pfl.core.errors import InputError
from p2pfl.core.rows import Rows, for_each_block, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import CodecTraits


def count_kept(share: float, length: int) -> int:
    """Return the number of values in a share of ``length`` values: at least one, if there is one.

    Raises
    ------
    InputError
        The share is not above 0 and at most 1.
    """
    if not 0 < share <= 1 or math.isnan(share):
        raise InputError(f"the share {share} is not above 0 and at most 1; 0.01 keeps one number in a hundred")
    return min(length, max(1, round(share * length)))


@dataclass(frozen=True)
class TopK:
    r"""Codec that keeps the k numbers of largest magnitude, with their places; all others become zero.

    :math:`\lVert Q(x) - x \rVert^2 \le (1 - k / P) \lVert x \rVert^2` without ``bits``. With ``bits``, a kept number
    travels as its sign and one of :math:`2^{b-1}` magnitudes, the middles of equal parts of the range of each
    1,024 numbers; the lowest is at most twice the smallest of them, so that no number becomes worse than zero.

    Parameters
    ----------
    share
        k / P, above 0 and at most 1.
    bits
        b, from 2 to 8; ``None`` for the numbers themselves.

    Raises
    ------
    InputError
        A parameter is out of range.

    References
    ----------
    Stich, Cordonnier, Jaggi, Sparsified SGD with memory, NeurIPS 2018. Few bits of few numbers as in Sarfi, Thérien,
    Lidin, Belilovsky, Communication efficient LLM pre-training with SparseLoCo, 2025 (arXiv 2508.15706), which
    quantises them otherwise.

    Examples
    --------
    >>> from p2pfl.core.codecs import encode_rows
    >>> encode_rows(TopK(0.5), torch.tensor([[3.0, 0.0, -4.0, 1.0]]), at=At(("ada",), 0, 0))[0]
    tensor([[ 3.,  0., -4.,  0.]])
    >>> encode_rows(TopK(0.5, bits=2), torch.tensor([[3.0, 0.0, -4.0, 1.0]]), at=At(("ada",), 0, 0))[0]
    tensor([[ 3.2500,  0.0000, -3.7500,  0.0000]])
    """

    share: float = 0.01
    bits: int | None = None
    traits: ClassVar[CodecTraits] = CodecTraits(differences=True, alike=True)

    def __post_init__(self) -> None:
        count_kept(self.share, 1)
        if self.bits is not None and not 2 <= self.bits <= 8:
            raise InputError(f"bits is {self.bits}, not from 2 to 8; choose 2 or 4, or leave it out")

    @property
    def number(self) -> int:
        """Number on the wire: 5, or 7 with bits."""
        return 5 if self.bits is None else 7

    def gamma(self, length: int) -> float:
        """Return twice the share."""
        del length
        return min(1.0, 2 * self.share)

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """Return places and values; with bits, smallest and largest magnitudes and the codes of the values."""
        count = count_kept(self.share, length)
        places = Whole(count, length - 1, increasing=True)
        if self.bits is None:
            return places, (count, dtype)
        blocks = -(-count // VALUES_PER_SCALE)
        return places, (blocks, torch.float32), (blocks, torch.float32), Whole(count, 2**self.bits - 1)

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Encode rows as places in increasing order, and values ``[R, k]``; of equal magnitudes the first ones stay."""
        del at  # nothing is drawn
        positions = rows.new_empty(len(rows), count_kept(self.share, rows.shape[-1]), dtype=torch.int64)  # [R, k]

        def some(part: slice) -> None:
            positions[part] = find_largest(rows[part].abs(), positions.shape[1])

        for_each_block(some, rows)
        values = rows.gather(-1, positions)  # [R, k]
        if self.bits is None:
            return positions, values
        return positions, *_encode_magnitudes(values, levels=2 ** (self.bits - 1))

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """Put the values in their places."""
        del at
        positions, *kept = codes
        values = kept[0] if self.bits is None else _decode_magnitudes(*kept, levels=2 ** (self.bits - 1), dtype=dtype)
        rows = torch.zeros(len(values), length, dtype=dtype, device=values.device)  # [R, P]
        return rows.scatter_(-1, positions, values)


def _encode_magnitudes(values: Rows, *, levels: int) -> Codes:
    """Return the smallest and largest magnitudes ``[R, blocks]`` of values ``[R, k]``, and codes below 2 levels."""
    count = values.shape[-1]

    def blocks(padding: float) -> Rows:
        padded = torch.nn.functional.pad(values.abs(), (0, -count % VALUES_PER_SCALE), value=padding)
        return padded.view(len(values), -1, VALUES_PER_SCALE)  # [R, blocks, BLOCK]

    low, high = blocks(math.inf).amin(-1).float(), blocks(0.0).amax(-1).float()
    low = torch.where(high.isfinite(), low, math.nan)  # a block with infinity decodes to none that is finite
    width = _spread((high - low) / levels, count).to(values.dtype)  # [R, k]
    above = values.abs() - _spread(low, count).to(values.dtype)
    level = (above / torch.where(width > 0, width, 1.0)).floor().nan_to_num(0.0).clamp(0, levels - 1)
    return low, high, (level + levels * (values < 0)).to(torch.uint8)


def _decode_magnitudes(
    low: torch.Tensor, high: torch.Tensor, codes: torch.Tensor, *, levels: int, dtype: torch.dtype
) -> Rows:
    """Return values of the codes ``[R, k]``."""
    count, level = codes.shape[-1], (codes % levels).to(dtype)
    least = _spread(low, count).to(dtype)
    middle = least + (level + 0.5) * _spread((high - low) / levels, count).to(dtype)
    size = torch.where(level == 0, torch.minimum(middle, 2 * least), middle)
    return torch.where(codes >= levels, -size, size)


def _spread(scales: torch.Tensor, count: int) -> torch.Tensor:
    """Return the scale ``[R, count]`` of each number, of one for each block."""
    return scales.unsqueeze(-1).expand(-1, -1, VALUES_PER_SCALE).flatten(1)[:, :count]


def find_largest(sizes: torch.Tensor, count: int) -> torch.Tensor:
    """Return the places of the largest of ``[R, P]``, ``[R, count]`` in increasing order; of equal ones the first.

    Examples
    --------
    >>> find_largest(torch.tensor([[2.0, 3.0, 2.0, 2.0]]), 2)
    tensor([[0, 1]])
    """
    if sizes.device.type == "cpu":  # which of equal numbers topk takes depends on the device
        values, positions = sizes.topk(min(count + 1, sizes.shape[-1]), dim=-1)
        if count == sizes.shape[-1] or bool((values[:, count] < values[:, count - 1]).all()):
            return positions[:, :count].sort(dim=-1).values
    return sizes.sort(dim=-1, descending=True, stable=True).indices[:, :count].sort(dim=-1).values


@dataclass(frozen=True)
class RandomK:
    r"""Codec that keeps k numbers at places drawn by key, which need not travel; all others become zero.

    :math:`E \lVert Q(x) - x \rVert^2 = (1 - k / P) \lVert x \rVert^2`: half the bytes of :class:`TopK`, with a larger
    error.

    Parameters
    ----------
    share
        k / P, above 0 and at most 1.
    seed
        Seed of the places.

    References
    ----------
    Stich, Cordonnier, Jaggi, Sparsified SGD with memory, NeurIPS 2018.

    Examples
    --------
    >>> from p2pfl.core.codecs import encode_rows
    >>> encode_rows(RandomK(0.5, seed=1), torch.tensor([[3.0, 0.5, -4.0, 1.0]]), at=At(("ada",), 0, 0))[0]
    tensor([[ 0.,  0., -4.,  1.]])
    """

    share: float = 0.01
    seed: int = 0
    traits: ClassVar[CodecTraits] = CodecTraits(differences=True)
    number: int = 6

    def __post_init__(self) -> None:
        count_kept(self.share, 1)

    def gamma(self, length: int) -> float:
        """Return half the share."""
        del length
        return self.share / 2

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """Return the values alone."""
        return ((count_kept(self.share, length), dtype),)

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Encode rows as values ``[R, k]``."""
        return (rows.gather(-1, to_device(self._positions(rows.shape[-1], at), rows.device)),)

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """Put the values in their places."""
        [values] = codes
        rows = torch.zeros(len(values), length, dtype=dtype, device=values.device)  # [R, P]
        return rows.scatter_(-1, to_device(self._positions(length, at), values.device), values)

    def _positions(self, length: int, at: At) -> torch.Tensor:
        """Return the places ``[R, k]`` in increasing order."""
        return torch.from_numpy(
            np.stack(
                [
                    choose_positions(length, share=self.share, seed=self.seed, peer=peer, round=at.round, step=at.step)
                    for peer in at.peers
                ]
            )
        )


def choose_positions(
    length: int, *, share: float, seed: int, peer: str = "", round: int, step: int = 0
) -> npt.NDArray[np.int64]:
    """Return the places of a share of ``length`` numbers, increasing int64, the same for every peer with the key.

    Examples
    --------
    >>> choose_positions(10, share=0.3, seed=0, round=2)
    array([0, 7, 9])
    """
    positions = draw(seed, f"places {step}", peer, round).choice(
        length, count_kept(share, length), replace=False, shuffle=False
    )
    return np.sort(positions)
