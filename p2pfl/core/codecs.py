""":class:`Codec`, which turns rows into a few short tensors and back.

A codec acts on each row separately. Only :meth:`Codec.encode` loses information: a receiver decodes exactly the numbers
that the sender, and a simulation, use. The bytes of a row are those of its tensors, concatenated; their number follows
from the codec and the length of the row alone, so that a receiver knows the size before decoding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from p2pfl.core.draws import keys, subkeys
from p2pfl.core.errors import DecodeError, InputError
from p2pfl.core.rows import Rows, blockwise, for_each_block, norms, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import CodecTraits

Codes = tuple[torch.Tensor, ...]
"""Encoded rows; each tensor is ``[R, ...]``, on the device of the rows."""


@dataclass(frozen=True)
class Whole:
    """Whole numbers of a row in one encoded tensor, which travel without unused bits.

    Parameters
    ----------
    count
        Number of them.
    largest
        Each is from 0 to this.
    increasing
        True if each is above the one before it.

    Examples
    --------
    >>> Whole(1000, largest=14).size
    500
    """

    count: int
    largest: int
    increasing: bool = False

    @property
    def bits(self) -> int:
        """Number of bits of each."""
        return max(1, self.largest.bit_length())

    @property
    def size(self) -> int:
        """Number of bytes of a row."""
        return -(-self.count * self.bits // 8)

    def read(self, data: torch.Tensor) -> torch.Tensor:
        """Return the numbers ``[1, count]`` of untrusted bytes ``[size]``.

        Raises
        ------
        DecodeError
            They are too large, or do not increase.
        """
        numbers = unpack_bits(data.unsqueeze(0), bits=self.bits, count=self.count)  # [1, count]
        if numbers.numel() and int(numbers.max()) > self.largest:
            raise DecodeError(f"a whole number of a row is {int(numbers.max())}, above the largest, {self.largest}")
        if self.increasing and not bool((numbers.diff(dim=-1) > 0).all()):
            raise DecodeError("the whole numbers of a row do not increase")
        return numbers


Part = tuple[int, torch.dtype] | Whole
"""Number and type of the values of a row in one encoded tensor; or whole numbers."""


@dataclass(frozen=True)
class At:
    """Names of the peers, round and gossip step: the key by which sender and receivers draw alike."""

    peers: tuple[str, ...]
    round: int
    step: int


class Codec(Protocol):
    """Interface of lossy compression; a class without ``traits`` counts as one that encodes whole rows."""

    traits: ClassVar[CodecTraits]

    @property
    def number(self) -> int:
        """Number of the codec on the wire, which is never reused."""
        ...

    def gamma(self, length: int) -> float:
        """Return a consensus step size that is safe with the loss of this codec, on all graphs that were tried."""
        ...

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """Return the parts of the tensors that encode a row of ``length`` numbers, in their order."""
        ...

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Encode ``[R, P]``; whole numbers are of any integer type, as only bytes that travel are packed."""
        ...

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """Decode the rows ``[R, P]``, with the loss of the codec.

        Raises
        ------
        DecodeError
            The codes are not those of any rows.
        """
        ...


@dataclass(frozen=True)
class Coded:
    """Encoded rows with their codec, which travel as bytes.

    Parameters
    ----------
    codec, at
        Codec, and the key of its draws.
    codes
        Codes of all R rows.
    length, dtype
        Length and number type of a row.
    """

    codec: Codec
    at: At
    codes: Codes
    length: int
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Number of bytes of a row."""
        return size(self.codec, self.length, self.dtype)

    def data(self, index: int) -> torch.Tensor:
        """Return the bytes of one row, ``[size]`` uint8."""
        parts = self.codec.parts(self.length, self.dtype)
        each = [_bytes(codes[index], part) for codes, part in zip(self.codes, parts, strict=True)]
        return torch.cat(each)  # [B]

    def read(self, data: torch.Tensor, *, sender: str) -> Rows:
        """Decode the row ``[P]`` that ``sender`` packed into ``[B]`` untrusted bytes in the same gossip step.

        Raises
        ------
        DecodeError
            The bytes do not encode a row.
        """
        if data.dtype != torch.uint8 or data.numel() != self.size:
            raise DecodeError(f"a row has {self.size} bytes, but {data.numel()} numbers of {data.dtype} arrived")
        codes, start = [], 0
        for part in self.codec.parts(self.length, self.dtype):
            end = start + _size(part)
            some = data[start:end]
            codes.append(part.read(some) if isinstance(part, Whole) else some.clone().view(part[1]).unsqueeze(0))
            start = end
        at = replace(self.at, peers=(sender,))
        row = self.codec.decode(tuple(codes), length=self.length, dtype=self.dtype, at=at)[0]  # [P]
        if not bool(row.isfinite().all()):
            raise DecodeError("a row contains NaN or infinity")
        return row


def encode_rows(codec: Codec, rows: Rows, *, at: At) -> tuple[Rows, Coded]:
    """Encode rows; return them with the loss, ``[R, P]``, and their encoding, on the device of the rows.

    Examples
    --------
    >>> left, short = encode_rows(Quantise(bits=4), torch.tensor([[0.7, -0.32, 0.0]]), at=At(("ada",), 0, 0))
    >>> left
    tensor([[ 0.7000, -0.3000,  0.0000]])
    >>> short.size, torch.equal(short.read(short.data(0), sender="ada"), left[0])
    (6, True)
    """
    codes, length = codec.encode(rows, at=at), rows.shape[-1]
    left = codec.decode(codes, length=length, dtype=rows.dtype, at=at).to(rows.device)
    return left, Coded(codec, at, codes, length, rows.dtype)


def size(codec: Codec, length: int, dtype: torch.dtype) -> int:
    """Return the number of bytes of a row."""
    return sum(map(_size, codec.parts(length, dtype)))


def _size(part: Part) -> int:
    """Return the number of bytes of a row in one encoded tensor."""
    return part.size if isinstance(part, Whole) else part[0] * part[1].itemsize


def _bytes(codes: torch.Tensor, part: Part) -> torch.Tensor:
    """Return the bytes of one row of an encoded tensor, ``[B]`` uint8."""
    if isinstance(part, Whole):
        return pack_bits(codes.detach().unsqueeze(0), bits=part.bits)[0]
    return codes.detach().cpu().contiguous().flatten().view(torch.uint8)


@dataclass(frozen=True)
class Half:
    """Codec of two-byte floats.

    ``float16`` is exact to one part in 2,048, ``bfloat16`` to one in 256 with the range of float32. Numbers
    beyond the range of float16 become its largest number.

    Examples
    --------
    >>> encode_rows(Half("float16"), torch.tensor([[0.1, 1e6]]), at=At(("ada",), 0, 0))[0]
    tensor([[9.9976e-02, 6.5504e+04]])
    """

    kind: str = "float16"
    traits: ClassVar[CodecTraits] = CodecTraits(alike=True)

    def __post_init__(self) -> None:
        if self.kind not in {"float16", "bfloat16"}:
            raise InputError(f'"{self.kind}" is not a two-byte float; choose "float16" or "bfloat16"')

    @property
    def number(self) -> int:
        """Number on the wire: 1 or 2."""
        return 1 if self.kind == "float16" else 2

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers that travel."""
        return torch.float16 if self.kind == "float16" else torch.bfloat16

    def gamma(self, length: int) -> float:
        """Return 1."""
        del length
        return 1.0

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """Return the numbers."""
        del dtype  # the codes do not depend on it
        return ((length, self.dtype),)

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Round to the nearest number."""
        del at  # nothing is drawn
        most = torch.finfo(self.dtype).max
        return (rows.clamp(-most, most).to(self.dtype),)

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """Return the same numbers in the type of the row."""
        del length, at
        return codes[0].to(dtype)


VALUES_PER_SCALE = 1024
"""Number of values that share a scale."""


@dataclass(frozen=True)
class Quantise:
    r"""Codec that rounds each number to the nearest of :math:`2^b - 1` levels.

    .. math:: Q(x) = s \operatorname{round}(x / s), \qquad s = \max |x| / (2^{b-1} - 1)

    with a scale s for each 1,024 numbers, because layers differ in size.

    Parameters
    ----------
    bits
        b, from 2 to 8.

    Raises
    ------
    InputError
        ``bits`` is out of range.
    """

    bits: int = 8
    traits: ClassVar[CodecTraits] = CodecTraits(differences=True, alike=True)
    number: int = 3

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 8:
            raise InputError(f"bits is {self.bits}, not from 2 to 8; choose 8 or 4")

    @property
    def top(self) -> int:
        """Highest level; the lowest is its negative."""
        return int(2 ** (self.bits - 1)) - 1

    def gamma(self, length: int) -> float:
        """Return 1, or 0.3 for two bits."""
        del length
        return 1.0 if self.bits > 2 else 0.3

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """Return scales and levels."""
        del dtype
        return (-(-length // VALUES_PER_SCALE), torch.float32), Whole(length, 2 * self.top)

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Encode rows as scales ``[R, blocks]`` and levels above the lowest one, ``[R, P]`` uint8."""
        del at
        scales = rows.new_empty(len(rows), -(-rows.shape[-1] // VALUES_PER_SCALE), dtype=torch.float32)  # [R, blocks]
        levels = torch.empty_like(rows, dtype=torch.uint8)  # [R, P]

        def some(part: slice) -> None:
            own = rows[part]  # [K, P]
            padded = torch.nn.functional.pad(own, (0, -own.shape[-1] % VALUES_PER_SCALE))
            blocks = padded.view(len(own), -1, VALUES_PER_SCALE)  # [K, blocks, BLOCK]
            scales[part] = blocks.abs().amax(-1) / self.top
            share = torch.where(scales[part] > 0, scales[part], 1.0).to(rows.dtype).unsqueeze(-1)
            near = (blocks / share).round().clamp(-self.top, self.top).flatten(1)[:, : own.shape[-1]]  # [K, P]
            levels[part] = near.nan_to_num(0.0) + self.top  # a share of infinity is no number

        for_each_block(some, rows)
        return scales, levels

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """Multiply levels and scales."""
        del at
        scales, levels = codes
        rows = torch.empty(len(levels), length, dtype=dtype, device=levels.device)  # [R, P]

        def some(part: slice) -> None:
            wide = (
                scales[part].to(dtype).unsqueeze(-1).expand(-1, -1, VALUES_PER_SCALE).flatten(1)[:, :length]
            )  # [K, P]
            rows[part] = (levels[part].to(dtype) - self.top) * wide

        for_each_block(some, rows)
        return rows


@dataclass(frozen=True)
class QSGD:
    r"""Codec of random rounding to s levels of the norm, scaled so that it contracts.

    .. math:: Q(x) = \frac{\operatorname{sign}(x) \lVert x \rVert}{s \tau}
              \left\lfloor s \frac{|x|}{\lVert x \rVert} + \xi \right\rfloor, \qquad
              \tau = 1 + \min\left(\frac{P}{s^2}, \frac{\sqrt P}{s}\right)

    with :math:`\xi` uniform in [0, 1) for each number, a hash of a key.
    :math:`E \lVert Q(x) - x \rVert^2 \le (1 - 1 / \tau) \lVert x \rVert^2`.

    Parameters
    ----------
    levels
        s. A number takes :math:`\lceil \log_2(2 s + 1) \rceil` bits: 4 for 7 levels, 8 for 127.
    seed
        Seed of :math:`\xi`.

    Raises
    ------
    InputError
        ``levels`` is out of range.

    References
    ----------
    Alistarh et al., QSGD: communication-efficient SGD via gradient quantization and encoding, NIPS 2017; shrunk as in
    Koloskova et al., Decentralized stochastic optimization and gossip algorithms with compressed communication, ICML
    2019, section 3.5.

    Examples
    --------
    >>> from p2pfl.core.codecs import encode_rows
    >>> encode_rows(QSGD(levels=4, seed=0), torch.tensor([[3.0, 0.0, -4.0]]), at=At(("ada",), 0, 0))[0]
    tensor([[ 2.1053,  0.0000, -4.2105]])
    """

    levels: int = 127
    seed: int = 0
    traits: ClassVar[CodecTraits] = CodecTraits(differences=True)
    number: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.levels < 2**15:
            raise InputError(f"levels is {self.levels}, not from 1 to 32767; 7 take 4 bits per number, 127 take 8")

    def gamma(self, length: int) -> float:
        r"""Return :math:`1 / \tau`."""
        return 1 / self.tau(length)

    def tau(self, length: int) -> float:
        """Return the factor by which rows shrink."""
        return 1 + min(length / self.levels**2, math.sqrt(length) / self.levels)

    def parts(self, length: int, dtype: torch.dtype) -> tuple[Part, ...]:
        """Return the size of a level, and the levels."""
        return (1, dtype), Whole(length, 2 * self.levels)

    def encode(self, rows: Rows, *, at: At) -> Codes:
        """Encode rows as sizes ``[R, 1]`` and levels above the lowest one, ``[R, P]``."""
        length, s = rows.shape[-1], self.levels
        lengths = norms(rows)  # [R, 1]
        drawn = to_device(torch.from_numpy(keys(self.seed, f"qsgd {at.step}", at.peers, at.round)), rows.device)  # [R]
        numbers = torch.arange(length, device=rows.device)  # [P]
        levels = torch.empty_like(rows, dtype=torch.uint8 if 2 * s < 256 else torch.int32)  # [R, P]

        def some(part: slice) -> None:
            bits = subkeys(drawn[part].unsqueeze(-1), numbers)  # [K, P] int64
            xi = (bits >> 11).double() * 2.0**-53 + 0.5  # [K, P]
            share = torch.where(lengths[part] > 0, lengths[part], 1.0)
            near = (s * rows[part].abs() / share + xi).floor().clamp(max=s) * rows[part].sign()  # [K, P]
            levels[part] = near.nan_to_num(0.0) + s  # a share of infinity is no number

        for_each_block(some, rows)
        return (lengths / (s * self.tau(length))).to(rows.dtype), levels

    def decode(self, codes: Codes, *, length: int, dtype: torch.dtype, at: At) -> Rows:
        """Multiply levels and their size."""
        del length, at
        sizes, levels = codes
        rows = torch.empty_like(levels, dtype=dtype)  # [R, P]
        return blockwise(lambda level, size: (level.to(dtype) - self.levels) * size, levels, sizes, out=rows)


def pack_bits(codes: torch.Tensor, *, bits: int) -> torch.Tensor:
    """Pack numbers below ``2 ** bits``, ``[R, K]``, into bytes ``[R, ceil(K bits / 8)]`` uint8, the lowest bit first.

    Examples
    --------
    >>> pack_bits(torch.tensor([[1, 2, 3]]), bits=4)
    tensor([[33,  3]], dtype=torch.uint8)
    >>> unpack_bits(pack_bits(torch.tensor([[5, 0, 7]]), bits=3), bits=3, count=3)
    tensor([[5, 0, 7]])
    """
    values = codes.cpu().numpy()  # [R, K]
    if bits == 8:
        return torch.from_numpy(values.astype(np.uint8))
    planes = np.empty((*values.shape, bits), np.uint8)  # [R, K, bits]
    for bit in range(bits):
        planes[..., bit] = values >> bit & 1
    flat = planes.reshape(*values.shape[:-1], -1)  # [R, K bits]
    return torch.from_numpy(np.packbits(flat, axis=-1, bitorder="little"))  # [R, B]


def unpack_bits(data: torch.Tensor, *, bits: int, count: int) -> torch.Tensor:
    """Unpack bytes of :func:`pack_bits` into ``[R, K]`` int64."""
    values = data.cpu().numpy()  # [R, B]
    if bits == 8:
        return torch.from_numpy(values.astype(np.int64))
    flat = np.unpackbits(values, axis=-1, count=count * bits, bitorder="little")  # [R, K bits]
    planes = flat.reshape(*values.shape[:-1], count, bits)  # [R, K, bits]
    codes = np.zeros(planes.shape[:-1], np.int64)  # [R, K]
    for bit in range(bits):
        codes += planes[..., bit].astype(np.int64) << bit
    return torch.from_numpy(codes)


@dataclass(frozen=True)
class Zstd:
    """Codec of Zstandard frames that state the size of their contents.

    Parameters
    ----------
    level
        Compression level from 1 to 19; higher levels take longer.

    Raises
    ------
    InputError
        The library is not installed.

    Examples
    --------
    >>> squeezed = Zstd().squeeze(bytes(10_000))
    >>> len(squeezed) < 100, Zstd().expand(squeezed, size=10_000) == bytes(10_000)
    (True, True)
    """

    level: int = 3

    def __post_init__(self) -> None:
        _library()

    def squeeze(self, data: bytes | memoryview) -> bytes:
        """Compress data to one frame."""
        squeezed: bytes = _library().ZstdCompressor(level=self.level).compress(data)
        return squeezed

    def expand(self, data: bytes | memoryview, *, size: int) -> bytes:
        """Return the ``size`` bytes in an untrusted frame, without allocating more memory than that.

        Raises
        ------
        DecodeError
            The data are not a frame, or it contains more or fewer bytes.
        """
        library = _library()
        try:
            if library.frame_content_size(data) != size:
                raise DecodeError(f"a frame contains {library.frame_content_size(data)} bytes instead of {size}")
            window = library.get_frame_parameters(data).window_size
            if window > max(size, 2**10):
                raise DecodeError(f"a frame has a window of {window} bytes, above the limit of {size}")
            expanded: bytes = library.ZstdDecompressor().decompress(data, allow_extra_data=False)
        except library.ZstdError as error:
            raise DecodeError(f"the bytes are not a Zstandard frame ({error})") from None
        return expanded


def _library() -> Any:
    try:
        import zstandard  # noqa: PLC0415 (an extra)
    except ImportError:
        raise InputError(
            'compression.zstd needs zstandard, which is not installed; run pip install "p2pfl-mqtt[zstd]", or '
            "leave compression.zstd out"
        ) from None
    return zstandard
