"""A row on the wire: a short header and the raw numbers.

    | u32 length of head | head, msgpack | zeros up to a multiple of 64 | numbers |

The numbers start on a multiple of 64 bytes, so that the receiver reads them where they lie. The last chunk has a
checksum or the sender's signature beside it, see :mod:`p2pfl.network.protocol.wire.trailer`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import blake3
import msgspec

from p2pfl.core.codecs import Zstd
from p2pfl.core.errors import DecodeError, InputError
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import TORCH_INSTALLED, torch
from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.bounds import HEAD
from p2pfl.network.protocol.wire.trailer import CHECKSUM, START, SignedStatement, Trailer

T = TypeVar("T")

ALIGNMENT = 64

NO_PIECES = bytes(32)
"""Chain of a message of which no piece has been hashed."""

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

if sys.byteorder != "little":  # rows travel as they lie in memory
    raise ImportError("big-endian processors are not supported; run p2pfl on a little-endian one")


class Head(msgspec.Struct, frozen=True, array_like=True):
    """Description of a model in the head of its message.

    Attributes
    ----------
    round, step
        The gossip step it belongs to.
    dtype, length
        Of the numbers.
    grid
        Fraction bits of fixed-point numbers.
    mass
        The public sample weight, where there is one.
    codec
        The number of the codec whose bytes these are (their parameters are agreed on beforehand); 0 for numbers.
    zstd
        True if the numbers are squeezed.
    """

    round: bounds.Round
    step: bounds.Step
    dtype: Literal["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"]
    length: bounds.Size
    grid: Annotated[int, msgspec.Meta(ge=0, le=60)] | None = None
    mass: bounds.Weight | None = None
    codec: Annotated[int, msgspec.Meta(ge=0, le=127)] = 0
    zstd: bool = False


class ModelMessage(NamedTuple):
    """Message of a model that has arrived as a whole.

    Attributes
    ----------
    data
        Head and numbers.
    chain
        Chain of the hashes of its pieces; empty if they do not follow one another.
    trailer
        Trailer of its last piece.
    """

    data: memoryview
    chain: bytes
    trailer: bytes


class Parsed(NamedTuple):
    """Received model in its parts.

    Attributes
    ----------
    head, row
        Head of the message, and parameters, ``[P]``.
    statement
        Statement that the sender signed.
    """

    head: Head
    row: Rows
    statement: SignedStatement


@dataclass(frozen=True)
class Delivery:
    """Received model that waits to be used.

    Attributes
    ----------
    head
        Head of its message.
    row
        Parameters, ``[P]``.
    """

    head: Head
    row: Rows

    @property
    def gossip_step(self) -> tuple[int, int]:
        """Round, and step within it, to which the model belongs."""
        return self.head.round, self.head.step


_heads = msgspec.msgpack.Decoder(Head)


def row_bytes(length: int, dtype: torch.dtype) -> int:
    """Return the upper bound of the bytes of a model's message."""
    return HEAD + length * dtype.itemsize


def encode_row(
    row: torch.Tensor,
    *,
    round: int,
    step: int,
    grid: int | None = None,
    mass: float | None = None,
    codec: int = 0,
    zstd: Zstd | None = None,
) -> tuple[bytes | memoryview, bytes | memoryview]:
    """Return the head and the numbers of a row ``[P]``; the numbers are a view, not a copy, unless they are compressed.

    The row lies in the CPU's memory in one piece, as :meth:`p2pfl.core.neighbourhood.Released.row` returns it.

    Examples
    --------
    >>> head, numbers = encode_row(torch.ones(3), round=4, step=0)
    >>> len(head), len(numbers)
    (64, 12)
    """
    numbers: bytes | memoryview = memoryview(row.view(torch.uint8).numpy())  # type: ignore[arg-type]
    squeezed = None if zstd is None else zstd.squeeze(numbers)
    smaller = squeezed is not None and len(squeezed) < len(numbers)
    named: Any = NAMES[row.dtype]
    head = msgspec.msgpack.encode(Head(round, step, named, row.numel(), grid, mass, codec, smaller))
    prefix = len(head).to_bytes(4, "little") + head
    prefix += bytes(-len(prefix) % ALIGNMENT)
    return prefix, squeezed if squeezed is not None and smaller else numbers


class Encoded(tuple[bytes | memoryview, ...]):
    """The parts of an encoded model, which must not change: copies share them."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> Encoded:
        return self


def extend(chain: bytes, digest: bytes) -> bytes:
    """Return the chain with the BLAKE3 hash of the next piece.

    Examples
    --------
    >>> one, other = blake3.blake3(b"one").digest(), blake3.blake3(b"other").digest()
    >>> extend(extend(NO_PIECES, one), other) == extend(extend(NO_PIECES, other), one)
    False
    """
    return blake3.blake3(chain + digest).digest()


class Pieces:
    """The pieces of a message, cut one by one: plain state, so that a copy cuts the same.

    A piece that lies within one part is a view of it.

    Parameters
    ----------
    parts
        Of the message; they must not change.
    size
        Bytes of a piece.

    Attributes
    ----------
    left
        Bytes that are still to be cut.
    """

    def __init__(self, parts: Sequence[bytes | memoryview], *, size: int) -> None:
        self.size, self.left = size, sum(len(part) for part in parts)
        self._parts = Encoded(parts)
        self._place = 0, 0  # which part is next, and from which of its bytes on

    @property
    def start(self) -> bytes:
        """The first 64 bytes of the message."""
        return b"".join(bytes(part[:START]) for part in self._parts)[:START]

    def __iter__(self) -> Self:
        """Iterate over the pieces that are left."""
        return self

    def __next__(self) -> bytes | memoryview:
        """Cut a piece."""
        if not self.left:
            raise StopIteration
        piece: list[memoryview] = []
        room = min(self.size, self.left)
        self.left -= room
        while room:
            part = self._next(room)
            piece.append(part)
            room -= len(part)
        return piece[0] if len(piece) == 1 else b"".join(piece)

    def _next(self, most: int) -> memoryview:
        """Return up to so many of the next bytes, at least one unless a part is empty."""
        number, start = self._place
        part = memoryview(self._parts[number])[start : start + most]
        end = start + len(part)
        self._place = (number, end) if end < len(self._parts[number]) else (number + 1, 0)
        return part


def read_row(message: ModelMessage, *, trailer: Trailer = CHECKSUM, largest: int = 2**30) -> Parsed:
    """Return the parts of a message; the numbers ``[P]`` are a view into it.

    Parameters
    ----------
    message, trailer
        The message, and how it must end.
    largest
        Bytes of numbers that may be allocated for a compressed row.

    Raises
    ------
    DecodeError
        If the pieces, size, trailer, type, shape or finiteness is not as the head says.
    """
    view = message.data.toreadonly()
    start = int.from_bytes(view[:4], "little") + 4
    if not message.chain:
        raise DecodeError("the pieces of the model do not follow one another")
    if start > min(START, len(view)):
        raise DecodeError(f"the head of the model does not fit into its {len(view)} bytes")
    head = _head(view[4:start])
    start += -start % ALIGNMENT
    dtype = DTYPES[head.dtype]
    size = head.length * dtype.itemsize
    if head.zstd and size > largest:
        raise DecodeError(f"the model has {size} bytes, and {largest} are allowed")
    if len(view) < start or (not head.zstd and len(view) != start + size):
        raise DecodeError(f"a message of {len(view)} bytes does not hold {head.length} numbers of type {head.dtype}")
    signed = SignedStatement(trailer.statement(bytes(view[:START]), message.chain), message.trailer)
    trailer.check(signed.statement, signed.signature)
    data = message.data
    if head.zstd:  # only of who has signed it
        data, start = memoryview(bytearray(_expand(view[start:], size=size))), 0
    return Parsed(head, _numbers(data, dtype, length=head.length, start=start), signed)


def read_rows(messages: Iterable[ModelMessage], *, trailer: Trailer, largest: int) -> tuple[Parsed | None, ...]:
    """Read models as :func:`read_row` does; ``None`` marks an invalid one."""
    return tuple(_valid(message, trailer=trailer, largest=largest) for message in messages)


def _valid(message: ModelMessage, *, trailer: Trailer, largest: int) -> Parsed | None:
    try:
        return read_row(message, trailer=trailer, largest=largest)
    except DecodeError:
        return None


def _expand(data: memoryview, *, size: int) -> bytes:
    try:
        return Zstd().expand(data, size=size)
    except InputError:
        raise DecodeError("the model is compressed with zstd; install the package zstandard to read it") from None


def _numbers(message: bytearray | memoryview, dtype: torch.dtype, *, length: int, start: int) -> Rows:
    """Return finite numbers as a view into the message, or of bfloat16 without torch as a copy, ``[P]``."""
    if length == 0:
        return torch.empty(0, dtype=dtype)
    if memoryview(message).readonly:  # torch wants to write
        message = bytearray(message)
    row = torch.frombuffer(message, dtype=dtype, count=length, offset=start)  # [P]
    if dtype is torch.bfloat16 and not TORCH_INSTALLED:
        row = row.to(torch.float32)  # numpy computes nothing with the others
    if dtype.is_floating_point and not _finite(row):
        raise DecodeError("the model contains NaN or infinity")
    return row


def head_of(signed: SignedStatement) -> Head:
    """Return the head of the model that a sender has signed.

    Raises
    ------
    DecodeError
        The signed bytes contain no complete head.
    """
    end = int.from_bytes(signed.start[:4], "little") + 4
    if end > START:
        raise DecodeError(f"the head of the model has {end} bytes, and {START} are allowed")
    return _head(signed.start[4:end])


def _head(data: bytes | memoryview) -> Head:
    try:
        return _heads.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        raise DecodeError(f"the head of the model cannot be decoded: {error}") from None


def _finite(row: torch.Tensor) -> bool:
    """Return whether all numbers are finite: one sum says yes, and only its overflow asks for a closer look."""
    return math.isfinite(float(row.sum(dtype=torch.float32))) or bool(row.isfinite().all())
