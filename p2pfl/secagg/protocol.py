r"""Exact sums over a receiver's neighbourhood: the receiver learns the sum and no term of it.

For one receiver r, in one gossip step, sender j holds grid points :math:`p_j` (of :math:`W_{rj} x_j`) and sends

.. math:: y_j = p_j + b_j + \sum_{k \ne j} \operatorname{sgn}(j, k)\, m_{jk} \pmod{2^w}

with :math:`m_{jk}` the keystream of the key that j and k share for this receiver, round and step, and
:math:`b_j` that of a key of j's own. Each is uniform in the ring, so :math:`y_j` tells nothing, and the
pairs' masks cancel in the sum. What is exchanged, in order; whoever is asked for less refuses:

1. :class:`Share`, sender to receiver: :math:`y_j`.
2. :class:`Roll`, receiver to senders: the set U of those whose share it has. Signed.
3. :class:`Consent`, sender to receiver: "U is what I was told". Signed, at most one for each sum.
4. All consents, receiver to every sender in U: who was told something else now knows.
5. :class:`Keys`, sender to receiver: the key of :math:`b_j`, and of :math:`m_{jk}` for each k missing in U.

The receiver takes off what the keys give and reads :math:`\sum_{j \in U} p_j` as two's complement, exactly
where every term is smaller than :math:`2^{w-1}` over their number. A sender reveals the masks of pairs of who
is missing and its own key if it is not: who was declared missing never answers, and sends nothing if it has
not yet, so that never both are known of one peer. Consents must be unanimous because a receiver might tell
one sender that it is there and the others that it is not, or split the senders: of rolls with more than half
of them at most one gets all consents. If an answer does not come, the sum gives nothing: the masks stay.

Every gossip step is a sum of its own, under keys of its own. What several sums tell together is the accountant's
business (:mod:`p2pfl.privacy.accounting.sums`).

References
----------
K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017: the
double mask and the consistency check; without its secret sharing, for here a sum may fail.
S. Biswas et al., "CESAR", 2024: sums over a receiver's neighbourhood.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from p2pfl.errors import InputError, PrivacyError
from p2pfl.identity import KEY_BYTES, Source, edge_key
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.ring import WIDTHS, Ring, mask, signed, unsigned, zeros
from p2pfl.privacy.stream import LIMIT, Ints

VERSION = "aes256-ctr-ring-v2"
"""Of masks and messages: peers that differ unmask nothing."""

HONEST = 3
"""Honest terms that a sum must have at least: of two, each knows the other's."""


def enough(colluders: int) -> int:
    """Return how many senders a receiver must have, of whom all but one of the colluders may help it.

    Examples
    --------
    >>> enough(1), enough(3)
    (3, 5)
    """
    return HONEST + max(0, colluders - 1)


def fewest(senders: int, *, colluders: int) -> int:
    """Return how many of the senders must be in a sum: more than half, so that no two rolls get all consents.

    Two rolls of more than half share a sender, and who is honest consents to one. Where senders may collude with the
    receiver all must be there; two sums that differ by one peer would give that peer's row away, too.

    Examples
    --------
    >>> fewest(4, colluders=1), fewest(9, colluders=1), fewest(9, colluders=2)
    (3, 5, 9)
    """
    return senders if colluders > 1 else max(HONEST, senders // 2 + 1)


class Slot(NamedTuple):
    """Slot of a sum; no key serves two of them."""

    receiver: str
    round: int
    step: int


@dataclass(frozen=True)
class Sum:
    """Facts about a sum that all participants know in advance.

    Parameters
    ----------
    slot
        Receiver, round and step.
    senders
        Peers whose terms are added: the receiver's in-neighbours, without itself.
    size
        P, the length of a row.
    width
        Bits of the ring, 32 or 64.
    colluders
        Number of peers that may collude, the receiver among them.

    Raises
    ------
    InputError
        There are too few senders, or one of them is the receiver, or the ring is neither of the two.

    Examples
    --------
    >>> Sum(Slot("dan", 0, 0), ("ada", "bob", "cleo"), size=10).limit
    2251799813685248
    """

    slot: Slot
    senders: tuple[str, ...]
    size: int = field(kw_only=True)
    width: int = field(kw_only=True, default=64)
    colluders: int = field(kw_only=True, default=1)

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise InputError(f"expected a ring of 32 or 64 bits, got {self.width}; choose one.")
        least = enough(self.colluders)
        if self.slot.receiver in self.senders or not least <= len(set(self.senders)) == len(self.senders):
            raise InputError(
                f"expected at least {least} different neighbours whose rows "
                f'"{self.slot.receiver}" is given in sum, got {", ".join(self.senders) or "none"}; take a denser graph.'
            )

    @property
    def fewest(self) -> int:
        """Minimum number of terms that the receiver needs to get the sum."""
        return fewest(len(self.senders), colluders=self.colluders)

    @property
    def limit(self) -> int:
        """Every number of a term is smaller than this, so that no sum wraps around."""
        limit: int = min(LIMIT, 2 ** (self.width - 1) // len(self.senders))
        return limit


@dataclass(frozen=True)
class Share:
    """A masked term, ``[P]`` in the ring."""

    slot: Slot
    sender: str
    values: Ring


@dataclass(frozen=True)
class Roll:
    """Participant set: senders whose shares the receiver has, sorted; all senders must get the same one."""

    slot: Slot
    here: tuple[str, ...]


@dataclass(frozen=True)
class Consent:
    """A sender was told this roll, and no other."""

    slot: Slot
    sender: str
    here: tuple[str, ...]


@dataclass(frozen=True)
class Keys:
    """Keys that unmask a share: the sender's own, and for each missing sender that of the pair's mask."""

    slot: Slot
    sender: str
    own: bytes = field(repr=False)
    pairs: Mapping[str, bytes] = field(repr=False)


class Sender:
    """One peer's part in one sum. It answers the same question alike, and no second one.

    Parameters
    ----------
    sum
        Facts about the sum that are known beforehand.
    peer
        Name of the peer.
    secrets
        Edge secrets of the peer, with every other sender.
    source
        Of the key that nobody else knows.

    Raises
    ------
    PrivacyError
        From every method: the question is one whose answer could give the term away. Nothing is sent then.

    Examples
    --------
    See :func:`p2pfl.secagg.in_process.exchanged`.
    """

    def __init__(self, sum: Sum, *, peer: str, secrets: Mapping[Edge, bytes], source: Source) -> None:
        self.sum = sum
        self.peer = peer
        self.missing = False
        """True if the receiver said that it has no share of this peer: then nothing leaves any more."""
        self._secrets = secrets
        slot = sum.slot
        purpose = f"selfmask {slot.receiver} {slot.step}"
        self._own = source.bytes(KEY_BYTES, purpose=purpose, peer=peer, round=slot.round)
        self._sent = False
        self._consent: Consent | None = None
        self._keys: Keys | None = None

    def share(self, points: Ints) -> Share:
        """Mask a term, ``[P]`` grid points, which are used up; once.

        What is lost on the way is sent again as it was, not made anew.
        """
        if self.missing or self._sent:
            state = "declared missing" if self.missing else "sent already"
            raise PrivacyError(
                f"expected {self._name} to be open for a share of {self.peer}, got one that was {state}; skip it."
            )
        if points.shape != (self.sum.size,):
            raise PrivacyError(f"a term has the shape {points.shape} and not {self.sum.size} numbers; fix the caller")
        largest = max(int(points.max(initial=0)), -int(points.min(initial=0)))
        if largest >= self.sum.limit:
            raise PrivacyError(
                f"expected every number of {self.peer}'s share below {self.sum.limit} grid points, where sums of "
                f"{len(self.sum.senders)} in a ring of {self.sum.width} bits are exact, got {largest}; clip, lower the "
                "learning rate or use fewer bits."
            )
        values = unsigned(points, self.sum.width)  # [P]
        keys = self.mask_keys()
        plus = [key for other, key in keys.items() if self.peer <= other]
        minus = [key for other, key in keys.items() if self.peer > other]
        mask(values, plus=plus, minus=minus)
        self._sent = True
        return Share(self.sum.slot, self.peer, values)

    def consent(self, roll: Roll) -> Consent | None:
        """Say what one was told; nothing if one was declared missing."""
        self._check(roll.slot)
        here = roll.here
        if list(here) != sorted({*here} & {*self.sum.senders}):
            raise PrivacyError(f"expected {self._name} to list its senders in order, got {', '.join(here)}; ignore it.")
        if self._consent is not None:
            if self._consent.here != here:
                raise PrivacyError(
                    f"expected one roll of {self._name}, got a second that differs; "
                    f"{self.sum.slot.receiver} tells its senders different things: exclude it."
                )
            return self._consent
        if self.missing or self.peer not in here:
            self.missing = True
            self._own = b""
            return None
        if not self._sent or len(here) < self.sum.fewest:
            got = f"{len(here)} of them" if self._sent else f"one with {self.peer}, which has sent nothing"
            raise PrivacyError(f"expected {self._name} to be of {self.sum.fewest} or more terms, got {got}; ignore it.")
        self._consent = Consent(self.sum.slot, self.peer, here)
        return self._consent

    def keys(self, consents: Collection[Consent]) -> Keys:
        """Unmask the own share, once everybody on the roll was told the same."""
        if self._keys is not None:
            return self._keys
        if self.missing or self._consent is None:
            state = "missing" if self.missing else "not asked yet"
            raise PrivacyError(
                f"expected {self.peer} to be on the roll of {self._name}, got one that is {state}; skip it."
            )
        here = self._consent.here
        for each in consents:
            self._check(each.slot)
        agreed = {each.sender for each in consents if each.here == here}
        if agreed != {*here} or any(each.here != here for each in consents):
            odd = sorted({*here} - agreed) or sorted(each.sender for each in consents if each.here != here)
            raise PrivacyError(
                f"expected everybody in {self._name} to have been told the same roll, got no such consent of "
                f"{', '.join(odd)}; no key is revealed."
            )
        gone = [other for other in self.sum.senders if other not in here]
        self._keys = Keys(self.sum.slot, self.peer, self._own, {other: self._pair(other) for other in gone})
        return self._keys

    def mask_keys(self) -> dict[str, bytes]:
        """Return the keys of all masks of the term, by the peer that shares each; its own by its own name."""
        others = [other for other in self.sum.senders if other != self.peer]
        return {self.peer: self._own} | {other: self._pair(other) for other in others}

    @property
    def _name(self) -> str:
        slot = self.sum.slot
        return f"sum {slot.step} of round {slot.round} for {slot.receiver}"

    def _check(self, slot: Slot) -> None:
        if slot != self.sum.slot:
            raise PrivacyError(f"expected a message of {self._name}, got one of {slot}; ignore it.")

    def _pair(self, other: str) -> bytes:
        edge = min(self.peer, other), max(self.peer, other)
        if edge not in self._secrets:
            raise PrivacyError(
                f"expected a shared secret of {edge[0]} and {edge[1]}, who are both heard by "
                f"{self.sum.slot.receiver}, got none; exchange public keys before the first round."
            )
        slot, purpose = self.sum.slot, "summask"
        at = {"round": slot.round, "attempt": slot.step}
        return edge_key(self._secrets[edge], purpose=purpose, a=edge[0], b=edge[1], receiver=slot.receiver, **at)


class Receiver:
    """The receiver's part in one sum; a row is all that it holds.

    Parameters
    ----------
    sum
        Facts about the sum that are known beforehand.

    Raises
    ------
    PrivacyError
        From every method: a message that no honest sender sends.

    Examples
    --------
    See :func:`p2pfl.secagg.in_process.exchanged`.
    """

    def __init__(self, sum: Sum) -> None:
        self.sum = sum
        self.roll: Roll | None = None
        """Senders in the sum, once that is decided."""
        self._values = zeros(sum.size, sum.width)  # [P]
        self._here: set[str] = set()
        self._consents: dict[str, Consent] = {}
        self._unlocked: set[str] = set()
        self._closed = False

    @property
    def complete(self) -> bool:
        """True if there is nobody left to wait for."""
        return self._here == {*self.sum.senders}

    def take(self, share: Share) -> bool:
        """Add a share; ``False`` where it comes late or a second time and is ignored."""
        self._check(share.slot, share.sender, {*self.sum.senders})
        if share.values.shape != self._values.shape or share.values.dtype != self._values.dtype:
            raise PrivacyError(
                f"expected {self.sum.size} numbers of {self.sum.width} bits of {share.sender}, got "
                f"{share.values.shape} of {share.values.dtype}; ignore it."
            )
        if self._closed or share.sender in self._here:
            return False
        self._values += share.values
        self._here.add(share.sender)
        return True

    def close(self) -> Roll | None:
        """Decide who is in the sum, for good; ``None`` where they are too few and it gives nothing."""
        if not self._closed:
            self._closed = True
            if len(self._here) >= self.sum.fewest:
                self.roll = Roll(self.sum.slot, tuple(sorted(self._here)))
        return self.roll

    def collect(self, consent: Consent) -> tuple[Consent, ...] | None:
        """Keep a consent; once there are all, what to send to everybody on the roll."""
        self._check(consent.slot, consent.sender, self._here)
        if self.roll is None or consent.here != self.roll.here:
            raise PrivacyError(f"expected the consent of {consent.sender} to the roll, got another; ignore it.")
        self._consents[consent.sender] = consent
        if self._consents.keys() != self._here:
            return None
        return tuple(self._consents[sender] for sender in self.roll.here)

    def unlock(self, keys: Keys) -> bool:
        """Take off the masks of one share; ``True`` once the sum is there."""
        self._check(keys.slot, keys.sender, self._here)
        gone = {*self.sum.senders} - self._here
        if self.roll is None or {*keys.pairs} != gone or {*map(len, (keys.own, *keys.pairs.values()))} != {KEY_BYTES}:
            expected = ", ".join(sorted(gone)) or "nobody"
            raise PrivacyError(f"expected the keys of {keys.sender}'s masks with {expected}, got others; ignore it.")
        if keys.sender not in self._unlocked:
            lower = [key for other, key in keys.pairs.items() if keys.sender > other]
            upper = [key for other, key in keys.pairs.items() if keys.sender < other]
            mask(self._values, plus=lower, minus=[keys.own, *upper])
            self._unlocked.add(keys.sender)
        return self._unlocked == self._here

    def total(self) -> Ints | None:
        """Return the sum of all contributions, ``[P]`` grid points; ``None`` as long as it is masked."""
        if self.roll is None or self._unlocked != self._here:
            return None
        return signed(self._values)  # [P]

    def _check(self, slot: Slot, sender: str, known: set[str]) -> None:
        if slot != self.sum.slot or sender not in known:
            names = ", ".join(sorted(known))
            raise PrivacyError(f"expected a message of {names} on {self.sum.slot}, got {sender} on {slot}; ignore it.")
