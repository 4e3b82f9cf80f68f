"""Alarms about models under masks whose loss rises steeply: a member may have left half of its masks in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from p2pfl.results.notices.alarms import find_alarm
from p2pfl.results.notices.kinds import Notice


@dataclass
class Alarms:
    """Alarms of one peer.

    Parameters
    ----------
    peer
        Name of the peer.
    notify
        Called with each alarm; nothing is looked at without it.
    """

    peer: str
    notify: Callable[[Notice], None] | None
    _scores: Mapping[str, float] | None = None  # after the last round

    def look(self, *, round: int, scores: Mapping[str, float], best: tuple[int, str | None] | None) -> None:
        """Raise an alarm if the loss rose steeply in a round.

        Parameters
        ----------
        round, best
            As in :func:`p2pfl.results.notices.alarms.find_alarm`.
        scores
            After the round.
        """
        before, self._scores = self._scores, scores
        if self.notify is None:
            return
        alarm = find_alarm(self.peer, round=round, before=before, now=scores, best=best)
        if alarm is not None:
            self.notify(alarm)
