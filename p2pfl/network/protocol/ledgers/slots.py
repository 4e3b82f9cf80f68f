"""Slots: the numbers of releases, which name their masks."""

from __future__ import annotations

from typing import NamedTuple


class Slot(NamedTuple):
    """Number of a release, which names its masks; ordered."""

    attempt: int
    round: int

    @property
    def after(self) -> Slot:
        """The least slot that is greater."""
        return Slot(self.attempt, self.round + 1)


START = Slot(0, 0)
END = Slot(2**63 - 1, 0)
"""After every slot: of a peer that will not release again."""
