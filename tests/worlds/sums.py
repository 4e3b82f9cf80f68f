"""What must hold of sums over neighbourhoods: each is that of the terms on its roll, and no single term is opened.

A term can be read by whoever knows the sender's own key and the keys of all its pairs. Receivers are given the one of
who is there and the others of who is not; never both of one peer for one sum, in whichever of its lives.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np

from p2pfl.network.peer.neighbourhoods.sum_relay import SumRelay
from p2pfl.network.protocol.wire.sum_messages import Agreements, Unmasking
from p2pfl.network.secagg.receiver import SumReceiver
from p2pfl.network.secagg.sender import SumSender
from p2pfl.privacy.normal_stream import Ints
from p2pfl.privacy.secagg.protocol import Sender, SumSlot
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
        self._own: set[tuple[SumSlot, str]] = set()
        self._pairs: set[tuple[SumSlot, str]] = set()

    def watched(self, relay: SumRelay) -> None:
        """Watch both parts of a peer in sums."""
        relay.sum_sender = WatchedSumSender.of(relay.sum_sender, self)
        relay.sum_receiver = WatchedSumReceiver.of(relay.sum_receiver, self)

    def opened(self, slot: SumSlot, sender: str, word: Unmasking) -> None:
        """A sender gives keys away."""
        self._own.add((slot, sender))
        self._pairs.update((slot, other) for other in word.pairs)
        for _, peer in self._own & self._pairs:
            self.fail(f"the term of {peer} in {slot} can be read: its own key and those of its pairs were given away")

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
        watched = cls(sum_sender.peer, sums=sum_sender.sums, seal=sum_sender.seal, source=sum_sender.source)
        watched.watch = watch
        return watched

    def mask(self, slot: SumSlot, points: Ints) -> tuple[Sender, Ring]:
        """Mask a term."""
        term = points.copy()
        self.watch.terms[slot, self.peer].append(term)
        part, share = super().mask(slot, points)
        self.watch.keys.added(part, term)
        return part, share

    def unlock(self, receiver: str, all_: Agreements) -> Unmasking:
        """Open a term."""
        word = super().unlock(receiver, all_)
        self.watch.opened(SumSlot(receiver, all_.round, all_.step), self.peer, word)
        return word


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
