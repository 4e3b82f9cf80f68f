"""Convergecast of one total at one peer: subtotals move from its children to its parent, and the total moves down.

A peer holds one vector, whatever the number of children. It sends a piece up as soon as it and all its children have
added to it. When the total of that piece arrives, it overwrites the subtotal, which the parent has received by then.
A total to one peer ends at the root: instead of the total, the root sends how many bytes of it are complete. In either
case, what comes down shows what the parent has received, so a peer sends at most a window of pieces beyond it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire.total_messages import Subtotal, Total
from p2pfl.privacy.total_masks import WIDTHS, Ring, TotalSlot
from p2pfl.topology import Tree

PIECE = 64 * 2**10
"""Maximum number of bytes of a total in one message."""

WINDOW = 64
"""Maximum number of pieces that are under way from a peer to its parent, or sent again at a time."""


class Convergecast:
    """Part of a peer in one total.

    Parameters
    ----------
    tree
        Spanning tree of the participants.
    me
        Name of the peer.
    slot
        Identifier of the total.
    size
        Number of integers, at least 1.
    bits
        Width of the ring, 32 or 64.
    piece
        Number of bytes of the total in one message, a multiple of 8.
    down
        False for a total to one peer: the root alone obtains it, and the others learn when it is complete there.

    Attributes
    ----------
    digest
        SHA-256 of slot and total, once the total is complete; empty if one peer alone has it.

    Examples
    --------
    The root of a tree of two peers, its child, and the two messages between them:

    >>> given = {"slot": TotalSlot(1, 0, 0), "size": 3, "bits": 32}
    >>> ada, bob = (Convergecast(Tree("ada", {"bob": "ada"}), me, **given) for me in ("ada", "bob"))
    >>> ada.contribute(np.array([1, 2, 3], np.uint32))
    []
    >>> (up,) = bob.contribute(np.array([10, 20, 30], np.uint32))
    >>> (down,) = ada.add("bob", up)
    >>> bob.learn(down)
    []
    >>> bob.total.tolist(), bob.digest == ada.digest
    ([11, 22, 33], True)
    """

    def __init__(
        self, tree: Tree, me: str, *, slot: TotalSlot, size: int, bits: int, piece: int = PIECE, down: bool = True
    ) -> None:
        self.slot, self.down = slot, down
        self.parent, self.children = tree.parent(me), tree.children(me)
        self.digest = b""
        self._values = np.zeros(size, np.dtype(WIDTHS[bits]).newbyteorder("<"))  # [K], subtotal, then total
        self._bytes = memoryview(self._values.data).cast("B")
        self._piece = max(8, piece // 8 * 8)
        self._own = False
        self._came = dict.fromkeys(self.children, 0)  # bytes of each child's subtotal that this peer has added
        self._sent = 0  # bytes of this peer's subtotal that it has sent up
        self._known = 0  # bytes of the total that have arrived, or that are complete at the root
        self._confirmed = 0  # of these, bytes that the root has confirmed to its children

    # ------------------------------------------------------------------ state

    @property
    def size(self) -> int:
        """Size of the total in bytes."""
        return len(self._bytes)

    @property
    def complete(self) -> bool:
        """True if the total is complete."""
        return self._known == self.size

    @property
    def known(self) -> int:
        """Bytes of the total that have arrived."""
        return self._known

    @property
    def total(self) -> Ring:
        """Total, ``[K]`` in the ring; empty at a peer that does not obtain it."""
        values = self._values if self.down or self.parent is None else self._values[:0]
        return values.astype(values.dtype.newbyteorder("="), copy=self.down)

    @property
    def confirmation(self) -> Total:
        """Message of the root of a total to one peer, which says how many bytes of it are complete."""
        return Total(*self.slot, self._known, self.size)

    @property
    def lacking(self) -> dict[str, int]:
        """Bytes received of the subtotal, or of the total, by neighbour that must send more of it."""
        lacking = {child: came for child, came in self._came.items() if came < self.size}
        if self.parent is not None and not self.complete:
            lacking[self.parent] = self._known
        return lacking

    # ------------------------------------------------------------------ incoming pieces

    def contribute(self, values: Ring) -> list[Subtotal | Total]:
        """Add this peer's contribution, ``[K]`` in the ring; return the messages to the parent or the children."""
        if self.down or self.children:
            self._values += values
        else:  # nobody adds to it
            self._values = np.ascontiguousarray(values, self._values.dtype)
            self._bytes = memoryview(self._values.data).cast("B")
        self._own = True
        return self._pump()

    def add(self, child: str, message: Subtotal) -> list[Subtotal | Total]:
        """Add a piece of a child's subtotal; repeated pieces, and pieces after a gap, change nothing.

        Raises
        ------
        DecodeError
            The sender is not a child, or the message is not a piece of this total.
        """
        if child not in self._came:
            raise DecodeError(f'"{child}" has no subtotal of this total to send')
        end = self._end(message)
        came = self._came[child]
        if message.offset <= came < end:
            width = self._values.itemsize
            words = np.frombuffer(message.data[came - message.offset :], self._values.dtype)
            self._values[came // width : end // width] += words
            self._came[child] = end
        return self._pump()

    def learn(self, message: Total) -> list[Subtotal | Total]:
        """Store a piece of the total from the parent; repeated pieces, and pieces after a gap, change nothing.

        Raises
        ------
        DecodeError
            The message is not a piece of this total, arrives before this peer has sent its subtotal, or does not match
            its digest.
        """
        if not self.down:
            return self._note_confirmation(message)
        end = self._end(message)
        if end > self._sent:
            raise DecodeError("a piece of a total came before the subtotal of this peer can be in it")
        start = self._known
        if not message.offset <= start < end:
            return []
        self._bytes[start:end] = message.data[start - message.offset :]
        self._known = end
        if self.complete:
            digest = digest_of(self.slot, self._bytes)
            if message.digest != digest:
                self._known = start  # the piece does not count, and is requested again
                raise DecodeError("a total is not what the digest beside it says")
            self.digest = digest
        return [*self._totals_below(start), *self._pump()]

    def _note_confirmation(self, message: Total) -> list[Subtotal | Total]:
        """Note how much of a total to one peer is complete there; go on sending."""
        if message.total != self.size or message.data or message.offset > self._sent:
            raise DecodeError(f"{message.offset} bytes of a total of {message.total} bytes cannot be complete")
        self._known = max(self._known, message.offset)
        return self._pump()

    def again(self, peer: str, *, offset: int) -> list[Subtotal | Total]:
        """Return the messages to send again from the byte ``offset`` on.

        A complete total is for any neighbour, because the one that should have sent it may be lost; everything else is
        for the parent or a child. Nobody is sent a total to one peer.
        """
        most = offset + WINDOW * self._piece
        if not self.down and peer in self._came:
            return [self.confirmation]
        if self.down and self.complete:
            return [*self._totals(offset, min(self.size, most))]
        if peer == self.parent:
            return [*self._up(offset, min(self._sent, most))] if offset >= self._known else []
        return [*self._totals_below(offset, min(self._known, most))] if peer in self._came else []

    # ------------------------------------------------------------------ outgoing pieces

    def _end(self, message: Subtotal | Total) -> int:
        """Return the end of a piece, after a check that it belongs to this total."""
        end, width = message.offset + len(message.data), self._values.itemsize
        if message.total != self.size or not message.offset < end <= self.size:
            raise DecodeError(f"a piece from {message.offset} to {end} is none of a total of {self.size} bytes")
        if message.offset % width or end % width:
            raise DecodeError(f"a piece from {message.offset} to {end} cuts integers of {width} bytes")
        return end

    def _pump(self) -> list[Subtotal | Total]:
        """Send the pieces to which this peer and all peers below it have added."""
        ready = min(self._came.values(), default=self.size) if self._own else 0
        if ready < self.size:
            ready = ready // self._piece * self._piece
        if self.parent is not None:
            start, ahead = self._sent, self._known + WINDOW * self._piece
            self._sent = max(start, min(ready, ahead))
            return [*self._up(start, self._sent)]
        start, self._known = self._known, max(self._known, ready)
        if not self.down:
            return self._confirm()
        if self.complete and not self.digest:
            self.digest = digest_of(self.slot, self._bytes)
        return [*self._totals_below(start)]

    def _confirm(self) -> list[Subtotal | Total]:
        """Confirm to the children what is complete, each time that it is half a window more."""
        more = self._known - self._confirmed
        if not self.children or not more or (more < WINDOW // 2 * self._piece and not self.complete):
            return []
        self._confirmed = self._known
        return [self.confirmation]

    def _up(self, start: int, end: int) -> Iterator[Subtotal]:
        for offset, data in self._pieces(start, end):
            yield Subtotal(*self.slot, offset, self.size, data)

    def _totals_below(self, start: int, end: int | None = None) -> list[Total]:
        return [*self._totals(start, self._known if end is None else end)] if self.children else []

    def _totals(self, start: int, end: int) -> Iterator[Total]:
        for offset, data in self._pieces(start, end):
            last = offset + len(data) == self.size
            yield Total(*self.slot, offset, self.size, self.digest if last else b"", data)

    def _pieces(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """Cut the final bytes into pieces, copied because the total later overwrites the subtotal."""
        for offset in range(start, end, self._piece):
            yield offset, memoryview(bytes(self._bytes[offset : min(end, offset + self._piece)]))


def digest_of(slot: TotalSlot, total: memoryview) -> bytes:
    """Return the SHA-256 digest of a slot and the bytes of its total."""
    hashed = hashlib.sha256(f"p2pfl/v1/total/{slot.round}/{slot.attempt}/{slot.number}/".encode())
    hashed.update(total)
    return hashed.digest()
