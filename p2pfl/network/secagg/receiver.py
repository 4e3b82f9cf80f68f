"""A peer's part in sums over neighbourhoods as their receiver, beside that of the sender (``sender.py``); no clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from p2pfl.core.errors import DecodeError, PrivacyError
from p2pfl.network.protocol.wire.sum_messages import Agreements, ParticipantsConfirmed, RollCall, Term, Unmasking
from p2pfl.network.secagg.seal import GossipStep, Seal, Sums
from p2pfl.privacy.normal_stream import Ints
from p2pfl.privacy.secagg.protocol import Keys, Receiver, SumSlot
from p2pfl.privacy.total_masks import WIDTHS


@dataclass
class _IncomingTerm:
    """The bytes of a neighbour's term that have arrived."""

    gossip_step: GossipStep
    mass: float | None
    data: bytearray = field(repr=False)
    filled: int = 0

    @property
    def whole(self) -> bool:
        return self.filled == len(self.data)


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
    """

    def __init__(self, peer: str, *, sums: Sums, seal: Seal, heaviest: float) -> None:
        self.peer = peer
        self.sums = sums
        self.seal = seal
        self.heaviest = heaviest
        self.masses: dict[str, float] = {}
        """Weights of the terms that have arrived, if they have any."""
        self.here: set[str] = set()
        """Senders whose terms have arrived."""
        self.unlocked: set[str] = set()
        """Senders that have unmasked their own terms."""
        self.consents: dict[str, bytes] = {}
        """Signatures of the participant set, by sender."""
        self.call: RollCall | None = None
        """Participant set, once it is fixed."""
        self._ended: set[str] = set()  # senders whose incarnation ended after the term arrived and before the keys did
        self._gossip_step: GossipStep = (0, 0)
        self._weighted = False
        self._receiver: Receiver | None = None  # of the sum that is open
        self._coming: dict[str, _IncomingTerm] = {}

    @property
    def slot(self) -> SumSlot:
        """The sum that is open, or was last."""
        return SumSlot(self.peer, *self._gossip_step)

    @property
    def size(self) -> int:
        """Bytes of the sum that is open."""
        return 0 if self._receiver is None else self._receiver.sum.size * self._receiver.sum.width // 8

    @property
    def called(self) -> tuple[str, ...]:
        """Senders in the participant set."""
        return () if self.call is None else self.call.here

    def open(self, gossip_step: GossipStep, *, weighted: bool) -> None:
        """Open a sum: add the terms that arrived early, and drop those of earlier sums."""
        self._gossip_step, self._weighted = gossip_step, weighted
        secure_sum = self.sums(self.slot)
        self._receiver = None if secure_sum is None else Receiver(secure_sum)
        self.masses, self.here, self.consents, self.unlocked, self.call = {}, set(), {}, set(), None
        self._ended = set()
        if self._receiver is None:
            return
        self._coming = {sender: each for sender, each in self._coming.items() if each.gossip_step >= gossip_step}
        for sender, each in list(self._coming.items()):
            if each.gossip_step == gossip_step and each.whole:
                self._add(self._receiver, sender, each)

    def has_passed(self, sender: str) -> bool:
        """Return whether a sender has begun a later term, so that its current one will not arrive."""
        coming = self._coming.get(sender)
        return coming is not None and coming.gossip_step > self._gossip_step

    def forget(self, sender: str) -> None:
        """Forget a sender whose incarnation has ended: its contribution stays incomplete, and nobody can open it.

        The next incarnation contributes its own term, under its own key. If the term of the earlier one has been added,
        the sum stays masked.
        """
        self._coming.pop(sender, None)
        if sender in self.here - self.unlocked:
            self._ended.add(sender)

    def take(self, sender: str, term: Term) -> None:
        """Take a piece of a term.

        Raises
        ------
        PrivacyError, DecodeError
            It is not the next piece of a term of an open sum.
        """
        gossip_step = term.round, term.step
        secure_sum = self.sums(SumSlot(self.peer, *gossip_step))
        if secure_sum is None or sender not in secure_sum.senders:
            raise PrivacyError(f"{sender} sends {self.peer} no term in round {term.round}, step {term.step}; ignore it")
        late = gossip_step < self._gossip_step or (
            gossip_step == self._gossip_step and (self.call or sender in self.here)
        )
        coming = self._coming.get(sender)
        if late or (coming is not None and coming.gossip_step > gossip_step):
            raise PrivacyError(f"the term of {sender} for round {term.round}, step {term.step} is late; ignore it")
        size = secure_sum.size * secure_sum.width // 8
        if coming is None or coming.gossip_step < gossip_step:
            coming = _IncomingTerm(gossip_step, term.mass, bytearray())
        if (
            term.total != size
            or term.offset != coming.filled
            or not 0 < len(term.data) <= size - coming.filled
            or (term.mass is not None and not abs(term.mass) <= self.heaviest)
        ):
            raise DecodeError(
                f"{len(term.data)} bytes at {term.offset} of {term.total} are not the piece at {coming.filled} of a "
                f"term of {size} bytes"
            )
        if not coming.data:
            coming.data = bytearray(size)
            self._coming[sender] = coming
        coming.data[coming.filled : coming.filled + len(term.data)] = term.data
        coming.filled += len(term.data)
        if coming.whole and gossip_step == self._gossip_step and self._receiver is not None:
            self._add(self._receiver, sender, coming)

    def _add(self, receiver: Receiver, sender: str, coming: _IncomingTerm) -> None:
        """Add a complete term, unless it has a weight and the others have none, or the reverse."""
        del self._coming[sender]
        if (coming.mass is not None) != self._weighted:
            return
        width = receiver.sum.width
        values = np.frombuffer(coming.data, np.dtype(WIDTHS[width]).newbyteorder("<")).astype(WIDTHS[width], copy=False)
        receiver.take(sender, values)
        self.here.add(sender)
        if coming.mass is not None:
            self.masses[sender] = coming.mass

    def close(self) -> RollCall:
        """Fix the participant set, which is empty if it would be too small, and return it."""
        if self.call is None:
            here = () if self._receiver is None else self._receiver.close()
            self.call = RollCall(*self._gossip_step, here, self.seal.sign(self.slot, here, domain="roll"))
        return self.call

    def receive_consent(self, sender: str, word: ParticipantsConfirmed) -> Agreements | None:
        """Keep a consent; once all have arrived, return what to send to all participants.

        Raises
        ------
        PrivacyError, DecodeError
            It is no consent to the participant set.
        """
        call, _ = self._find_call(sender, word.round, word.step)
        if sender not in call.here:
            raise PrivacyError(f"{sender} is not in the participant set that it consents to; ignore it")
        self.seal.check(sender, self.slot, call.here, word.signature, domain="consent", keys=self.seal.keys)
        self.consents[sender] = word.signature
        return self.agreements

    @property
    def agreements(self) -> Agreements | None:
        """All consents; ``None`` until all have arrived."""
        if self.call is None or not self.call.here or self.consents.keys() != {*self.call.here}:
            return None
        return Agreements(*self._gossip_step, tuple(self.consents[peer] for peer in self.call.here))

    def unlock(self, sender: str, word: Unmasking) -> None:
        """Remove the masks of a term.

        Raises
        ------
        PrivacyError
            The keys are not those that the participant set requires.
        """
        _, receiver = self._find_call(sender, word.round, word.step)
        if self.agreements is None:
            raise PrivacyError(f"the keys of {sender} arrived before all consents; ignore them")
        receiver.unlock(sender, Keys(word.own, word.pairs))
        self.unlocked.add(sender)

    def _find_call(self, sender: str, round: int, step: int) -> tuple[RollCall, Receiver]:
        if sender in self._ended:
            raise PrivacyError(
                f"the message is of the next incarnation of {sender}, which did not send the term; ignore it"
            )
        if self.call is None or self._receiver is None or (round, step) != self._gossip_step:
            raise PrivacyError(
                f"the message of {sender} about round {round}, step {step} is not for the {self.slot}; ignore it"
            )
        return self.call, self._receiver

    def total(self) -> Ints | None:
        """Return the sum, ``[P]`` grid points, and end it; ``None`` if it stays masked."""
        receiver, self._receiver = self._receiver, None
        return None if receiver is None else receiver.total()
