"""A peer's part in sums over neighbourhoods as the sender of terms; without a clock.

:mod:`p2pfl.privacy.secagg.protocol` describes a sum and what it never reveals. A sender says that it is ready, masks
its term for the participant set that the receiver has signed, and sends it as a total to that one peer. Terms of one
gossip step end before those of the next one begin; a receiver that has closed a sum gets nothing more for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from p2pfl.core.errors import PrivacyError
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.totals.convergecast import Convergecast
from p2pfl.network.protocol.wire.sum_messages import Ready, RollCall
from p2pfl.network.protocol.wire.total_messages import Again, Subtotal, Total
from p2pfl.network.secagg.seal import GossipStep, Seal, Sums
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.normal_stream import Ints
from p2pfl.privacy.secagg.protocol import Sender, SumSlot
from p2pfl.privacy.total_masks import Ring
from p2pfl.topology import Tree


@dataclass
class _Term:
    """The term of this peer for one receiver.

    Attributes
    ----------
    ready
        What this peer sends until the participant set arrives.
    part
        This peer's part in the sum, which masks one term.
    call, incarnation
        The first participant set that arrived, and the receiver's incarnation then; the next incarnation may send
        another one, which is no equivocation.
    sent
        Progress of the masked term.
    """

    ready: Ready
    part: Sender
    call: RollCall | None = None
    incarnation: int = 0
    sent: Convergecast | None = None


class SumSender:
    """The terms of one peer, in the sums of all its receivers.

    Parameters
    ----------
    peer
        Name of the sender.
    sums, seal
        Facts about all sums, and what verifies the statements of their receivers.
    """

    def __init__(self, peer: str, *, sums: Sums, seal: Seal) -> None:
        self.peer = peer
        self.sums = sums
        self.seal = seal
        self.secrets: Mapping[Edge, bytes] = {}
        """Edge secrets with all senders of the same sums; known once all of them are present."""
        self.proofs: dict[str, Proof] = {}
        """Proofs of equivocation: two participant sets of one sum that differ, both signed by their receiver."""
        self._marks: Mapping[str, bytes] = {}  # incarnations that the secrets follow from
        self._terms: dict[str, _Term] = {}  # by receiver: of the last sum
        self._closed: dict[str, GossipStep] = {}  # by receiver: the last sum without this peer, or given up

    def acquaint(self, secrets: Mapping[Edge, bytes]) -> None:
        """Take the secrets shared with the peers that are present."""
        self.secrets, self._marks = secrets, self.seal.marks

    def over(self, receiver: str, gossip_step: GossipStep) -> bool:
        """Return whether a receiver needs nothing more of this peer for the sum of a gossip step."""
        term = self._terms.get(receiver)
        done = term is not None and term.sent is not None and term.sent.complete and _step(term.ready) == gossip_step
        return done or self._closed.get(receiver, (-1, 0)) >= gossip_step

    def called(self, receiver: str, gossip_step: GossipStep) -> bool:
        """Return whether a receiver has this peer in the participant set of a gossip step, and no term of it yet."""
        term = self._terms.get(receiver)
        here = term is not None and _step(term.ready) == gossip_step and term.call is not None and term.sent is None
        return here and not self.over(receiver, gossip_step)

    def withhold(self, receiver: str) -> None:
        """Send a receiver nothing more for the sum for which this peer was ready last."""
        if receiver in self._terms:
            gossip_step = _step(self._terms[receiver].ready)
            self._closed[receiver] = max(gossip_step, self._closed.get(receiver, gossip_step))

    def shares_secrets(self, slot: SumSlot) -> bool:
        """Return whether this peer shares secrets with the receiver and all of its other senders."""
        secure_sum = self.sums(slot)
        others = {slot.receiver, *(() if secure_sum is None else secure_sum.senders)} - {self.peer}
        return all((min(self.peer, other), max(self.peer, other)) in self.secrets for other in others)

    def prepare(self, slot: SumSlot, *, mass: float | None) -> Ready:
        """Return what tells a receiver that this peer's term can be sent.

        Raises
        ------
        PrivacyError
            This peer has no part in the sum, or has been ready for it before: no key masks two terms.
        """
        secure_sum, before = self.sums(slot), self._terms.get(slot.receiver)
        if secure_sum is None or self.peer not in secure_sum.senders:
            raise PrivacyError(f"{self.peer} has no part in the {slot}; send only terms of its own sums")
        if before is not None and (slot.round, slot.step) <= _step(before.ready):
            raise PrivacyError(f"{self.peer} has been ready for the {before.part.sum.slot}; send each term once")
        ready = Ready(slot.round, slot.step, mass)
        self._terms[slot.receiver] = _Term(ready, Sender(secure_sum, peer=self.peer, secrets=self.secrets))
        return ready

    def is_whole(self, receiver: str, call: RollCall) -> bool:
        """Return whether a participant set contains all senders of its sum."""
        secure_sum = self.sums(SumSlot(receiver, call.round, call.step))
        return secure_sum is not None and {*call.here} == {*secure_sum.senders}

    def take(self, receiver: str, call: RollCall) -> list[Subtotal | Total]:
        """Take the participant set of a sum; return the pieces to send again where it arrives once more.

        Raises
        ------
        PrivacyError, DecodeError
            The participant set contradicts an earlier one, or is not of a sum of this peer, or names other incarnations
            than those that this peer shares secrets with: masks would not cancel.
        """
        gossip_step = call.round, call.step
        slot = SumSlot(receiver, *gossip_step)
        secure_sum = self.sums(slot)
        if secure_sum is None or self.peer not in secure_sum.senders:
            raise PrivacyError(f"{self.peer} has no part in the {slot}, whose participant set arrived; ignore it")
        if call.here:
            self.seal.check(receiver, call)
        term = self._terms.get(receiver)
        if term is None or not call.here or _step(term.ready) != gossip_step:
            if self.peer in call.here:
                raise PrivacyError(f"the {slot} includes {self.peer}, which is not ready for it; ignore it")
            self._closed[receiver] = max(gossip_step, self._closed.get(receiver, gossip_step))
            return []
        incarnation, first = self.seal.incarnation(receiver), term.call is None
        if term.call is None:
            term.call, term.incarnation = call, incarnation
        if (term.call.here, term.call.marks) != (call.here, call.marks):
            if term.incarnation == incarnation:
                self.proofs.setdefault(receiver, self.seal.proof(receiver, term.call, call))
            raise PrivacyError(f"{receiver} has sent two different participant sets for the {slot}; exclude it")
        if self.peer not in call.here:
            self.withhold(receiver)
        elif first:
            self._check(term, call)
        return [] if term.sent is None else term.sent.again(receiver, offset=0)

    def _check(self, term: _Term, call: RollCall) -> None:
        slot = term.part.sum.slot
        try:
            term.part.check(call.here)
        except PrivacyError:
            self.withhold(slot.receiver)
            raise
        if call.marks != tuple(self._marks.get(peer, b"") for peer in call.here):
            self.withhold(slot.receiver)
            raise PrivacyError(f"the {slot} is of other incarnations than {self.peer} shares secrets with; ignore it")

    def mask(self, slot: SumSlot, points: Ints) -> Ring:
        """Mask the term for the participant set that arrived, ``[P]`` grid points, once; this may run in a thread.

        Raises
        ------
        PrivacyError
            The term does not fit into the ring, or there is no participant set for it.
        """
        term = self._terms.get(slot.receiver)
        if term is None or term.call is None or term.part.sum.slot != slot:
            raise PrivacyError(f"{self.peer} got no participant set for the {slot}; skip this sum")
        return term.part.share(points, term.call.here)

    def give(self, slot: SumSlot, share: Ring, *, piece: int) -> list[Subtotal]:
        """Return the first pieces of a masked term; none if the receiver needs it no more."""
        term = self._terms.get(slot.receiver)
        if term is None or self.over(slot.receiver, (slot.round, slot.step)):
            return []
        which, tree = term.part.sum, Tree(slot.receiver, {self.peer: slot.receiver})
        term.sent = Convergecast(
            tree, self.peer, slot=which.total, size=which.size, bits=which.width, piece=piece, down=False
        )
        return [each for each in term.sent.contribute(share) if isinstance(each, Subtotal)]

    def receive(self, receiver: str, message: Total | Again) -> list[Subtotal | Total]:
        """Go on sending a term, or send pieces again.

        Raises
        ------
        PrivacyError, DecodeError
            The message is of no term that this peer sends.
        """
        term = self._terms.get(receiver)
        sent = None if term is None else term.sent
        if sent is None or (message.round, message.attempt, message.number) != sent.slot:
            raise PrivacyError(f"{self.peer} sends {receiver} no term of the sum of its message; ignore it")
        return sent.again(receiver, offset=message.offset) if isinstance(message, Again) else sent.learn(message)

    def unanswered(self, slot: SumSlot) -> Ready | Again | None:
        """Return the message to repeat while the receiver answers nothing."""
        term = self._terms.get(slot.receiver)
        if term is None or term.part.sum.slot != slot or self.over(slot.receiver, (slot.round, slot.step)):
            return None
        if term.call is None:
            return term.ready
        return None if term.sent is None else Again(*term.sent.slot, term.sent.known)


def _step(ready: Ready) -> GossipStep:
    return ready.round, ready.step
