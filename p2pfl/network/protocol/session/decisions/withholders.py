"""Members of committees that withhold their acceptance from this peer, or let their own ballot pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from p2pfl.network.protocol.agreement.settlement import Settlement


class Withheld(NamedTuple):
    """Attempt in which a member has withheld its acceptance, and how often it has done so until then."""

    member: str
    round: int
    times: int


@dataclass
class Withholders:
    """Members that have withheld an acceptance from this peer, as it has seen itself.

    Attributes
    ----------
    last
        Those that did so in the last attempt whose committee they formed with this peer as its owner.
    passed
        By owner, attempts that counted by another ballot, less those that counted by its own.
    """

    last: set[str] = field(default_factory=set)
    passed: Counter[str] = field(default_factory=Counter)
    _times: Counter[str] = field(default_factory=Counter)
    _news: list[Withheld] = field(default_factory=list)

    def note(self, settlement: Settlement, *, present: frozenset[str]) -> None:
        """Note who has withheld its acceptance, once the next attempt has ended: slow members have accepted by then.

        Parameters
        ----------
        settlement
            Settlement of the attempt before.
        present
            Members that are there and have not restarted; others may have had no time to accept.
        """
        owner, withheld = settlement.committee.owner, settlement.withheld & present
        self.last = (self.last - settlement.accepted) | withheld
        if settlement.passed_ballot is False:
            self.passed[owner] = max(0, self.passed[owner] - 1)
        elif settlement.passed_ballot and owner in present - {settlement.me}:
            self.passed[owner] += 1
            if settlement.seated and not settlement.proposed:
                withheld |= {owner}
        for member in sorted(withheld):
            self._times[member] += 1
            times = self._times[member]
            if times & (times - 1) == 0:  # the first, second, fourth, eighth time, and so on
                self._news.append(Withheld(member, settlement.subject.round, times))

    def take(self) -> list[Withheld]:
        """Return what people should know since the last call."""
        news, self._news = self._news, []
        return news
