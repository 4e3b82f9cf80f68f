"""Pieces of a subtotal that children send before this peer contributes to the total."""

from __future__ import annotations

from p2pfl.network.protocol.wire.total_messages import Subtotal

EARLY = 16 * 2**20
"""Largest part of a child's next subtotal, in bytes, that is held until this peer contributes as well."""

PIECES = 256
"""Maximum number of pieces of a child's next subtotal that are held."""


class Early:
    """Pieces that are held for the next total, by child.

    Examples
    --------
    >>> early = Early()
    >>> early.hold("bob", Subtotal(1, 0, 0, 0, 8, memoryview(bytes(8))))
    >>> [(child, len(pieces)) for child, pieces in early.take_all().items()], early.take_all()
    ([('bob', 1)], {})
    """

    def __init__(self) -> None:
        self.held: dict[str, list[Subtotal]] = {}

    def hold(self, child: str, piece: Subtotal) -> None:
        """Hold a piece; pieces beyond the limits are dropped, and requested again when this peer contributes."""
        pieces = self.held.setdefault(child, [])
        if len(pieces) < PIECES and sum(len(each.data) for each in pieces) + len(piece.data) <= EARLY:
            pieces.append(piece)

    def take_all(self) -> dict[str, list[Subtotal]]:
        """Return all pieces, and hold none."""
        pieces, self.held = self.held, {}
        return pieces
