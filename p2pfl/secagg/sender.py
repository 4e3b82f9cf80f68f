"""A peer's part in sums over neighbourhoods as the sender of terms; without a clock.

:mod:`p2pfl.secagg.protocol` says what a sum is and what is never told of it. Here its messages meet those of the wire:
shares travel in pieces, statements are signed, and who runs ahead is held back. A sender begins a term for a
receiver only after that has closed the sum before, so that there is never more of one sender to be held
than one term; and a receiver that has closed a sum is given nothing more for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from p2pfl.errors import PrivacyError
from p2pfl.identity import Source
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.stream import Ints
from p2pfl.protocol.incoming.equivocation import Proof
from p2pfl.protocol.wire.sums import Agreement, Agreements, RollCall, Term, Unmasking
from p2pfl.secagg.protocol import Consent, Roll, Sender, Share, Slot
from p2pfl.secagg.signing import GossipStep, Seal, Sums


@dataclass
class _Given:
    """A term of ours that has left.

    Attributes
    ----------
    part
        Decides what may be said of it.
    here
        Whom the receiver has called; ``None`` before it has.
    open
        True if the keys may still be asked for.
    keys
        Of all, with their incarnations, as we know them: under which it is masked.
    call, incarnation
        The receiver's first roll, and in which incarnation it said so: the next has forgotten it, and does not lie.
    """

    part: Sender
    keys: Mapping[str, bytes]
    here: tuple[str, ...] | None = None
    open: bool = True
    call: RollCall | None = None
    incarnation: int = 0


class Giving:
    """The terms of one peer, in the sums of all its receivers.

    Parameters
    ----------
    peer
        Whose.
    sums, seal, source
        What is known of sums, what signs, and where the keys of own masks come from.
    """

    def __init__(self, peer: str, *, sums: Sums, seal: Seal, source: Source) -> None:
        self.peer = peer
        self.sums = sums
        self.seal = seal
        self.source = source
        self.secrets: Mapping[Edge, bytes] = {}
        """Shared with everybody whose rows are added to ours; known once all are there."""
        self.proofs: dict[str, Proof] = {}
        """Two different rolls of one sum, both signed by their receiver."""
        self._keys: Mapping[str, bytes] = {}  # that lead to them
        self._given: dict[str, dict[GossipStep, _Given]] = {}  # by receiver, at most two
        self._closed: dict[str, GossipStep] = {}

    def acquaint(self, secrets: Mapping[Edge, bytes]) -> None:
        """Learn the secrets shared with those that are there now."""
        self.secrets, self._keys = secrets, self.seal.keys

    def over(self, receiver: str, gossip_step: GossipStep) -> bool:
        """Return whether a receiver has closed its sum of a gossip step, or a later one."""
        return self._closed.get(receiver, (-1, 0)) >= gossip_step

    def ready(self, receiver: str) -> bool:
        """Return whether a receiver has closed the last sum that it was given a term for."""
        return all(self.over(receiver, gossip_step) for gossip_step in self._given.get(receiver, ()))

    @property
    def awaited(self) -> set[str]:
        """Receivers that may still ask for what opens the last term they were given."""
        return {receiver for receiver, given in self._given.items() if given[max(given)].open}

    def withhold(self, receiver: str) -> None:
        """Give a receiver nothing more for the last term that it was given."""
        given = self._given.get(receiver)
        if given:
            given[max(given)].open = False

    def acquainted(self, slot: Slot) -> bool:
        """Return whether this peer shares secrets with the receiver and all of its other senders."""
        known = self.sums(slot)
        others = {slot.receiver, *(() if known is None else known.senders)} - {self.peer}
        return all((min(self.peer, other), max(self.peer, other)) in self.secrets for other in others)

    def mask(self, slot: Slot, points: Ints) -> tuple[Sender, Share]:
        """Mask a term, ``[P]`` grid points, once for each slot; nothing else changes by it, so that a thread can.

        Raises
        ------
        PrivacyError
            It does not fit into the ring.
        """
        known = self.sums(slot)
        if known is None:
            raise PrivacyError(f"expected a sum that {self.peer} has a part in, got {slot}; fix the caller")
        part = Sender(known, peer=self.peer, secrets=self.secrets, source=self.source)
        return part, part.share(points)

    def give(self, part: Sender, share: Share, *, mass: float | None, piece: int) -> Iterator[Term]:
        """Return the pieces of a contribution; none if the receiver has closed the sum meanwhile."""
        slot = share.slot
        gossip_step = slot.round, slot.step
        if self.over(slot.receiver, gossip_step):
            return iter(())
        given = self._given.setdefault(slot.receiver, {})
        given[gossip_step] = _Given(part, self._keys)
        for old in sorted(given)[:-2]:
            del given[old]
        data = memoryview(share.values.astype(f"<u{share.values.itemsize}", copy=False).data).cast("B")
        return (
            Term(*gossip_step, offset, len(data), mass, data[offset : offset + piece])
            for offset in range(0, len(data), piece)
        )

    def whole(self, receiver: str, call: RollCall) -> bool:
        """Return whether everybody is on a roll whom one has given a term to be added to."""
        known = self.sums(Slot(receiver, call.round, call.step))
        return known is not None and {*call.here} == {*known.senders}

    def called(self, receiver: str, call: RollCall) -> Agreement | None:
        """Hear who is in a sum; the answer, if we are.

        Raises
        ------
        PrivacyError, DecodeError
            It is none that is to be answered.
        """
        gossip_step = call.round, call.step
        slot = Slot(receiver, *gossip_step)
        known = self.sums(slot)
        if known is None or self.peer not in known.senders:
            raise PrivacyError(f"expected the roll of a sum that {self.peer} has a part in, got {slot}; ignore it.")
        self.seal.check(receiver, slot, call.here, call.signature, domain="roll")
        given = self._given.get(receiver, {}).get(gossip_step)
        consent = None
        if given is not None:
            incarnation = self.seal.incarnation(receiver)
            if given.call is None:
                given.call, given.incarnation = call, incarnation
            if given.call.here != call.here:
                if given.incarnation == incarnation:
                    self.proofs.setdefault(receiver, self.seal.proof(receiver, slot, given.call, call))
                raise PrivacyError(f"expected one roll of {slot}, got a second that differs; exclude {receiver}.")
            consent = given.part.consent(Roll(slot, call.here))
        elif self.peer in call.here:
            raise PrivacyError(
                f"expected a roll without {self.peer}, which has sent nothing, got it on {slot}; skip it"
            )
        self._closed[receiver] = max(gossip_step, self._closed.get(receiver, gossip_step))
        if given is None or consent is None:
            if given is not None:
                given.open = False
            return None
        given.here = consent.here
        return Agreement(*gossip_step, self.seal.sign(slot, consent.here, domain="consent", keys=given.keys))

    def agreed(self, receiver: str, all_: Agreements) -> Unmasking:
        """Open a term, once everybody on the roll has signed it.

        Raises
        ------
        PrivacyError, DecodeError
            Somebody has not, or nothing was asked.
        """
        gossip_step = all_.round, all_.step
        slot = Slot(receiver, *gossip_step)
        given = self._given.get(receiver, {}).get(gossip_step)
        if given is None or given.here is None or len(given.here) != len(all_.signatures):
            raise PrivacyError(f"expected the consents to a roll that {self.peer} has heard, got others; ignore them.")
        for peer, signature in zip(given.here, all_.signatures, strict=True):
            self.seal.check(peer, slot, given.here, signature, domain="consent", keys=given.keys)
        keys = given.part.keys([Consent(slot, peer, given.here) for peer in given.here])
        given.open = False
        return Unmasking(*gossip_step, keys.own, dict(keys.pairs))
