"""What a codec is: rows to a few short tensors, and back to the rows that everybody then sees.

A codec acts on each row by itself. It loses something in :meth:`Codec.encode` and nothing after it: what a
receiver decodes is to the last bit what the sender, and a simulation, take it for. The bytes of a row are those
of its tensors laid end to end; how many there are follows from the codec and the length of the row alone, so that a
receiver knows what to expect before it looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch

from p2pfl.compression.bits import bytes_for, packed, unpacked
from p2pfl.errors import DecodeError, InputError
from p2pfl.rows import Rows
from p2pfl.traits import CodecTraits

Codes = tuple[torch.Tensor, ...]
"""What a codec makes of rows; each tensor ``[R, ...]``."""

Part = tuple[int, torch.dtype]
"""How many numbers of which type a row has in one of them."""


@dataclass(frozen=True)
class At:
    """Whose rows, in which exchange: by this key sender and receivers draw alike."""

    peers: tuple[str, ...]
    round: int
    step: int


class Codec(Protocol):
    """Makes rows small; a class without ``traits`` is taken to encode whole rows."""

    traits: ClassVar[CodecTraits]

    @property
    def number(self) -> int:
        """On the wire; never reused."""
        ...

    def gamma(self, length: int) -> float:
        """A step of consensus that is safe with what it loses of a row, on any graph that was tried."""
        ...

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """What a row of ``length`` numbers becomes."""
        ...

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """``[R, P]`` in short."""
        ...

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """What is left of the rows, ``[R, P]``.

        Raises
        ------
        DecodeError
            No rows have these codes.
        """
        ...


@dataclass(frozen=True)
class Coded:
    """Codes beside the rows that they stand for, so that these travel as bytes.

    Parameters
    ----------
    codec, at
        Of the codes.
    codes
        Of all R rows.
    length, dtype
        Of a row.
    """

    codec: Codec
    at: At
    codes: Codes
    length: int
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Bytes of a row."""
        return size(self.codec, self.length, self.dtype)

    def data(self, index: int) -> torch.Tensor:
        """One row's bytes, ``[size]`` uint8."""
        parts = [codes[index].detach().cpu().contiguous().flatten().view(torch.uint8) for codes in self.codes]
        return torch.cat(parts)  # [B]

    def read(self, data: torch.Tensor, *, sender: str) -> Rows:
        """The row ``[P]`` that ``sender`` packed into ``[B]`` bytes in the same exchange; they may be anybody's.

        Raises
        ------
        DecodeError
            No row is packed so.
        """
        if data.dtype != torch.uint8 or data.numel() != self.size:
            raise DecodeError(f"expected a row in {self.size} bytes, got {data.numel()} numbers of {data.dtype}")
        codes, start = [], 0
        for count, dtype in self.codec.parts(self.length, self.dtype):
            end = start + count * dtype.itemsize
            codes.append(data[start:end].clone().view(dtype).unsqueeze(0))  # [1, count]
            start = end
        at = replace(self.at, peers=(sender,))
        row = self.codec.decode(tuple(codes), length=self.length, dtype=self.dtype, at=at)[0]  # [P]
        if not bool(row.isfinite().all()):
            raise DecodeError("expected finite numbers, got NaN or infinity")
        return row


def coded(codec: Codec, rows: Rows, *, at: At) -> tuple[Rows, Coded]:
    """What is left of the rows, ``[R, P]``, and how it travels.

    Examples
    --------
    >>> left, short = coded(Quantise(bits=4), torch.tensor([[0.7, -0.32, 0.0]]), at=At(("ada",), 0, 0))
    >>> left
    tensor([[ 0.7000, -0.3000,  0.0000]])
    >>> short.size, torch.equal(short.read(short.data(0), sender="ada"), left[0])
    (6, True)
    """
    codes, length = codec.encode(rows, at=at), rows.shape[-1]
    left = codec.decode(codes, length=length, dtype=rows.dtype, at=at).to(rows.device)
    return left, Coded(codec, at, codes, length, rows.dtype)


def size(codec: Codec, length: int, dtype: torch.dtype) -> int:
    """Bytes of a row."""
    return sum(count * kind.itemsize for count, kind in codec.parts(length, dtype))


@dataclass(frozen=True)
class Half:
    """Numbers in two bytes: ``float16`` to one part in 2,048, ``bfloat16`` to one in 256, with the range of float32.

    What float16 cannot hold becomes its largest number.

    Examples
    --------
    >>> coded(Half("float16"), torch.tensor([[0.1, 1e6]]), at=At(("ada",), 0, 0))[0]
    tensor([[9.9976e-02, 6.5504e+04]])
    """

    kind: str = "float16"
    traits: ClassVar[CodecTraits] = CodecTraits()

    def __post_init__(self) -> None:
        if self.kind not in {"float16", "bfloat16"}:
            raise InputError(f'expected "float16" or "bfloat16", got "{self.kind}": choose one')

    @property
    def number(self) -> int:
        """1 or 2."""
        return 1 if self.kind == "float16" else 2

    @property
    def dtype(self) -> torch.dtype:
        """Of the numbers that travel."""
        return torch.float16 if self.kind == "float16" else torch.bfloat16

    def gamma(self, length: int) -> float:
        """1."""
        del length
        return 1.0

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """The numbers."""
        del dtype  # they lose it
        return ((length, self.dtype),)

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Round to the nearest."""
        del at  # nothing is drawn
        most = torch.finfo(self.dtype).max
        return (rows.clamp(-most, most).to(self.dtype),)

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """The same numbers in the type of the row."""
        del length, at
        return codes[0].to(dtype)


BLOCK = 1024
"""Numbers that share a scale."""


@dataclass(frozen=True)
class Quantise:
    r"""Each number to the nearest of :math:`2^b - 1` levels.

    .. math:: Q(x) = s \operatorname{round}(x / s), \qquad s = \max |x| / (2^{b-1} - 1)

    with a scale s for each 1,024 numbers, as layers differ in size.

    Parameters
    ----------
    bits
        b, from 2 to 8.

    Raises
    ------
    InputError
        Other bits.
    """

    bits: int = 8
    traits: ClassVar[CodecTraits] = CodecTraits(differences=True)
    number: int = 3

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 8:
            raise InputError(f"expected 2 to 8 bits a number, got {self.bits}: choose 8 or 4")

    @property
    def top(self) -> int:
        """The highest level; the lowest is its negative."""
        return int(2 ** (self.bits - 1)) - 1

    def gamma(self, length: int) -> float:
        """1, but .3 for two bits."""
        del length
        return 1.0 if self.bits > 2 else 0.3

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """Scales and levels."""
        del dtype
        return (-(-length // BLOCK), torch.float32), (bytes_for(length, bits=self.bits), torch.uint8)

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Scales ``[R, blocks]`` and levels."""
        del at
        count, length = rows.shape
        padded = torch.nn.functional.pad(rows, (0, -length % BLOCK))
        blocks = padded.view(count, -1, BLOCK)  # [R, blocks, BLOCK]
        scales = (blocks.abs().amax(-1) / self.top).to(torch.float32)  # [R, blocks]
        share = torch.where(scales > 0, scales, 1.0).to(rows.dtype).unsqueeze(-1)
        levels = (blocks / share).round().clamp(-self.top, self.top).view(count, -1)[:, :length]  # [R, P]
        return scales, packed(levels.to(torch.int32) + self.top, bits=self.bits)

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """Levels times scales."""
        del at
        scales, data = codes
        levels = levels_of(data, bits=self.bits, length=length, top=self.top)  # [R, P]
        wide = scales.cpu().to(dtype).repeat_interleave(BLOCK, dim=-1)[:, :length]  # [R, P]
        return levels.to(dtype) * wide


def levels_of(data: torch.Tensor, *, bits: int, length: int, top: int) -> torch.Tensor:
    """Signed levels ``[R, P]`` of bytes.

    Raises
    ------
    DecodeError
        One lies above the top.
    """
    levels = unpacked(data, bits=bits, count=length) - top  # [R, P]
    if levels.numel() and int(levels.max()) > top:
        raise DecodeError(f"expected levels up to {top}, got {int(levels.max())}")
    return levels


def kept(share: float, length: int) -> int:
    """How many of ``length`` numbers a share is: at least one, if there is one.

    Raises
    ------
    InputError
        No share.
    """
    if not 0 < share <= 1 or math.isnan(share):
        raise InputError(f"expected a share above 0 and at most 1, got {share}: 0.01 keeps one number in a hundred")
    return min(length, max(1, round(share * length)))
