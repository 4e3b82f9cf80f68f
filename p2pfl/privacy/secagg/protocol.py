r"""Exact sums over a receiver's neighbourhood: totals to one peer, which learns the sum and no term of it.

For one receiver r, in one gossip step, sender j holds grid points :math:`p_j` (of :math:`W_{rj} x_j`). The senders
that are ready say so, the receiver fixes the participant set U of those, and each j in U sends

.. math:: y_j = p_j + \sum_{k \in U, k \ne j} \operatorname{sgn}(j, k)\, m_{jk} \pmod{2^w}

with :math:`m_{jk}` the keystream of the key that j and k share for this receiver, round, step *and this U*
(:class:`p2pfl.privacy.total_masks.TotalMasks`). The masks cancel in the sum over U, which the receiver reads as two's
complement, exactly where every term is smaller than :math:`2^{w-1}` over their number. They cancel in nothing else: a
receiver that sends different sets to different senders holds numbers that are uniform, so nobody has to confirm which
set they received. An honest sender masks one term for a slot. So two sets of which both sums become known share no
honest sender, and a receiver never learns two sums that differ by one peer: not if it says that somebody is missing,
nor if a participant disappears. In the latter case there is no sum, and no second attempt without that participant.
Sets of more than half of the senders keep the sums at one.

Every gossip step is a sum of its own, under keys of its own. The accountant counts what several sums reveal together
(:mod:`p2pfl.privacy.accounting.sum_leakage`).

References
----------
K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017: pairwise masks
and their consistency check, which keys that name the set replace here; without shares of keys, because a sum may fail.
S. Biswas et al., "CESAR", 2024: sums over a receiver's neighbourhood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.normal_stream import POINT_LIMIT, Ints
from p2pfl.privacy.total_masks import WIDTHS, Ring, TotalMasks, TotalSlot
from p2pfl.topology import Topology

VERSION = "aes256-ctr-ring-v3"
"""Version of masks and messages; peers with different versions unmask nothing."""

FIRST_NUMBER = 2**32
"""Number of the first sum among the totals of a round: the sum of the receiver at place i has the number i further."""

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
    """Return the number of senders that a sum needs: more than half, so that no two participant sets complete a sum.

    Two sets of more than half share a sender, and an honest sender masks a term for one. If senders may collude with
    the receiver, all must be present, because colluders may be in two sets.

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

    def total(self, place: int) -> TotalSlot:
        """Return the slot among the totals of the round, for a receiver at a place in the list of all peers."""
        return TotalSlot(self.round + 1, self.step, FIRST_NUMBER + place)

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
    place
        Place of the receiver in the list of all peers.
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
    place: int = field(kw_only=True, default=0)
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
    def total(self) -> TotalSlot:
        """Slot among the totals of the round."""
        return self.slot.total(self.place)

    @property
    def fewest(self) -> int:
        """Minimum number of terms that the receiver needs to get the sum."""
        return fewest(len(self.senders), colluders=self.colluders)

    @property
    def limit(self) -> int:
        """Bound of every number of a term, below which no sum wraps around."""
        limit: int = min(POINT_LIMIT, 2 ** (self.width - 1) // len(self.senders))
        return limit


class Sender:
    """One peer's part in one sum: it masks one term, for one participant set.

    Parameters
    ----------
    sum
        Facts about the sum.
    peer
        Name of the sender.
    secrets
        Edge secrets of the peer, with every other sender.

    Examples
    --------
    >>> import numpy as np
    >>> from p2pfl.privacy.keys import SeededSource
    >>> from p2pfl.privacy.masks import swarm_secrets
    >>> from p2pfl.privacy.total_masks import to_signed
    >>> from p2pfl.topology import complete
    >>> names = ("ada", "bob", "cleo", "dan")
    >>> secrets = swarm_secrets(complete(4).named(names), source=SeededSource(7), run="demo")
    >>> facts, here = Sum(SumSlot("eve", 0, 0), names, size=2), ("ada", "bob", "cleo")  # dan is not ready
    >>> shares = [Sender(facts, peer=name, secrets=secrets).share(np.array([1, 10]), here) for name in here]
    >>> to_signed(sum(shares)).tolist()
    [3, 30]
    """

    def __init__(self, sum: Sum, *, peer: str, secrets: Mapping[Edge, bytes]) -> None:
        self.sum = sum
        self.peer = peer
        pairs = tuple(sorted((min(peer, other), max(peer, other)) for other in sum.senders if other != peer))
        self._masks = TotalMasks(secrets, graph=Topology(tuple(sorted({peer, *sum.senders})), pairs))
        self._here: tuple[str, ...] = ()  # participant set for which this peer has masked its term

    def check(self, here: tuple[str, ...]) -> None:
        """Refuse a participant set for which this peer may not mask its term.

        Raises
        ------
        PrivacyError
            The set is not of this sum, or too small, or lacks this peer, or is the second one.
        """
        if list(here) != sorted({*here} & {*self.sum.senders}) or self.peer not in here:
            raise PrivacyError(f"the {self._name} does not list {self.peer} and others in order; ignore it")
        if len(here) < self.sum.fewest:
            raise PrivacyError(f"the {self._name} has {len(here)} terms and needs {self.sum.fewest}; ignore it")
        if self._here:
            raise PrivacyError(f"{self.peer} has masked its term of the {self._name}, and masks no second one")

    def mask_keys(self, here: tuple[str, ...] = ()) -> dict[str, bytes]:
        """Return the keys of the term's masks for a set, or for that of :meth:`share`, by the peer that shares each."""
        return self._masks.keys(self.peer, slot=self.sum.total, participants=here or self._here)

    def share(self, points: Ints, here: tuple[str, ...]) -> Ring:
        """Return a term, ``[P]`` grid points, masked with all others of a participant set.

        Raises
        ------
        PrivacyError
            The term does not fit into the ring, or :meth:`check` refuses the set, or a secret is missing.
        """
        self.check(here)
        if points.shape != (self.sum.size,):
            raise PrivacyError(f"the term has shape {points.shape}, and the sum {self.sum.size} numbers; pass as many")
        largest = max(int(points.max(initial=0)), -int(points.min(initial=0)))
        if largest >= self.sum.limit:
            raise PrivacyError(
                f"a number of {self.peer}'s share is {largest} grid points, and sums of {len(self.sum.senders)} in a "
                f"ring of {self.sum.width} bits are exact only below {self.sum.limit}; clip, lower the learning rate "
                "or use fewer bits"
            )
        self._here = here
        slot, bits = self.sum.total, self.sum.width
        return self._masks.hide(points, peer=self.peer, slot=slot, participants=here, bits=bits)

    @property
    def _name(self) -> str:
        return str(self.sum.slot)
