"""Sets of releases, which take as much room as they have gaps, however many rounds a run has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

Run = tuple[int, int, int]
"""Attempt, first round, round after the last: slots in a row."""


class Slot(NamedTuple):
    """Number of a release, which names its masks; ordered. ``round`` counts releases if a round has several."""

    attempt: int
    round: int

    @property
    def after(self) -> Slot:
        """The least slot that is greater."""
        return Slot(self.attempt, self.round + 1)

    @property
    def run(self) -> Run:
        """The slot alone."""
        return self.attempt, self.round, self.round + 1


START = Slot(0, 0)
END = Slot(2**63 - 1, 0)
"""After every slot: of a peer that will not release again."""


@dataclass(frozen=True)
class Slots:
    """A set of slots, kept as runs.

    Attributes
    ----------
    runs
        In order; between two of them at least one slot is missing, or the attempt is another. :meth:`of` takes any.

    Examples
    --------
    >>> some = Slots.of([(0, 2, 4), (0, 7, 8)]) | Slots.of([Slot(1, 4).run])
    >>> some.runs, len(some), Slot(0, 3) in some
    (((0, 2, 4), (0, 7, 8), (1, 4, 5)), 4, True)
    >>> (some - Slots.of([(0, 3, 8)])).runs
    ((0, 2, 3), (1, 4, 5))
    """

    runs: tuple[Run, ...] = ()

    @staticmethod
    def of(runs: Iterable[Run]) -> Slots:
        """Return the slots of runs, which may overlap and come in any order."""
        out: list[Run] = []
        for attempt, first, stop in sorted(runs):
            if out and out[-1][0] == attempt and first <= out[-1][2]:
                out[-1] = (attempt, out[-1][1], max(stop, out[-1][2]))
            elif first < stop:
                out.append((attempt, first, stop))
        return Slots(tuple(out))

    def __iter__(self) -> Iterator[Slot]:
        return (Slot(attempt, round) for attempt, first, stop in self.runs for round in range(first, stop))

    def __len__(self) -> int:
        return sum(stop - first for _, first, stop in self.runs)

    def __contains__(self, slot: Slot) -> bool:
        index = bisect_right(self.runs, (slot[0], slot[1], float("inf"))) - 1
        return index >= 0 and self.runs[index][0] == slot[0] and slot[1] < self.runs[index][2]

    def __or__(self, other: Slots) -> Slots:
        return Slots.of(self.runs + other.runs)

    def __sub__(self, other: Slots) -> Slots:
        return self._where(other, lambda here, there: here and not there)

    def __xor__(self, other: Slots) -> Slots:
        return self._where(other, lambda here, there: here != there)

    def before(self, slot: Slot) -> Slots:
        """Those less than a slot."""
        return Slots(
            tuple(
                (attempt, first, min(stop, slot.round) if attempt == slot.attempt else stop)
                for attempt, first, stop in self.runs
                if (attempt, first) < slot
            )
        )

    def since(self, slot: Slot) -> Slots:
        """Those not less than a slot."""
        return self - self.before(slot)

    def _where(self, other: Slots, keep: Callable[[bool, bool], bool]) -> Slots:
        """Return the slots to ``keep``, by whether each end has them; none that neither end has."""
        here, there = ({(run[0], edge) for run in each.runs for edge in run[1:]} for each in (self, other))
        inside, beside, begun = False, False, None
        out: list[Run] = []
        for attempt, round in sorted(here | there):
            inside ^= (attempt, round) in here
            beside ^= (attempt, round) in there
            kept = keep(inside, beside)
            if kept and begun is None:
                begun = round
            elif not kept and begun is not None:
                out.append((attempt, begun, round))
                begun = None
        return Slots(tuple(out))


NONE = Slots()
"""No slots."""
