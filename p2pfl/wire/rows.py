"""A row on the wire: a short header, the raw numbers, a digest.

    | u32 length of head | head, msgpack | zeros up to a multiple of 64 | numbers | trailer |

The numbers start on a multiple of 64 bytes, so that the receiver reads them where they lie. The
trailer is a checksum or the sender's signature, see :mod:`p2pfl.wire.trailer`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
import torch

from p2pfl.errors import DecodeError
from p2pfl.rows import Rows
from p2pfl.wire.messages import Count
from p2pfl.wire.trailer import CHECKSUM, LONGEST, START, Said, Trailer

ALIGNMENT = 64
HEAD = 512
"""An upper bound of the head's length in bytes, with its length and padding."""

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
    "int64": torch.int64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

if sys.byteorder != "little":  # rows travel as they lie in memory
    raise ImportError("p2pfl expected a little-endian processor, got a big-endian one, which is not supported")


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What a row is.

    Attributes
    ----------
    round, step
        The exchange it belongs to.
    dtype, length
        Of the numbers.
    grid
        Fraction bits of fixed-point numbers.
    mass
        The public sample weight, where there is one.
    """

    round: Count
    step: Count
    dtype: Literal["float32", "float64", "float16", "bfloat16", "int32", "int64"]
    length: Annotated[int, msgspec.Meta(ge=0, lt=2**40)]
    grid: Annotated[int, msgspec.Meta(ge=0, le=60)] | None = None
    mass: float | None = None


_heads = msgspec.msgpack.Decoder(Head)


def row_bytes(length: int, dtype: torch.dtype) -> int:
    """Upper bound of the bytes of a row's message."""
    return HEAD + length * dtype.itemsize + LONGEST


def narrowed(row: torch.Tensor) -> torch.Tensor:
    """An int64 row as int32 where every number fits, else itself."""
    if row.dtype != torch.int64 or row.numel() == 0:
        return row
    low, high = torch.aminmax(row)
    bounds = torch.iinfo(torch.int32)
    return row.to(torch.int32) if low >= bounds.min and high <= bounds.max else row


def encode_row(
    row: torch.Tensor, *, round: int, step: int, grid: int | None = None, mass: float | None = None
) -> tuple[bytes, memoryview]:
    """Head and numbers of the row ``[P]``; the numbers are a view, not a copy.

    Examples
    --------
    >>> head, numbers = encode_row(torch.ones(3), round=4, step=0)
    >>> message = b"".join(pieces([head, numbers], size=100))
    >>> decode_row(message)[1]
    tensor([1., 1., 1.])
    """
    row = row.detach().cpu().contiguous()
    head = msgspec.msgpack.encode(Head(round, step, NAMES[row.dtype], row.numel(), grid, mass))  # type: ignore[arg-type]
    prefix = len(head).to_bytes(4, "little") + head
    prefix += bytes(-len(prefix) % ALIGNMENT)
    numbers = memoryview(row.view(torch.uint8).numpy()) if row.numel() else memoryview(b"")  # type: ignore[arg-type]
    return prefix, numbers


def pieces(
    parts: Sequence[bytes | memoryview], *, size: int, trailer: Trailer = CHECKSUM
) -> Iterator[bytes | memoryview]:
    """Cut a message into pieces of ``size`` bytes, its trailer appended as it goes by.

    A piece that lies within one part is a view of it.
    """
    digest = trailer.begin()
    left = sum(len(part) for part in parts) + trailer.size
    queue = [memoryview(part) for part in parts]
    while left:
        piece: list[memoryview] = []
        room = min(size, left)
        left -= room
        while room:
            if not queue:
                queue.append(memoryview(trailer.end(digest.digest())))
                digest = trailer.begin()  # the trailer itself is not hashed
            part, rest = queue[0][:room], queue[0][room:]
            digest.update(part)
            piece.append(part)
            room -= len(part)
            queue[0:1] = [rest] if len(rest) else []
        yield piece[0] if len(piece) == 1 else b"".join(piece)


def decode_row(message: bytes | bytearray | memoryview, *, trailer: Trailer = CHECKSUM) -> tuple[Head, Rows]:
    """Head and numbers ``[P]`` of a message; the numbers are a view into it.

    Raises
    ------
    DecodeError
        If the size, trailer, type, shape or finiteness is not as the head says.
    """
    head, row, _ = read_row(message, trailer=trailer)
    return head, row


def read_row(message: bytes | bytearray | memoryview, *, trailer: Trailer) -> tuple[Head, Rows, Said]:
    """As :func:`decode_row`, with what the sender has signed.

    Raises
    ------
    DecodeError
        As :func:`decode_row`.
    """
    view = memoryview(message).toreadonly()
    start = int.from_bytes(view[:4], "little") + 4
    if len(view) < 4 + trailer.size or start > min(HEAD, len(view) - trailer.size):
        raise DecodeError(f"expected a row, got {len(view)} bytes whose head does not fit")
    head = _head(view[4:start])
    start += -start % ALIGNMENT
    dtype = DTYPES[head.dtype]
    if len(view) != start + head.length * dtype.itemsize + trailer.size:
        raise DecodeError(f"expected {head.length} numbers of type {head.dtype}, got a message of {len(view)} bytes")
    if head.mass is not None and not math.isfinite(head.mass):
        raise DecodeError(f"expected a finite mass, got {head.mass}")
    digest = trailer.begin()
    digest.update(view[: -trailer.size])
    said = Said(digest.digest(), bytes(view[-trailer.size :]))
    trailer.check(said.statement, said.signature)
    if head.length == 0:
        return head, torch.empty(0, dtype=dtype), said
    if memoryview(message).readonly:  # torch wants to write
        message = bytearray(message)
    row = torch.frombuffer(message, dtype=dtype, count=head.length, offset=start)  # [P]
    if dtype.is_floating_point and not _finite(row):
        raise DecodeError("expected finite numbers, got NaN or infinity")
    return head, row, said


def said_head(said: Said) -> Head:
    """The head of the row that a sender has signed.

    Raises
    ------
    DecodeError
        There is none within what is signed as it is.
    """
    end = int.from_bytes(said.start[:4], "little") + 4
    if end > START:
        raise DecodeError(f"expected a head of at most {START} bytes, got one of {end}")
    return _head(said.start[4:end])


def _head(data: bytes | memoryview) -> Head:
    try:
        return _heads.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        raise DecodeError(f"expected the head of a row, got other bytes: {error}") from None


def _finite(row: torch.Tensor) -> bool:
    """Whether all numbers are finite: one sum says yes, and only its overflow asks for a closer look."""
    return math.isfinite(float(row.sum(dtype=torch.float32))) or bool(row.isfinite().all())
