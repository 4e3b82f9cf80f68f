"""A peer's part in sums over neighbourhoods as their receiver, beside that of the sender (``sender.py``); no clock."""

from __future__ import annotations

from p2pfl.core.errors import PrivacyError
from p2pfl.network.protocol.totals.convergecast import Convergecast
from p2pfl.network.protocol.wire.sum_messages import Ready, RollCall
from p2pfl.network.protocol.wire.total_messages import Again, Subtotal, Total
from p2pfl.network.secagg.seal import GossipStep, Seal, Sums
from p2pfl.privacy.normal_stream import Ints
from p2pfl.privacy.secagg.protocol import Sum, SumSlot
from p2pfl.privacy.total_masks import to_signed, zeros
from p2pfl.topology import Tree


class SumReceiver:
    """The sums of one peer, one gossip step after the other.

    Parameters
    ----------
    peer
        Name of the receiver.
    sums, seal
        Facts about all sums, and the signatures of this peer.
    heaviest
        Largest weight of a model that is accepted.

    Attributes
    ----------
    masses
        Weights of the terms of the senders that are ready, if they have any.
    here
        Senders that are ready.
    call
        Participant set, once it is fixed.
    ended
        Participants whose incarnation ended before their term was complete; the sum stays masked.
    """

    def __init__(self, peer: str, *, sums: Sums, seal: Seal, heaviest: float) -> None:
        self.peer = peer
        self.sums = sums
        self.seal = seal
        self.heaviest = heaviest
        self.masses: dict[str, float] = {}
        self.here: set[str] = set()
        self.call: RollCall | None = None
        self.ended: set[str] = set()
        self._gossip_step: GossipStep = (0, 0)
        self._weighted = False
        self._sum: Sum | None = None  # that is open
        self._total: Convergecast | None = None
        self._ready: dict[str, Ready] = {}  # by sender: its last one

    @property
    def slot(self) -> SumSlot:
        """The sum that is open, or was last."""
        return SumSlot(self.peer, *self._gossip_step)

    @property
    def number(self) -> int:
        """Number of the open sum among the totals of the round; 0 if there is none."""
        return 0 if self._sum is None else self._sum.total.number

    @property
    def called(self) -> tuple[str, ...]:
        """Senders in the participant set."""
        return () if self.call is None else self.call.here

    @property
    def lacking(self) -> dict[str, int]:
        """Bytes that have arrived, by participant whose term is incomplete."""
        return {} if self._total is None else self._total.lacking

    def open(self, gossip_step: GossipStep, *, weighted: bool) -> None:
        """Open a sum, for which some may be ready already."""
        self._gossip_step, self._weighted = gossip_step, weighted
        self._sum, self._total = self.sums(self.slot), None
        self.masses, self.here, self.call, self.ended = {}, set(), None, set()
        self._ready = {sender: each for sender, each in self._ready.items() if (each.round, each.step) >= gossip_step}
        for sender, ready in self._ready.items():
            self._add(sender, ready)

    def has_passed(self, sender: str) -> bool:
        """Return whether a sender is ready for a later sum, so that it has no term for the current one."""
        ready = self._ready.get(sender)
        return ready is not None and (ready.round, ready.step) > self._gossip_step

    def forget(self, sender: str) -> None:
        """Forget a sender whose incarnation has ended: its term stays incomplete, and nobody can complete it.

        Until the participant set is fixed, the next incarnation can be ready in its place, under its own keys.
        """
        self._ready.pop(sender, None)
        if self.call is None:
            self.here.discard(sender)
        elif sender in self.lacking:
            self.ended.add(sender)

    def take(self, sender: str, ready: Ready) -> RollCall | None:
        """Note that a sender is ready; return the participant set if it is fixed.

        Raises
        ------
        PrivacyError
            The sender has no part in the sum, or its weight is not accepted.
        """
        gossip_step = ready.round, ready.step
        secure_sum = self.sums(SumSlot(self.peer, *gossip_step))
        if secure_sum is None or sender not in secure_sum.senders:
            raise PrivacyError(
                f"{sender} sends {self.peer} no term in round {ready.round}, step {ready.step}; ignore it"
            )
        if ready.mass is not None and not abs(ready.mass) <= self.heaviest:
            raise PrivacyError(f"the model of {sender} has the weight {ready.mass}, which is too large; ignore it")
        before = self._ready.get(sender)
        if gossip_step < self._gossip_step or (before is not None and gossip_step < (before.round, before.step)):
            raise PrivacyError(f"{sender} is ready for round {ready.round}, step {ready.step} too late; ignore it")
        self._ready[sender] = ready
        if gossip_step != self._gossip_step:
            return None
        if self.call is None:
            self._add(sender, ready)
        return self.call

    def _add(self, sender: str, ready: Ready) -> None:
        """Count a sender in, unless it has a weight and the others have none, or the reverse."""
        now = (ready.round, ready.step) == self._gossip_step and self._sum is not None
        if now and (ready.mass is not None) == self._weighted:
            self.here.add(sender)
            if ready.mass is not None:
                self.masses[sender] = ready.mass

    def close(self) -> RollCall:
        """Fix the participant set, which is empty if it would be too small, and return it."""
        if self.call is None:
            secure_sum = self._sum
            enough = secure_sum is not None and len(self.here) >= secure_sum.fewest
            here = tuple(sorted(self.here)) if enough else ()
            self.call = self.seal.sign(*self._gossip_step, here) if here else RollCall(*self._gossip_step)
            if secure_sum is not None and here:
                tree = Tree(self.peer, dict.fromkeys(here, self.peer))
                self._total = Convergecast(
                    tree, self.peer, slot=secure_sum.total, size=secure_sum.size, bits=secure_sum.width, down=False
                )
                self._total.contribute(zeros(secure_sum.size, secure_sum.width))
        return self.call

    def give_up(self) -> RollCall:
        """Give up the sum, which stays masked; return what tells the senders."""
        self.here, self._total = set(), None
        self.call = RollCall(*self._gossip_step)
        return self.call

    def receive(self, sender: str, message: Subtotal | Again) -> list[Subtotal | Total]:
        """Add a piece of a term; return what to send to all participants, or again to one.

        Raises
        ------
        PrivacyError, DecodeError
            The piece is of no term of the open sum.
        """
        total = self._total
        if total is None or (message.round, message.attempt, message.number) != total.slot or sender in self.ended:
            raise PrivacyError(f"a piece of {sender} is not for the {self.slot}; ignore it")
        if isinstance(message, Again):
            return [total.confirmation] if sender in self.called else []
        return total.add(sender, message)

    def missing_pieces(self, sender: str) -> Again | None:
        """Return the request for the rest of a participant's term."""
        total = self._total
        return None if total is None or sender not in total.lacking else Again(*total.slot, total.lacking[sender])

    def total(self) -> Ints | None:
        """Return the sum, ``[P]`` grid points; ``None`` if it stays masked."""
        total = self._total
        return None if total is None or not total.complete else to_signed(total.total)
