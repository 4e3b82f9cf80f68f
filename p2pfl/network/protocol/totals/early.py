"""Pieces of a subtotal that arrive before this peer takes part in the total."""

from __future__ import annotations

from p2pfl.network.protocol.wire.total_messages import Subtotal, Total
from p2pfl.privacy.total_masks import TotalSlot

EARLY = 16 * 2**20
"""Largest part of a neighbour's subtotal, in bytes, that is held until this peer takes part in the total."""

PIECES = 256
"""Maximum number of pieces of a neighbour's subtotal that are held."""


class Early:
    """Pieces that are held for a later total, by neighbour.

    A peer that has sent a subtotal waits, so it has one subtotal under way, and pieces of another replace those of an
    earlier one.

    Examples
    --------
    >>> early = Early()
    >>> early.hold("bob", Subtotal(1, 0, 4, 0, 8, memoryview(bytes(8))))
    >>> slots = TotalSlot(1, 0, 3), TotalSlot(1, 0, 4)
    >>> [[(sender, len(pieces)) for sender, pieces in early.take(slot).items()] for slot in slots]
    [[], [('bob', 1)]]
    """

    def __init__(self) -> None:
        self.held: dict[str, list[Subtotal]] = {}

    def hold(self, sender: str, piece: Subtotal) -> None:
        """Hold a piece; pieces beyond the limits are dropped, and requested again when this peer takes part."""
        pieces = self.held.get(sender, [])
        if pieces and slot_of(pieces[0]) != slot_of(piece):
            pieces = []
        self.held[sender] = pieces
        if len(pieces) < PIECES and sum(len(each.data) for each in pieces) + len(piece.data) <= EARLY:
            pieces.append(piece)

    def take(self, slot: TotalSlot) -> dict[str, list[Subtotal]]:
        """Return the pieces of a total, by neighbour, and hold them no longer."""
        senders = [sender for sender, pieces in self.held.items() if pieces and slot_of(pieces[0]) == slot]
        return {sender: self.held.pop(sender) for sender in senders}

    def clear(self) -> None:
        """Hold nothing."""
        self.held = {}


def slot_of(piece: Subtotal | Total) -> TotalSlot:
    """Return the total to which a message belongs."""
    return TotalSlot(piece.round, piece.attempt, piece.number)
