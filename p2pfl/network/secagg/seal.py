"""Signatures of the participant sets of sums, and the facts about all sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.wire.messages import Announcement, mark_of
from p2pfl.network.protocol.wire.sum_messages import RollCall, sum_statement
from p2pfl.network.protocol.wire.trailer import SignedStatement
from p2pfl.privacy.keys import Identity, verify
from p2pfl.privacy.secagg.protocol import Sum, SumSlot

GossipStep = tuple[int, int]

Sums = Callable[[SumSlot], Sum | None]
"""Function that returns the facts about a sum; ``None`` if nothing is added up for that receiver."""


@dataclass(frozen=True)
class Seal:
    """Signs the participant sets of this peer's sums, and verifies those of others.

    Parameters
    ----------
    identity
        Identity of this peer.
    membership
        Knows the keys and the incarnations of all peers that share a receiver with this one.
    """

    identity: Identity
    membership: Membership

    @property
    def marks(self) -> dict[str, bytes]:
        """Current incarnation of each peer, from which the keys of masks follow."""
        return {peer: mark_of(announcement) for peer, announcement in self._announcements().items()}

    def sign(self, round: int, step: int, here: tuple[str, ...]) -> RollCall:
        """Return the signed participant set of a sum of this peer."""
        marks = self.marks
        called = round, step, here, tuple(marks[peer] for peer in here)
        statement = self._statement(self.membership.me.peer, RollCall(*called))
        return RollCall(*called, self.identity.sign(statement, domain="roll"))

    def check(self, receiver: str, call: RollCall) -> None:
        """Verify the signature of a participant set.

        Raises
        ------
        DecodeError
            The receiver has not signed it in its current incarnation.
        """
        announcements = self._announcements()
        public = announcements[receiver].identity if receiver in announcements else b""
        if not public or not verify(public, self._statement(receiver, call), call.signature, domain="roll"):
            raise DecodeError(f'"{receiver}" has not signed this participant set')

    def proof(self, receiver: str, one: RollCall, other: RollCall) -> Proof:
        """Return the proof that a receiver has signed two different participant sets of one sum."""
        first, second = (SignedStatement(self._statement(receiver, each), each.signature) for each in (one, other))
        return Proof(first, second, "roll")

    def incarnation(self, peer: str) -> int:
        """Return the number of a peer's current incarnation."""
        return self._announcements()[peer].incarnation

    def _announcements(self) -> Mapping[str, Announcement]:
        return {**self.membership.up, self.membership.me.peer: self.membership.me}

    def _statement(self, receiver: str, call: RollCall) -> bytes:
        return sum_statement(self._announcements()[receiver].announced, swarm=self.membership.swarm, call=call)
