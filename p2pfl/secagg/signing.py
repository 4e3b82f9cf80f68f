"""Signatures of a sum over a neighbourhood, and the facts about all sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from p2pfl.errors import DecodeError
from p2pfl.identity import Identity, verify
from p2pfl.protocol.incoming.equivocation import Proof
from p2pfl.protocol.membership.membership import Membership
from p2pfl.protocol.wire.messages import Announcement
from p2pfl.protocol.wire.sums import RollCall, sum_statement
from p2pfl.protocol.wire.trailer import SignedStatement
from p2pfl.secagg.protocol import Slot, Sum

GossipStep = tuple[int, int]

Sums = Callable[[Slot], Sum | None]
"""Function that returns the facts about a sum; ``None`` if nothing is added up for that receiver."""


@dataclass(frozen=True)
class Seal:
    """Signs what is said of a sum, and checks what others have signed.

    Parameters
    ----------
    identity
        One's own.
    membership
        Knows whose key is whose, in which incarnation: of all who are heard by somebody that hears us.
    """

    identity: Identity
    membership: Membership

    @property
    def keys(self) -> dict[str, bytes]:
        """By peer, what its masks follow from: its public key, and its incarnation with the nonce of that."""
        return {
            peer: hello.key + hello.incarnation.to_bytes(8) + hello.nonce
            for peer, hello in self._announcements().items()
        }

    def sign(self, slot: Slot, here: tuple[str, ...], *, domain: str, keys: Mapping[str, bytes] | None = None) -> bytes:
        """Return a signed statement; of a consent, with the keys under which this peer has masked."""
        return self.identity.sign(self._statement(self.membership.me.peer, slot, here, keys), domain=domain)

    def check(
        self,
        peer: str,
        slot: Slot,
        here: tuple[str, ...],
        signature: bytes,
        *,
        domain: str,
        keys: Mapping[str, bytes] | None = None,
    ) -> None:
        """Refuse what a peer has not signed.

        Raises
        ------
        DecodeError
            It has not, in its present incarnation.
        """
        known = self._announcements()
        own = peer == self.membership.me.peer
        public = self.identity.public if own else known[peer].identity if peer in known else b""
        if not public or not verify(public, self._statement(peer, slot, here, keys), signature, domain=domain):
            raise DecodeError(f'expected the {domain} of "{peer}" in its own words, got another')

    def proof(self, receiver: str, slot: Slot, one: RollCall, other: RollCall) -> Proof:
        """Two different rolls of one sum, which their receiver has signed."""
        first, second = (
            SignedStatement(self._statement(receiver, slot, each.here, None), each.signature) for each in (one, other)
        )
        return Proof(first, second, "roll")

    def incarnation(self, peer: str) -> int:
        """Return the number of a peer's present incarnation."""
        return self._announcements()[peer].incarnation

    def _announcements(self) -> dict[str, Announcement]:
        return {**self.membership.up, self.membership.me.peer: self.membership.me}

    def _statement(self, peer: str, slot: Slot, here: tuple[str, ...], keys: Mapping[str, bytes] | None) -> bytes:
        announcements = self._announcements()
        return sum_statement(
            announcements[peer].announced,
            announcements[slot.receiver].announced,
            swarm=self.membership.swarm,
            round=slot.round,
            step=slot.step,
            here=here,
            keys=() if keys is None else tuple(keys.get(each, b"") for each in here),
        )
