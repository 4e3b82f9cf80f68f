"""What must hold of sums over neighbourhoods: each is that of the terms of its participants, and each is masked once.

A receiver that had two terms of one incarnation for one slot could subtract two sums.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np

from p2pfl.network.peer.neighbourhoods.sum_relay import SumRelay
from p2pfl.network.secagg.receiver import SumReceiver
from p2pfl.network.secagg.sender import SumSender
from p2pfl.privacy.normal_stream import Ints
from p2pfl.privacy.secagg.protocol import SumSlot
from p2pfl.privacy.total_masks import Ring
from worlds.keys import Fail, KeyWatch


class SumWatch:
    """Looks at all terms and sums of a world.

    Parameters
    ----------
    fail
        Told of the first thing that went wrong.
    keys
        Told of every mask.
    """

    def __init__(self, fail: Fail, keys: KeyWatch) -> None:
        self.fail = fail
        self.keys = keys
        self.terms: dict[tuple[SumSlot, str], list[Ints]] = defaultdict(list)
        """By sum and sender, the term of each of its lives that gave one."""
        self._masked: set[tuple[SumSlot, str, int]] = set()

    def watched(self, relay: SumRelay) -> None:
        """Watch both parts of a peer in sums."""
        relay.sum_sender = WatchedSumSender.of(relay.sum_sender, self)
        relay.sum_receiver = WatchedSumReceiver.of(relay.sum_receiver, self)

    def masked(self, slot: SumSlot, sender: str, incarnation: int) -> None:
        """An incarnation of a sender masks a term."""
        if (slot, sender, incarnation) in self._masked:
            self.fail(f"{sender} masked two terms for {slot}")
        self._masked.add((slot, sender, incarnation))

    def summed(self, slot: SumSlot, here: tuple[str, ...], total: Ints) -> None:
        """A receiver has its sum."""
        choices = product(*(self.terms[slot, sender] for sender in here))
        if not any(np.array_equal(total, np.sum(terms, axis=0)) for terms in choices):
            self.fail(f"the sum of {slot} is not that of the terms of {', '.join(here)}")


class WatchedSumSender(SumSender):
    """The part of a sender, which tells what it says."""

    watch: SumWatch

    @classmethod
    def of(cls, sum_sender: SumSender, watch: SumWatch) -> WatchedSumSender:
        """The same, watched."""
        watched = cls(sum_sender.peer, sums=sum_sender.sums, seal=sum_sender.seal)
        watched.watch = watch
        return watched

    def mask(self, slot: SumSlot, points: Ints) -> Ring:
        """Mask a term."""
        term = points.copy()
        self.watch.terms[slot, self.peer].append(term)
        self.watch.masked(slot, self.peer, self.seal.membership.me.incarnation)
        share = super().mask(slot, points)
        self.watch.keys.added(self._terms[slot.receiver].part, term)
        return share


class WatchedSumReceiver(SumReceiver):
    """The part of a receiver, which tells what it has added up."""

    watch: SumWatch

    @classmethod
    def of(cls, sum_receiver: SumReceiver, watch: SumWatch) -> WatchedSumReceiver:
        """The same, watched."""
        watched = cls(sum_receiver.peer, sums=sum_receiver.sums, seal=sum_receiver.seal, heaviest=sum_receiver.heaviest)
        watched.watch = watch
        return watched

    def total(self) -> Ints | None:
        """The sum."""
        total = super().total()
        if total is not None:
            self.watch.summed(self.slot, self.called, total)
        return total
