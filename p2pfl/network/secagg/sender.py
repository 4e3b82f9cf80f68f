"""A peer's part in sums over neighbourhoods as the sender of terms; without a clock.

:mod:`p2pfl.privacy.secagg.protocol` describes a sum and what it never reveals. This module translates its messages to
those of the wire: it splits shares into pieces, signs statements, and holds back a sender that is ahead. A sender
begins a term for a receiver only after the receiver has closed the previous sum, so that a receiver holds at most one
term of each sender; a receiver that has closed a sum gets nothing more for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from p2pfl.core.errors import PrivacyError
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.wire.sum_messages import Agreements, ParticipantsConfirmed, RollCall, Term, Unmasking
from p2pfl.network.secagg.seal import GossipStep, Seal, Sums
from p2pfl.privacy.keys import Source
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.normal_stream import Ints
from p2pfl.privacy.secagg.protocol import Sender, SumSlot
from p2pfl.privacy.total_masks import Ring


@dataclass
class _Given:
    """A term that this peer has sent.

    Attributes
    ----------
    part
        This peer's part in the sum, which decides what it may reveal.
    here
        Participant set that the receiver sent; ``None`` before it has.
    open
        True if the receiver may still request the keys.
    keys
        Public keys of all senders with their incarnations, under which the term is masked.
    call, incarnation
        The receiver's first participant set, and its incarnation then; the next incarnation may send another one,
        which is no equivocation.
    """

    part: Sender
    keys: Mapping[str, bytes]
    here: tuple[str, ...] | None = None
    open: bool = True
    call: RollCall | None = None
    incarnation: int = 0


class SumSender:
    """The terms of one peer, in the sums of all its receivers.

    Parameters
    ----------
    peer
        Name of the sender.
    sums, seal, source
        Facts about all sums, the signatures of this peer, and the source of its own masks' keys.
    """

    def __init__(self, peer: str, *, sums: Sums, seal: Seal, source: Source) -> None:
        self.peer = peer
        self.sums = sums
        self.seal = seal
        self.source = source
        self.secrets: Mapping[Edge, bytes] = {}
        """Edge secrets with all senders of the same sums; known once all of them are present."""
        self.proofs: dict[str, Proof] = {}
        """Proofs of equivocation: two participant sets of one sum that differ, both signed by their receiver."""
        self._keys: Mapping[str, bytes] = {}  # public keys that the secrets follow from
        self._given: dict[str, dict[GossipStep, _Given]] = {}  # by receiver, at most two
        self._closed: dict[str, GossipStep] = {}

    def acquaint(self, secrets: Mapping[Edge, bytes]) -> None:
        """Take the secrets shared with the peers that are present."""
        self.secrets, self._keys = secrets, self.seal.keys

    def over(self, receiver: str, gossip_step: GossipStep) -> bool:
        """Return whether a receiver has closed its sum of a gossip step, or a later one."""
        return self._closed.get(receiver, (-1, 0)) >= gossip_step

    def ready(self, receiver: str) -> bool:
        """Return whether a receiver has closed the last sum for which it got a term."""
        return all(self.over(receiver, gossip_step) for gossip_step in self._given.get(receiver, ()))

    @property
    def awaited(self) -> set[str]:
        """Receivers that may still request the keys of the last term that they got."""
        return {receiver for receiver, parts in self._given.items() if parts[max(parts)].open}

    def withhold(self, receiver: str) -> None:
        """Send a receiver nothing more for the last term that it got."""
        parts = self._given.get(receiver)
        if parts:
            parts[max(parts)].open = False

    def shares_secrets(self, slot: SumSlot) -> bool:
        """Return whether this peer shares secrets with the receiver and all of its other senders."""
        secure_sum = self.sums(slot)
        others = {slot.receiver, *(() if secure_sum is None else secure_sum.senders)} - {self.peer}
        return all((min(self.peer, other), max(self.peer, other)) in self.secrets for other in others)

    def mask(self, slot: SumSlot, points: Ints) -> tuple[Sender, Ring]:
        """Mask a term, ``[P]`` grid points, once for each slot; it changes no state, so it may run in a thread.

        Raises
        ------
        PrivacyError
            The term does not fit into the ring, or this peer has no part in the sum.
        """
        secure_sum = self.sums(slot)
        if secure_sum is None:
            raise PrivacyError(f"{self.peer} has no part in the {slot}; mask only terms of its own sums")
        part = Sender(secure_sum, peer=self.peer, secrets=self.secrets, source=self.source)
        return part, part.share(points)

    def give(self, part: Sender, share: Ring, *, mass: float | None, piece: int) -> Iterator[Term]:
        """Return the pieces of a contribution; none if the receiver has closed the sum meanwhile."""
        slot = part.sum.slot
        gossip_step = slot.round, slot.step
        if self.over(slot.receiver, gossip_step):
            return iter(())
        parts = self._given.setdefault(slot.receiver, {})
        parts[gossip_step] = _Given(part, self._keys)
        for old in sorted(parts)[:-2]:
            del parts[old]
        data = memoryview(share.astype(f"<u{share.itemsize}", copy=False).data).cast("B")
        return (
            Term(*gossip_step, offset, len(data), mass, data[offset : offset + piece])
            for offset in range(0, len(data), piece)
        )

    def is_whole(self, receiver: str, call: RollCall) -> bool:
        """Return whether a participant set contains all senders of its sum."""
        secure_sum = self.sums(SumSlot(receiver, call.round, call.step))
        return secure_sum is not None and {*call.here} == {*secure_sum.senders}

    def consent(self, receiver: str, call: RollCall) -> ParticipantsConfirmed | None:
        """Handle the participant set of a sum; return the consent if this peer is in it.

        Raises
        ------
        PrivacyError, DecodeError
            The participant set contradicts an earlier one, or is not of a sum of this peer.
        """
        gossip_step = call.round, call.step
        slot = SumSlot(receiver, *gossip_step)
        secure_sum = self.sums(slot)
        if secure_sum is None or self.peer not in secure_sum.senders:
            raise PrivacyError(f"{self.peer} has no part in the {slot}, whose participant set arrived; ignore it")
        self.seal.check(receiver, slot, call.here, call.signature, domain="roll")
        part = self._given.get(receiver, {}).get(gossip_step)
        consents = False
        if part is not None:
            incarnation = self.seal.incarnation(receiver)
            if part.call is None:
                part.call, part.incarnation = call, incarnation
            if part.call.here != call.here:
                if part.incarnation == incarnation:
                    self.proofs.setdefault(receiver, self.seal.proof(receiver, slot, part.call, call))
                raise PrivacyError(f"{receiver} has sent two different participant sets for the {slot}; exclude it")
            consents = part.part.consent(call.here)
        elif self.peer in call.here:
            raise PrivacyError(
                f"the participant set of the {slot} includes {self.peer}, which has sent nothing; ignore it"
            )
        self._closed[receiver] = max(gossip_step, self._closed.get(receiver, gossip_step))
        if part is None or not consents:
            if part is not None:
                part.open = False
            return None
        part.here = call.here
        return ParticipantsConfirmed(*gossip_step, self.seal.sign(slot, call.here, domain="consent", keys=part.keys))

    def unlock(self, receiver: str, all_: Agreements) -> Unmasking:
        """Return the keys of a term, once all participants have signed the participant set.

        Raises
        ------
        PrivacyError, DecodeError
            A participant has not signed, or this peer got no participant set.
        """
        gossip_step = all_.round, all_.step
        slot = SumSlot(receiver, *gossip_step)
        part = self._given.get(receiver, {}).get(gossip_step)
        if part is None or part.here is None or len(part.here) != len(all_.signatures):
            raise PrivacyError(f"the consents are not to a participant set that {self.peer} has received; ignore them")
        for peer, signature in zip(part.here, all_.signatures, strict=True):
            self.seal.check(peer, slot, part.here, signature, domain="consent", keys=part.keys)
        keys = part.part.keys(dict.fromkeys(part.here, part.here))
        part.open = False
        return Unmasking(*gossip_step, keys.own, dict(keys.pairs))
