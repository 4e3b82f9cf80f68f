r"""Exact sums over a receiver's neighbourhood: the receiver learns the sum and no term of it.

For one receiver r, in one gossip step, sender j holds grid points :math:`p_j` (of :math:`W_{rj} x_j`) and sends

.. math:: y_j = p_j + b_j + \sum_{k \ne j} \operatorname{sgn}(j, k)\, m_{jk} \pmod{2^w}

with :math:`m_{jk}` the keystream of the key that j and k share for this receiver, round and step, and
:math:`b_j` that of a key of j's own. Each is uniform in the ring, so :math:`y_j` reveals nothing, and the
pairs' masks cancel in the sum. The messages, in order; a peer refuses a request that skips one:

1. Share, sender to receiver: :math:`y_j`.
2. Participant set, receiver to senders: the set U of those whose share it has. Signed.
3. Consent, sender to receiver: "U is the set that I received". Signed, at most one for each sum.
4. All consents, receiver to every sender in U: a sender that received another set now knows.
5. :class:`Keys`, sender to receiver: the key of :math:`b_j`, and of :math:`m_{jk}` for each k missing in U.

The receiver takes off what the keys give and reads :math:`\sum_{j \in U} p_j` as two's complement, exactly
where every term is smaller than :math:`2^{w-1}` over their number. A sender reveals the masks that it shares with
missing peers, and its own key if it is not missing itself: a peer that was declared missing never answers, and never
sends its share afterwards, so that nobody learns both of one peer. Consents must be unanimous because a receiver might
send different sets to different senders: of sets with more than half of the senders, at most one gets all consents.
If an answer does not arrive, the sum stays masked.

Every gossip step is a sum of its own, under keys of its own. The accountant counts what several sums reveal together
(:mod:`p2pfl.privacy.accounting.sum_leakage`).

References
----------
K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017: the
double mask and the consistency check; without its secret sharing, because here a sum may fail.
S. Biswas et al., "CESAR", 2024: sums over a receiver's neighbourhood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.privacy.keys import KEY_BYTES, Source, edge_key
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.normal_stream import POINT_LIMIT, Ints
from p2pfl.privacy.total_masks import WIDTHS, Ring, mask, to_signed, to_unsigned, zeros

VERSION = "aes256-ctr-ring-v2"
"""Version of masks and messages; peers with different versions unmask nothing."""

MIN_HONEST = 3
"""Minimum number of honest terms in a sum; with two, each sender knows the term of the other."""


def enough(colluders: int) -> int:
    """Return the number of senders that a receiver needs if all colluders but one may be among them.

    Examples
    --------
    >>> enough(1), enough(3)
    (3, 5)
    """
    return MIN_HONEST + max(0, colluders - 1)


def fewest(senders: int, *, colluders: int) -> int:
    """Return the number of senders that a sum needs: more than half, so that no two participant sets get all consents.

    Two sets of more than half share a sender, and an honest sender consents to one. If senders may collude with the
    receiver, all must be present, because two sums that differ by one peer would reveal that peer's model.

    Examples
    --------
    >>> fewest(4, colluders=1), fewest(9, colluders=1), fewest(9, colluders=2)
    (3, 5, 9)
    """
    return senders if colluders > 1 else max(MIN_HONEST, senders // 2 + 1)


class SumSlot(NamedTuple):
    """Slot of a sum; no key serves two of them."""

    receiver: str
    round: int
    step: int

    def __str__(self) -> str:
        return f"sum {self.step} of round {self.round} for {self.receiver}"


@dataclass(frozen=True)
class Sum:
    """Facts about a sum that all participants know in advance.

    Parameters
    ----------
    slot
        Receiver, round and gossip step.
    senders
        Peers whose terms are added: the receiver's in-neighbours, without itself.
    size
        P, the length of a row.
    width
        Bits of the ring, 32 or 64.
    colluders
        Number of peers that may collude, including the receiver.

    Raises
    ------
    InputError
        There are too few senders, or one of them is the receiver, or the ring is neither of the two.

    Examples
    --------
    >>> Sum(SumSlot("dan", 0, 0), ("ada", "bob", "cleo"), size=10).limit
    2251799813685248
    """

    slot: SumSlot
    senders: tuple[str, ...]
    size: int = field(kw_only=True)
    width: int = field(kw_only=True, default=64)
    colluders: int = field(kw_only=True, default=1)

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise InputError(f"the ring has {self.width} bits; choose 32 or 64")
        least = enough(self.colluders)
        if self.slot.receiver in self.senders or not least <= len(set(self.senders)) == len(self.senders):
            raise InputError(
                f'"{self.slot.receiver}" needs {least} different neighbours to receive the sum of their models, and '
                f"has {', '.join(self.senders) or 'none'}; take a denser graph"
            )

    @property
    def fewest(self) -> int:
        """Minimum number of terms that the receiver needs to get the sum."""
        return fewest(len(self.senders), colluders=self.colluders)

    @property
    def limit(self) -> int:
        """Bound of every number of a term, below which no sum wraps around."""
        limit: int = min(POINT_LIMIT, 2 ** (self.width - 1) // len(self.senders))
        return limit


@dataclass(frozen=True)
class Keys:
    """Keys that unmask a share: the sender's own, and for each missing sender that of the pair's mask."""

    own: bytes = field(repr=False)
    pairs: Mapping[str, bytes] = field(repr=False)


class Sender:
    """One peer's part in one sum; it repeats an answer to a repeated request, and refuses a different one.

    Parameters
    ----------
    sum
        Facts about the sum.
    peer
        Name of the sender.
    secrets
        Edge secrets of the peer, with every other sender.
    source
        Source of the key that no other peer knows.

    Raises
    ------
    PrivacyError
        From every method: the answer could reveal the term. Nothing is sent then.

    Examples
    --------
    See :class:`Receiver`.
    """

    def __init__(self, sum: Sum, *, peer: str, secrets: Mapping[Edge, bytes], source: Source) -> None:
        self.sum = sum
        self.peer = peer
        self.missing = False
        """True if the receiver stated that it has no share of this peer; then the peer sends nothing more."""
        self._secrets = secrets
        slot = sum.slot
        purpose = f"selfmask {slot.receiver} {slot.step}"
        self._own = source.bytes(KEY_BYTES, purpose=purpose, peer=peer, round=slot.round)
        self._sent = False
        self._here: tuple[str, ...] = ()  # participant set that this peer has consented to
        self._keys: Keys | None = None

    def share(self, points: Ints) -> Ring:
        """Return a term, ``[P]`` grid points, masked in place and once.

        A share that is lost on the way is sent again unchanged; it is never masked a second time.
        """
        if self.missing or self._sent:
            state = "was declared missing" if self.missing else "has sent its share"
            raise PrivacyError(f"{self.peer} {state} in the {self._name}; skip this sum")
        if points.shape != (self.sum.size,):
            raise PrivacyError(f"the term has shape {points.shape}, and the sum {self.sum.size} numbers; pass as many")
        largest = max(int(points.max(initial=0)), -int(points.min(initial=0)))
        if largest >= self.sum.limit:
            raise PrivacyError(
                f"a number of {self.peer}'s share is {largest} grid points, and sums of {len(self.sum.senders)} in a "
                f"ring of {self.sum.width} bits are exact only below {self.sum.limit}; clip, lower the learning rate "
                "or use fewer bits"
            )
        values = to_unsigned(points, self.sum.width)  # [P]
        keys = self.mask_keys()
        plus = [key for other, key in keys.items() if self.peer <= other]
        minus = [key for other, key in keys.items() if self.peer > other]
        mask(values, plus=plus, minus=minus)
        self._sent = True
        return values

    def consent(self, here: tuple[str, ...]) -> bool:
        """Return whether this peer consents to a participant set; it does not if it was declared missing."""
        if list(here) != sorted({*here} & {*self.sum.senders}):
            raise PrivacyError(f"the {self._name} does not list its senders in order ({', '.join(here)}); ignore it")
        if self._here:
            if self._here != here:
                raise PrivacyError(
                    f"{self.sum.slot.receiver} has sent two different participant sets for the {self._name}; exclude it"
                )
            return True
        if self.missing or self.peer not in here:
            self.missing = True
            self._own = b""
            return False
        if not self._sent or len(here) < self.sum.fewest:
            why = (
                f"has {len(here)} terms and needs {self.sum.fewest}"
                if self._sent
                else f"includes {self.peer}, which has sent nothing"
            )
            raise PrivacyError(f"the {self._name} {why}; ignore it")
        self._here = here
        return True

    def keys(self, consents: Mapping[str, tuple[str, ...]]) -> Keys:
        """Return the keys that unmask the own share, once all participants have received the same set.

        Parameters
        ----------
        consents
            By participant, the set that it has signed.
        """
        if self._keys is not None:
            return self._keys
        here = self._here
        if self.missing or not here:
            state = "was declared missing in" if self.missing else "has not consented to"
            raise PrivacyError(f"{self.peer} {state} the {self._name}, so it reveals no key; skip this sum")
        odd = sorted({*here} - {peer for peer, agreed in consents.items() if agreed == here})
        if odd:
            raise PrivacyError(
                f"{', '.join(odd)} did not consent to the participant set of the {self._name}, so {self.peer} reveals "
                "no key; skip this sum"
            )
        self._keys = Keys(self._own, {other: self._pair(other) for other in self.sum.senders if other not in here})
        return self._keys

    def mask_keys(self) -> dict[str, bytes]:
        """Return the keys of all masks of the term, by the peer that shares each; its own by its own name."""
        others = [other for other in self.sum.senders if other != self.peer]
        return {self.peer: self._own} | {other: self._pair(other) for other in others}

    @property
    def _name(self) -> str:
        return str(self.sum.slot)

    def _pair(self, other: str) -> bytes:
        edge = min(self.peer, other), max(self.peer, other)
        if edge not in self._secrets:
            raise PrivacyError(
                f"{edge[0]} and {edge[1]}, which both send to {self.sum.slot.receiver}, share no secret; exchange "
                "public keys before the first round"
            )
        slot, purpose = self.sum.slot, "summask"
        at = {"round": slot.round, "attempt": slot.step}
        return edge_key(self._secrets[edge], purpose=purpose, a=edge[0], b=edge[1], receiver=slot.receiver, **at)


class Receiver:
    """The receiver's part in one sum; it holds a single row.

    Parameters
    ----------
    sum
        Facts about the sum.

    Raises
    ------
    PrivacyError
        From every method: a message that no honest sender sends.

    Examples
    --------
    >>> import numpy as np
    >>> from p2pfl.privacy.keys import SeededSource
    >>> from p2pfl.privacy.masks import swarm_secrets
    >>> from p2pfl.topology import complete
    >>> names, source = ("ada", "bob", "cleo", "dan"), SeededSource(7)
    >>> secrets = swarm_secrets(complete(4).named(names), source=source, run="demo")
    >>> facts = Sum(SumSlot("eve", 0, 0), names, size=2)
    >>> senders = {name: Sender(facts, peer=name, secrets=secrets, source=source) for name in names}
    >>> receiver = Receiver(facts)
    >>> for name in ("ada", "bob", "cleo"):  # the share of dan is lost
    ...     _ = receiver.take(name, senders[name].share(np.array([1, 10])))
    >>> here = receiver.close()
    >>> consents = {name: here for name in here if senders[name].consent(here)}
    >>> for name in here:
    ...     _ = receiver.unlock(name, senders[name].keys(consents))
    >>> here, receiver.total().tolist()
    (('ada', 'bob', 'cleo'), [3, 30])
    """

    def __init__(self, sum: Sum) -> None:
        self.sum = sum
        self.participants: tuple[str, ...] = ()
        """Senders in the sum, once that is decided; none if they are too few."""
        self._values = zeros(sum.size, sum.width)  # [P]
        self._here: set[str] = set()
        self._unlocked: set[str] = set()
        self._closed = False

    def take(self, sender: str, share: Ring) -> bool:
        """Add a share; return ``False`` if it is late or a duplicate, which is ignored."""
        self._check(sender, {*self.sum.senders})
        if share.shape != self._values.shape or share.dtype != self._values.dtype:
            raise PrivacyError(
                f"the share of {sender} has shape {share.shape} and type {share.dtype}, and the "
                f"sum {self.sum.size} numbers of {self.sum.width} bits; ignore it"
            )
        if self._closed or sender in self._here:
            return False
        self._values += share
        self._here.add(sender)
        return True

    def close(self) -> tuple[str, ...]:
        """Fix the participant set and return it; it is empty if it would be too small, so that the sum stays masked."""
        if not self._closed:
            self._closed = True
            if len(self._here) >= self.sum.fewest:
                self.participants = tuple(sorted(self._here))
        return self.participants

    def unlock(self, sender: str, keys: Keys) -> bool:
        """Remove the masks of one share; return ``True`` once the sum is complete."""
        self._check(sender, self._here)
        gone = {*self.sum.senders} - self._here
        if (
            not self.participants
            or {*keys.pairs} != gone
            or {*map(len, (keys.own, *keys.pairs.values()))} != {KEY_BYTES}
        ):
            missing = ", ".join(sorted(gone)) or "no missing peer"
            raise PrivacyError(f"the keys are not those of {sender}'s masks with {missing}; ignore them")
        if sender not in self._unlocked:
            lower = [key for other, key in keys.pairs.items() if sender > other]
            upper = [key for other, key in keys.pairs.items() if sender < other]
            mask(self._values, plus=lower, minus=[keys.own, *upper])
            self._unlocked.add(sender)
        return self._unlocked == self._here

    def total(self) -> Ints | None:
        """Return the sum of all contributions, ``[P]`` grid points; ``None`` as long as it is masked."""
        if not self.participants or self._unlocked != self._here:
            return None
        return to_signed(self._values)  # [P]

    def _check(self, sender: str, senders: set[str]) -> None:
        if sender not in senders:
            names = ", ".join(sorted(senders))
            raise PrivacyError(f"a message of {sender} is not for the {self.sum.slot} of {names}; ignore it")
