"""Signatures of a sum over a neighbourhood, and the facts about all sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.sum_messages import RollCall, sum_statement
from p2pfl.network.protocol.wire.trailer import SignedStatement
from p2pfl.privacy.keys import Identity, verify
from p2pfl.privacy.secagg.protocol import Sum, SumSlot

GossipStep = tuple[int, int]

Sums = Callable[[SumSlot], Sum | None]
"""Function that returns the facts about a sum; ``None`` if nothing is added up for that receiver."""


_NAMES = {"roll": "participant set"}


@dataclass(frozen=True)
class Seal:
    """Signs statements on a sum, and verifies those of others.

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
    def keys(self) -> dict[str, bytes]:
        """Public key, incarnation and nonce that the masks of each peer follow from, by name."""
        return {
            peer: hello.key + hello.incarnation.to_bytes(8) + hello.nonce
            for peer, hello in self._announcements().items()
        }

    def sign(
        self, slot: SumSlot, here: tuple[str, ...], *, domain: str, keys: Mapping[str, bytes] | None = None
    ) -> bytes:
        """Return a signed statement; of a consent, with the keys under which this peer has masked."""
        return self.identity.sign(self._statement(self.membership.me.peer, slot, here, keys), domain=domain)

    def check(
        self,
        peer: str,
        slot: SumSlot,
        here: tuple[str, ...],
        signature: bytes,
        *,
        domain: str,
        keys: Mapping[str, bytes] | None = None,
    ) -> None:
        """Verify the signature of a statement.

        Raises
        ------
        DecodeError
            The peer has not signed it in its current incarnation.
        """
        announcements = self._announcements()
        own = peer == self.membership.me.peer
        public = self.identity.public if own else announcements[peer].identity if peer in announcements else b""
        if not public or not verify(public, self._statement(peer, slot, here, keys), signature, domain=domain):
            raise DecodeError(f'"{peer}" has not signed this {_NAMES.get(domain, domain)}')

    def proof(self, receiver: str, slot: SumSlot, one: RollCall, other: RollCall) -> Proof:
        """Return the proof that a receiver has signed two different participant sets of one sum."""
        first, second = (
            SignedStatement(self._statement(receiver, slot, each.here, None), each.signature) for each in (one, other)
        )
        return Proof(first, second, "roll")

    def incarnation(self, peer: str) -> int:
        """Return the number of a peer's current incarnation."""
        return self._announcements()[peer].incarnation

    def _announcements(self) -> dict[str, Announcement]:
        return {**self.membership.up, self.membership.me.peer: self.membership.me}

    def _statement(self, peer: str, slot: SumSlot, here: tuple[str, ...], keys: Mapping[str, bytes] | None) -> bytes:
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
