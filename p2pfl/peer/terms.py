"""A peer's part in sums over neighbourhoods: as the sender of terms, and as the receiver of sums; without a clock.

:mod:`p2pfl.privacy.secagg` says what a sum is and what is never told of it. Here its messages meet those of the wire:
shares travel in pieces, statements are signed, and who runs ahead is held back. A sender begins a term for a
receiver only after that has closed the sum before, so that there is never more of one sender to be held
than one term; and a receiver that has closed a sum is given nothing more for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from p2pfl.errors import DecodeError, PrivacyError
from p2pfl.identity import Identity, Source, verify
from p2pfl.peer.membership import Membership
from p2pfl.peer.proof import Proof
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.ring import WIDTHS
from p2pfl.privacy.secagg import Consent, Keys, Receiver, Roll, Sender, Share, Slot, Sum
from p2pfl.privacy.stream import Ints
from p2pfl.wire.messages import Agreement, Agreements, Hello, RollCall, Term, Unmasking, sum_statement
from p2pfl.wire.trailer import Said

Exchange = tuple[int, int]

Sums = Callable[[Slot], Sum | None]
"""What is known of a sum; ``None`` where nothing is added up for that receiver then."""


@dataclass(frozen=True)
class Seal:
    """Signs what is said of a sum, and checks what others have signed.

    Parameters
    ----------
    identity
        One's own.
    membership
        Knows whose key is whose, in which life: of all who are heard by somebody that hears us.
    """

    identity: Identity
    membership: Membership

    @property
    def keys(self) -> dict[str, bytes]:
        """Of all whom one knows, and one's own."""
        return {peer: hello.key for peer, hello in self._lives().items()}

    def sign(self, slot: Slot, here: tuple[str, ...], *, domain: str, keys: Mapping[str, bytes] | None = None) -> bytes:
        """A statement of ours; of a consent, with the keys under which we have masked."""
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
            It has not, in its present life.
        """
        known = self._lives()
        own = peer == self.membership.me.peer
        public = self.identity.public if own else known[peer].identity if peer in known else b""
        if not public or not verify(public, self._statement(peer, slot, here, keys), signature, domain=domain):
            raise DecodeError(f'expected the {domain} of "{peer}" in its own words, got another')

    def proof(self, receiver: str, slot: Slot, one: RollCall, other: RollCall) -> Proof:
        """Two different rolls of one sum, which their receiver has signed."""
        first, second = (
            Said(self._statement(receiver, slot, each.here, None), each.signature) for each in (one, other)
        )
        return Proof(first, second, "roll")

    def life(self, peer: str) -> int:
        """The number of a peer's present life."""
        return self._lives()[peer].incarnation

    def _lives(self) -> dict[str, Hello]:
        return {**self.membership.up, self.membership.me.peer: self.membership.me}

    def _statement(self, peer: str, slot: Slot, here: tuple[str, ...], keys: Mapping[str, bytes] | None) -> bytes:
        lives = self._lives()
        return sum_statement(
            lives[peer],
            lives[slot.receiver],
            swarm=self.membership.swarm,
            round=slot.round,
            step=slot.step,
            here=here,
            keys=() if keys is None else tuple(keys.get(each, b"") for each in here),
        )


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
        Whether the keys may still be asked for.
    keys
        Of all, as we know them: under which it is masked.
    call, life
        The receiver's first roll, and in which life it said so: the next has forgotten it, and does not lie.
    """

    part: Sender
    keys: Mapping[str, bytes]
    here: tuple[str, ...] | None = None
    open: bool = True
    call: RollCall | None = None
    life: int = 0


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
        self._given: dict[str, dict[Exchange, _Given]] = {}  # by receiver, at most two
        self._closed: dict[str, Exchange] = {}

    def acquaint(self, secrets: Mapping[Edge, bytes]) -> None:
        """Learn the secrets shared with those that are there now."""
        self.secrets, self._keys = secrets, self.seal.keys

    def over(self, receiver: str, exchange: Exchange) -> bool:
        """Whether a receiver has closed its sum of an exchange, or a later one."""
        return self._closed.get(receiver, (-1, 0)) >= exchange

    def ready(self, receiver: str) -> bool:
        """Whether a receiver has closed the last sum that it was given a term for."""
        return all(self.over(receiver, exchange) for exchange in self._given.get(receiver, ()))

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
        """Whether there is a secret with the receiver and all whose terms are added to ours: not all need have come."""
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
            raise PrivacyError(f"expected a sum that {self.peer} has a part in, got {slot}; mend the caller.")
        part = Sender(known, peer=self.peer, secrets=self.secrets, source=self.source)
        return part, part.share(points)

    def give(self, part: Sender, share: Share, *, mass: float | None, piece: int) -> Iterator[Term]:
        """The pieces of a term; none if the receiver has closed the sum meanwhile."""
        slot = share.slot
        exchange = slot.round, slot.step
        if self.over(slot.receiver, exchange):
            return iter(())
        given = self._given.setdefault(slot.receiver, {})
        given[exchange] = _Given(part, self._keys)
        for old in sorted(given)[:-2]:
            del given[old]
        data = memoryview(share.values.astype(f"<u{share.values.itemsize}", copy=False).data).cast("B")
        return (
            Term(*exchange, offset, len(data), mass, data[offset : offset + piece])
            for offset in range(0, len(data), piece)
        )

    def whole(self, receiver: str, call: RollCall) -> bool:
        """Whether everybody is on a roll whom one has given a term to be added to."""
        known = self.sums(Slot(receiver, call.round, call.step))
        return known is not None and {*call.here} == {*known.senders}

    def called(self, receiver: str, call: RollCall) -> Agreement | None:
        """Hear who is in a sum; the answer, if we are.

        Raises
        ------
        PrivacyError, DecodeError
            It is none that is to be answered.
        """
        exchange = call.round, call.step
        slot = Slot(receiver, *exchange)
        known = self.sums(slot)
        if known is None or self.peer not in known.senders:
            raise PrivacyError(f"expected the roll of a sum that {self.peer} has a part in, got {slot}; ignore it.")
        self.seal.check(receiver, slot, call.here, call.signature, domain="roll")
        given = self._given.get(receiver, {}).get(exchange)
        consent = None
        if given is not None:
            life = self.seal.life(receiver)
            if given.call is None:
                given.call, given.life = call, life
            if given.call.here != call.here:
                if given.life == life:
                    self.proofs.setdefault(receiver, self.seal.proof(receiver, slot, given.call, call))
                raise PrivacyError(f"expected one roll of {slot}, got a second that differs; exclude {receiver}.")
            consent = given.part.consent(Roll(slot, call.here))
        elif self.peer in call.here:
            raise PrivacyError(
                f"expected a roll without {self.peer}, which has sent nothing, got it on {slot}; skip it"
            )
        self._closed[receiver] = max(exchange, self._closed.get(receiver, exchange))
        if given is None or consent is None:
            if given is not None:
                given.open = False
            return None
        given.here = consent.here
        return Agreement(*exchange, self.seal.sign(slot, consent.here, domain="consent", keys=given.keys))

    def agreed(self, receiver: str, all_: Agreements) -> Unmasking:
        """Open a term, once everybody on the roll has signed it.

        Raises
        ------
        PrivacyError, DecodeError
            Somebody has not, or nothing was asked.
        """
        exchange = all_.round, all_.step
        slot = Slot(receiver, *exchange)
        given = self._given.get(receiver, {}).get(exchange)
        if given is None or given.here is None or len(given.here) != len(all_.signatures):
            raise PrivacyError(f"expected the consents to a roll that {self.peer} has heard, got others; ignore them.")
        for peer, signature in zip(given.here, all_.signatures, strict=True):
            self.seal.check(peer, slot, given.here, signature, domain="consent", keys=given.keys)
        keys = given.part.keys([Consent(slot, peer, given.here) for peer in given.here])
        given.open = False
        return Unmasking(*exchange, keys.own, dict(keys.pairs))


@dataclass
class _Coming:
    """A term of a neighbour, as far as it has come."""

    exchange: Exchange
    mass: float | None
    data: bytearray = field(repr=False)
    filled: int = 0

    @property
    def whole(self) -> bool:
        return self.filled == len(self.data)


class Getting:
    """The sums of one peer, one exchange after the other.

    Parameters
    ----------
    peer
        Whose.
    sums, seal
        What is known of sums, and what signs.
    heaviest
        No row of a larger mass is taken.
    """

    def __init__(self, peer: str, *, sums: Sums, seal: Seal, heaviest: float) -> None:
        self.peer = peer
        self.sums = sums
        self.seal = seal
        self.heaviest = heaviest
        self.masses: dict[str, float] = {}
        """Of the rows that have come, if they have any."""
        self.here: set[str] = set()
        """Whose terms have come."""
        self.unlocked: set[str] = set()
        """Who has opened its own."""
        self.consents: dict[str, bytes] = {}
        """Signatures to the roll."""
        self.call: RollCall | None = None
        """Who is in the sum, once that is decided."""
        self._ended: set[str] = set()  # whose terms have come, of lives that took the keys to them along
        self._exchange: Exchange = (0, 0)
        self._weighted = False
        self._receiver: Receiver | None = None  # of the sum that is open
        self._coming: dict[str, _Coming] = {}

    @property
    def slot(self) -> Slot:
        """The sum that is open, or was last."""
        return Slot(self.peer, *self._exchange)

    @property
    def size(self) -> int:
        """Bytes of the sum that is open."""
        return 0 if self._receiver is None else self._receiver.sum.size * self._receiver.sum.width // 8

    @property
    def called(self) -> tuple[str, ...]:
        """Who is on the roll."""
        return () if self.call is None else self.call.here

    def open(self, exchange: Exchange, *, weighted: bool) -> None:
        """Begin to add; what came before its turn is added at once, what is past is dropped."""
        self._exchange, self._weighted = exchange, weighted
        known = self.sums(self.slot)
        self._receiver = None if known is None else Receiver(known)
        self.masses, self.here, self.consents, self.unlocked, self.call = {}, set(), {}, set(), None
        self._ended = set()
        if self._receiver is None:
            return
        self._coming = {sender: each for sender, each in self._coming.items() if each.exchange >= exchange}
        for sender, each in list(self._coming.items()):
            if each.exchange == exchange and each.whole:
                self._add(self._receiver, sender, each)

    def passed(self, sender: str) -> bool:
        """Whether a sender has begun a later term already, so that the present one will not come."""
        coming = self._coming.get(sender)
        return coming is not None and coming.exchange > self._exchange

    def forget(self, sender: str) -> None:
        """A sender's life has ended: the rest of its term does not come, and nobody can open what has.

        The next one gives a term of its own, under a key of its own. Where that of the life before has been added, the
        sum stays masked.
        """
        self._coming.pop(sender, None)
        if sender in self.here - self.unlocked:
            self._ended.add(sender)

    def take(self, sender: str, term: Term) -> None:
        """Take a piece of a term.

        Raises
        ------
        PrivacyError, DecodeError
            It is not the next piece of one that may come.
        """
        exchange = term.round, term.step
        known = self.sums(Slot(self.peer, *exchange))
        if known is None or sender not in known.senders:
            raise PrivacyError(f"expected a term of somebody that {self.peer} hears then, got {sender}'s; ignore it.")
        late = exchange < self._exchange or (exchange == self._exchange and (self.call or sender in self.here))
        coming = self._coming.get(sender)
        if late or (coming is not None and coming.exchange > exchange):
            raise PrivacyError(f"expected a term of {sender} for an exchange to come, got {exchange}; ignore it.")
        size = known.size * known.width // 8
        if coming is None or coming.exchange < exchange:
            coming = _Coming(exchange, term.mass, bytearray())
        if (
            term.total != size
            or term.offset != coming.filled
            or not 0 < len(term.data) <= size - coming.filled
            or (term.mass is not None and not abs(term.mass) <= self.heaviest)
        ):
            raise DecodeError(
                f"expected the piece at {coming.filled} of a term of {size} bytes, got {len(term.data)} at "
                f"{term.offset} of {term.total}"
            )
        if not coming.data:
            coming.data = bytearray(size)
            self._coming[sender] = coming
        coming.data[coming.filled : coming.filled + len(term.data)] = term.data
        coming.filled += len(term.data)
        if coming.whole and exchange == self._exchange and self._receiver is not None:
            self._add(self._receiver, sender, coming)

    def _add(self, receiver: Receiver, sender: str, coming: _Coming) -> None:
        """Add a term that is there, unless it has a mass and others have none, or the other way round."""
        del self._coming[sender]
        if (coming.mass is not None) != self._weighted:
            return
        width = receiver.sum.width
        values = np.frombuffer(coming.data, np.dtype(WIDTHS[width]).newbyteorder("<")).astype(WIDTHS[width], copy=False)
        receiver.take(Share(self.slot, sender, values))
        self.here.add(sender)
        if coming.mass is not None:
            self.masses[sender] = coming.mass

    def close(self) -> RollCall:
        """Decide who is in the sum, for good: nobody, where they are too few."""
        if self.call is None:
            roll = None if self._receiver is None else self._receiver.close()
            here = () if roll is None else roll.here
            self.call = RollCall(*self._exchange, here, self.seal.sign(self.slot, here, domain="roll"))
        return self.call

    def consented(self, sender: str, word: Agreement) -> Agreements | None:
        """Keep a consent; once there are all, what everybody on the roll is to be told.

        Raises
        ------
        PrivacyError, DecodeError
            It is none to the roll.
        """
        call, receiver = self._called(sender, word.round, word.step)
        self.seal.check(sender, self.slot, call.here, word.signature, domain="consent", keys=self.seal.keys)
        receiver.collect(Consent(self.slot, sender, call.here))
        self.consents[sender] = word.signature
        return self.agreements

    @property
    def agreements(self) -> Agreements | None:
        """All consents, once there are all."""
        if self.call is None or not self.call.here or self.consents.keys() != {*self.call.here}:
            return None
        return Agreements(*self._exchange, tuple(self.consents[peer] for peer in self.call.here))

    def unlock(self, sender: str, word: Unmasking) -> None:
        """Take off the masks of a term.

        Raises
        ------
        PrivacyError
            The keys are others than were asked for.
        """
        _, receiver = self._called(sender, word.round, word.step)
        if self.agreements is None:
            raise PrivacyError(f"expected keys of {sender} after all consents, got them before; ignore them.")
        receiver.unlock(Keys(self.slot, sender, word.own, word.pairs))
        self.unlocked.add(sender)

    def _called(self, sender: str, round: int, step: int) -> tuple[RollCall, Receiver]:
        if sender in self._ended:
            raise PrivacyError(f"expected a word of the life of {sender} that gave its term, got the next; ignore it.")
        if self.call is None or self._receiver is None or (round, step) != self._exchange:
            raise PrivacyError(f"expected a word on {self.slot}, got one on round {round}, step {step}; ignore it.")
        return self.call, self._receiver

    def total(self) -> Ints | None:
        """The sum, ``[P]`` grid points, and the end of it; ``None`` where it stays masked."""
        receiver, self._receiver = self._receiver, None
        return None if receiver is None else receiver.total()
