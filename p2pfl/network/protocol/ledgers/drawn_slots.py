"""Sets of masks of one edge: slots, by the epoch of the edge in which each was drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from p2pfl.core.errors import PrivacyError
from p2pfl.network.protocol.ledgers.slots import Run, Slot, Slots

Epochs = tuple[tuple[bytes, int], ...]
"""Names of epochs, each with how many runs belong to it."""


@dataclass(frozen=True)
class DrawnSlots:
    """A set of masks of one edge.

    An epoch lasts until either end restarts, so many slots share one and a set stays as small as its slots are.

    Attributes
    ----------
    parts
        By epoch, in order of their names; none is empty. :meth:`of` takes any. The empty name is that of a ledger that
        knows no epochs.

    Examples
    --------
    >>> one = DrawnSlots.of([(b"old", Slots.of([(0, 0, 3)])), (b"new", Slots.of([(0, 3, 5)]))])
    >>> two = DrawnSlots.of([(b"new", Slots.of([(0, 2, 5)]))])
    >>> list(one ^ two)
    [(Slot(attempt=0, round=0), b'old'), (Slot(attempt=0, round=1), b'old'), (Slot(attempt=0, round=2), b'new'), \
(Slot(attempt=0, round=2), b'old')]
    """

    parts: tuple[tuple[bytes, Slots], ...] = ()

    @staticmethod
    def of(parts: Iterable[tuple[bytes, Slots]]) -> DrawnSlots:
        """Return the masks of parts in any order, which may name an epoch twice."""
        by_epoch: dict[bytes, Slots] = {}
        for epoch, slots in parts:
            by_epoch[epoch] = by_epoch[epoch] | slots if epoch in by_epoch else slots
        return DrawnSlots(tuple((epoch, slots) for epoch, slots in sorted(by_epoch.items()) if slots))

    @staticmethod
    def read(runs: Iterable[Run], epochs: Epochs = ()) -> DrawnSlots:
        """Return the masks of which :attr:`runs` and :attr:`epochs` were written; those of no epoch have the empty one.

        Raises
        ------
        PrivacyError
            The epochs count more runs than there are.
        """
        left, parts = list(runs), list[tuple[bytes, Slots]]()
        for epoch, count in epochs:
            if count > len(left):
                raise PrivacyError(
                    f"an epoch counts {count} runs of masks and only {len(left)} follow; exclude the peer that sent it"
                )
            parts.append((epoch, Slots.of(left[:count])))
            del left[:count]
        return DrawnSlots.of([*parts, (b"", Slots.of(left))])

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of all epochs, those of the empty one last."""
        return tuple(run for _, slots in self._named_first for run in slots.runs)

    @property
    def epochs(self) -> Epochs:
        """Number of :attr:`runs` of each epoch, in their order; the rest belongs to the empty one."""
        return tuple((epoch, len(slots.runs)) for epoch, slots in self._named_first if epoch)

    @property
    def slots(self) -> Slots:
        """The slots, whatever their epoch."""
        return Slots.of(run for _, slots in self.parts for run in slots.runs)

    @property
    def _named_first(self) -> list[tuple[bytes, Slots]]:
        return sorted(self.parts, key=lambda part: not part[0])

    def __iter__(self) -> Iterator[tuple[Slot, bytes]]:
        return iter(sorted((slot, epoch) for epoch, slots in self.parts for slot in slots))

    def __len__(self) -> int:
        return sum(len(slots) for _, slots in self.parts)

    def __contains__(self, slot: Slot) -> bool:
        return any(slot in slots for _, slots in self.parts)

    def __or__(self, other: DrawnSlots) -> DrawnSlots:
        return DrawnSlots.of(self.parts + other.parts)

    def __sub__(self, other: DrawnSlots) -> DrawnSlots:
        taken = dict(other.parts)
        return DrawnSlots.of((epoch, slots - taken.get(epoch, Slots())) for epoch, slots in self.parts)

    def __xor__(self, other: DrawnSlots) -> DrawnSlots:
        return (self - other) | (other - self)

    def before(self, slot: Slot) -> DrawnSlots:
        """Return those whose slot is less than this one."""
        return DrawnSlots.of((epoch, slots.before(slot)) for epoch, slots in self.parts)

    def since(self, slot: Slot) -> DrawnSlots:
        """Return those whose slot is not less than this one."""
        return DrawnSlots.of((epoch, slots.since(slot)) for epoch, slots in self.parts)


NOTHING = DrawnSlots()
"""No masks."""
