"""Reliable streams over a broker that may acknowledge and then drop.

A peer has one outgoing stream of numbered chunks, which all its listeners receive at once. Each
listener grants credit (how far the sender may go), acknowledges what came and asks again for what
did not. Both ends are pure: bytes and acknowledgements in, chunks and acknowledgements out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import blake3
import numpy as np
from numpy.typing import NDArray

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire.message_memory import MessageMemory
from p2pfl.network.protocol.wire.messages import Ack, Chunk
from p2pfl.network.protocol.wire.trailer import CHECKSUM, Trailer
from p2pfl.network.protocol.wire.wire_rows import NO_PIECES, ModelMessage, Pieces, extend

RESEND = 64
"""Maximum number of missing chunks that one acknowledgement requests."""

MAX_CHUNKS = 400
"""Chunks that all streams together have under way towards one peer, at most."""

WINDOW_BYTES = 16 * 2**20
"""Bytes that all streams together have under way towards one peer, at most."""

INITIAL = 2
"""Chunks that may be sent to a listener before its first acknowledgement."""


@dataclass
class _Cut:
    """A message of which chunks are cut as credit allows."""

    pieces: Pieces
    total: int
    first: int = 0
    offset: int = 0
    chain: bytes = NO_PIECES


class Outbox:
    """The sending end of a peer's stream.

    Parameters
    ----------
    incarnation
        Names this incarnation of the stream.
    phase
        Which of a peer's streams this is; a schedule of topologies has one for each.
    chunk
        Bytes of data in a chunk.
    trailer
        Trailer of each message.
    """

    def __init__(self, incarnation: int, *, phase: int = 0, chunk: int, trailer: Trailer = CHECKSUM) -> None:
        self.trailer = trailer
        self.incarnation = incarnation
        self.phase = phase
        self.chunk = chunk
        self.head = 0
        self._next: dict[str, int] = {}  # by listener: everything below has arrived there
        self._limit: dict[str, int] = {}
        self._held: dict[int, Chunk] = {}
        self._waiting: deque[_Cut] = deque()
        self.unsent = 0

    @property
    def tail(self) -> int:
        """The lowest sequence that some listener has not acknowledged."""
        return min(self._next.values(), default=self.head)

    @property
    def idle(self) -> bool:
        """True if everything has been sent and acknowledged by every listener."""
        return not self.unsent and not self._held

    def listen(self, listener: str) -> None:
        """Add a listener, from the next chunk on."""
        self._next.setdefault(listener, self.head)
        self._limit.setdefault(listener, self.head + INITIAL)

    def drop(self, listener: str) -> None:
        """Forget a listener; the others wait for it no longer."""
        self._next.pop(listener, None)
        self._limit.pop(listener, None)
        self._free()

    def lagging_listeners(self) -> list[str]:
        """Return the listeners that have not acknowledged all chunks, or that withhold credit."""
        return sorted(
            peer
            for peer, arrived in self._next.items()
            if arrived < self.head or (self.unsent and self._limit[peer] <= self.head)
        )

    def put(self, parts: Sequence[bytes | memoryview]) -> None:
        """Queue a message, given as parts that are not copied and must not change until they are acknowledged."""
        self._waiting.append(self._queue(parts))

    def again(self, messages: Sequence[Sequence[bytes | memoryview]]) -> None:
        """Queue messages that were sent before, in their order, ahead of those that wait."""
        cutting = bool(self._waiting) and self._waiting[0].offset > 0  # some of the first that waits has been sent
        for index, parts in enumerate(messages, start=int(cutting)):
            self._waiting.insert(index, self._queue(parts))

    def _queue(self, parts: Sequence[bytes | memoryview]) -> _Cut:
        pieces = Pieces(parts, size=self.chunk)
        self.unsent += -(-pieces.left // self.chunk)
        return _Cut(pieces, pieces.left)

    def ready(self) -> Iterator[Chunk]:
        """Yield the chunks that may be published now; each is held until every listener has it."""
        while self._waiting and self._limit and self.head < min(self._limit.values()):
            chunk = self._cut(self._waiting[0])
            if not self._waiting[0].pieces.left:
                self._waiting.popleft()
            self.unsent -= 1
            self._held[chunk.sequence] = chunk
            self.head += 1
            yield chunk
        if not self._limit:  # nobody listens
            self._waiting.clear()
            self.unsent = 0

    def acknowledge(self, listener: str, ack: Ack) -> list[Chunk]:
        """Handle an acknowledgement; return the chunks to send again."""
        if (
            (ack.incarnation, ack.phase) != (self.incarnation, self.phase)
            or listener not in self._next
            or ack.next > self.head
            or ack.limit > ack.next + MAX_CHUNKS  # no listener grants more: chunks could accumulate
        ):
            return []
        if ack.next >= self._next[listener]:
            self._next[listener] = ack.next
            self._limit[listener] = max(self._limit[listener], ack.limit)
            self._free()
        return [self._held[sequence] for sequence in ack.missing[:RESEND] if sequence in self._held]

    def _cut(self, message: _Cut) -> Chunk:
        """Return the next chunk of a message of which some is left."""
        if not message.offset:
            message.first = self.head
        piece, offset = memoryview(next(message.pieces)), message.offset
        digest = blake3.blake3(piece).digest()
        message.offset += len(piece)
        message.chain = extend(message.chain, digest)
        trailer = b"" if message.pieces.left else self._trailer(message)
        place = self.incarnation, self.phase, self.head, message.first, offset, message.total
        chunk = Chunk(*place, trailer, piece)
        vars(chunk)["digest"] = digest
        return chunk

    def _trailer(self, message: _Cut) -> bytes:
        """Return the trailer of a message of which all pieces are cut."""
        return self.trailer.end(self.trailer.statement(message.pieces.start, message.chain))

    def _free(self) -> None:
        for sequence in [sequence for sequence in self._held if sequence < self.tail]:
            del self._held[sequence]


@dataclass
class _Chain:
    """Chain of the pieces of a message that have arrived, in the order of the stream."""

    value: bytes = NO_PIECES
    size: int = 0
    trailer: bytes = b""


class _Piece(NamedTuple):
    """Part of a chunk that is kept until those before it have arrived, without the memory of its message."""

    chain: _Chain
    offset: int
    size: int
    digest: bytes
    trailer: bytes


@dataclass
class _Partial:
    """A message of which some chunks have arrived."""

    buffer: NDArray[np.uint8]
    left: int
    end: int = 0
    chain: _Chain = field(default_factory=_Chain)


@dataclass
class Inbox:
    """The receiving end of one peer's stream.

    Parameters
    ----------
    incarnation
        Of the stream.
    window
        Chunks that may be under way at any time.
    largest
        Bytes of the largest message that is accepted.
    phase
        Which of the sender's streams this is.
    widest
        Bytes of data in a chunk, as far as is known before one has come.
    memory
        Memory of its messages; streams of one peer share it.

    Attributes
    ----------
    reported
        Furthest round of the sender that a heartbeat of this stream reported, and the head of the stream then.
    """

    incarnation: int
    window: int
    largest: int
    phase: int = 0
    widest: int = 0
    memory: MessageMemory = field(default_factory=MessageMemory)
    next: int = 0
    granted: int = INITIAL
    reported: tuple[int, int] = (-1, 0)
    _later: dict[int, _Piece | None] = field(default_factory=dict)  # None for a chunk that was refused
    _partial: dict[int, _Partial] = field(default_factory=dict)
    _complete: dict[int, _Partial] = field(default_factory=dict)  # by the sequence after it
    _reported: int = INITIAL

    @property
    def reserved(self) -> int:
        """Bytes set aside for messages of which some chunks have arrived."""
        return sum(len(part.buffer) for part in self._partial.values())

    @property
    def incomplete(self) -> bool:
        """True if only a part of a message has arrived."""
        return bool(self._partial)

    @property
    def held(self) -> int:
        """Bytes that have arrived of messages that are not complete."""
        return sum(len(part.buffer) - part.left for part in self._partial.values())

    def awaits(self, chunk: Chunk) -> bool:
        """Return whether a chunk is of this stream, within the credit, and has not come before."""
        missing = self.next <= chunk.sequence < self.granted and chunk.sequence not in self._later
        return chunk.incarnation == self.incarnation and missing

    def take(self, chunk: Chunk) -> list[ModelMessage]:
        """Take a chunk; return the messages that are complete with it, in the order of the stream.

        Raises
        ------
        DecodeError
            If the chunk lies outside its message, or the message is too large.
        """
        if not self.awaits(chunk):
            return []  # of another incarnation, a duplicate, sent to others before we listened, or without credit
        if chunk.total > self.largest or chunk.offset + len(chunk.data) > chunk.total or not len(chunk.data):
            raise DecodeError(
                f"bytes {chunk.offset} to {chunk.offset + len(chunk.data)} are not within a message of {chunk.total}, "
                f"of which {self.largest} are allowed"
            )
        self.widest = max(self.widest, len(chunk.data))
        if len(chunk.data) == chunk.total and chunk.first not in self._partial:
            part = _Partial(np.frombuffer(bytearray(chunk.data), np.uint8), 0)
            self._complete[chunk.sequence + 1] = part
        else:
            part = self._part(chunk)
            self._fill(part, chunk)
        self._later[chunk.sequence] = _Piece(part.chain, chunk.offset, len(chunk.data), chunk.digest, chunk.trailer)
        return self._advance()

    def _fill(self, part: _Partial, chunk: Chunk) -> None:
        """Copy the data of a chunk to its place, and note a message that is complete with it."""
        part.buffer[chunk.offset : chunk.offset + len(chunk.data)] = np.frombuffer(chunk.data, np.uint8)
        part.left -= len(chunk.data)
        part.end = max(part.end, chunk.sequence + 1)
        if part.left <= 0:
            self._complete[part.end] = self._partial.pop(chunk.first)

    def discard(self, chunk: Chunk) -> list[ModelMessage]:
        """Count a chunk that was refused as arrived, so that the stream goes on without its message."""
        if chunk.incarnation != self.incarnation or not self.next <= chunk.sequence < self.granted:
            return []
        self._partial.pop(chunk.first, None)
        self._later[chunk.sequence] = None
        return self._advance()

    def _part(self, chunk: Chunk) -> _Partial:
        """Return the message that a chunk belongs to."""
        part = self._partial.get(chunk.first)
        if part is None:
            # Of the messages in a window the first and the last may reach beyond it, those between lie within.
            if self.reserved + chunk.total > 2 * self.largest + self.window * self.widest:
                raise DecodeError("too many messages of the stream are incomplete at once")
            part = _Partial(self.memory.take(chunk.total), chunk.total)
            self._partial[chunk.first] = part
        if len(part.buffer) != chunk.total:
            raise DecodeError("the chunks of a message disagree on its length")
        return part

    def _advance(self) -> list[ModelMessage]:
        """Move ``next`` past all chunks that have arrived; return the messages that are complete."""
        ended: list[ModelMessage] = []
        while self.next in self._later:
            self._chain(self.next)
            self.next += 1
            if (message := self._complete.pop(self.next, None)) is not None:
                ended.append(ModelMessage(message.buffer.data, message.chain.value, message.chain.trailer))
        return ended

    def _chain(self, sequence: int) -> None:
        """Add a chunk that has arrived to the chain of its message, which one that follows no other spoils."""
        piece = self._later.pop(sequence)
        if piece is not None:
            chain = piece.chain
            follows = piece.offset == chain.size
            chain.value = extend(chain.value, piece.digest) if follows and chain.value else b""
            chain.size += piece.size
            chain.trailer = piece.trailer

    def skip(self, tail: int) -> list[ModelMessage]:
        """Give up the chunks below ``tail``, which the sender has dropped; return the messages that are complete."""
        if tail <= self.next:
            return []
        self.next = tail
        for sequence in sorted(sequence for sequence in self._later if sequence < tail):
            self._chain(sequence)  # of a message that reaches beyond the tail
        self._partial = {first: part for first, part in self._partial.items() if first >= tail}
        self._complete = {end: message for end, message in self._complete.items() if end > tail}
        ended = self._advance()  # over what came before its turn
        self.grant()
        return ended

    def grant(self) -> None:
        """Allow the sender one window beyond what has arrived."""
        self.granted = max(self.granted, self.next + self.window)

    @property
    def due(self) -> bool:
        """True if the sender should receive half a window of new credit."""
        return self.granted - self._reported >= max(1, self.window // 2)

    def ack(self, *, head: int | None = None) -> Ack:
        """Return the acknowledgement for the sender; with its ``head``, also the chunks that are missing below it."""
        self._reported = self.granted
        missing: list[int] = []
        upto = head if head is not None else max(self._later, default=self.next)
        if self._later or head is not None:
            missing = [
                sequence for sequence in range(self.next, min(upto, self.granted)) if sequence not in self._later
            ]
        return Ack(self.incarnation, self.phase, self.next, self.granted, missing[:RESEND])


def largest_window(listeners: int, *, chunk: int) -> int:
    """Return how many chunks each of ``listeners`` streams may have under way towards one peer.

    All streams together stay below 16 MB and 400 messages, which is less than a broker's default
    queue of 1,000 messages, so that it has no reason to drop.
    """
    share = min(WINDOW_BYTES // chunk, MAX_CHUNKS) // max(1, listeners)
    return max(INITIAL, share)
