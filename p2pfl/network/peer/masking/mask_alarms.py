"""Tell people when masks that did not cancel are in the models, and when these have cancelled after all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from p2pfl.network.protocol.ledgers.payments import Mask
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.results.notices.alarms import find_alarm
from p2pfl.results.notices.kinds import MasksCancelled, Notice


@dataclass
class Alarms:
    """Alarms of one peer.

    Parameters
    ----------
    peer
        Name of the peer.
    notify
        Called with each alarm, and with a notice when its masks have cancelled; nothing is looked at without it.
    """

    peer: str
    notify: Callable[[Notice], None] | None
    _open: dict[tuple[str, Slot], int] = field(default_factory=dict)  # the round of an alarm, by partner and release
    _scores: Mapping[str, float] | None = None  # after the last round

    def look(
        self,
        lost: Collection[str],
        *,
        slot: Slot | None,
        round: int,
        scores: Mapping[str, float],
        deviation: Callable[[], float],
        best: tuple[int, str | None] | None,
    ) -> None:
        """Raise an alarm if masks that did not cancel are in the models of a round.

        Parameters
        ----------
        lost
            Mask partners of which nothing came, as in :func:`p2pfl.results.notices.alarms.find_alarm`.
        slot
            Of the peer's release in this round.
        round, best
            As in :func:`p2pfl.results.notices.alarms.find_alarm`.
        scores
            After the round.
        deviation
            Computes what the masks of one of them leave in a parameter of the average.
        """
        before, self._scores = self._scores, scores
        if self.notify is None:
            return
        noise = deviation() if lost else 0.0
        alarm = find_alarm(self.peer, lost, round=round, deviation=noise, before=before, now=scores, best=best)
        if alarm is not None:
            self.notify(alarm)
        if slot is not None:
            self._open |= {(partner, slot): round for partner in lost}

    def settle(self, uncancelled: Collection[Mask]) -> None:
        """Say which masks of earlier alarms are not among those that may be uncancelled.

        Parameters
        ----------
        uncancelled
            Of :meth:`p2pfl.network.protocol.ledgers.mask_ledger.MaskLedger.list_uncancelled`.
        """
        if self.notify is None or not self._open:
            return
        left = {(end, mask.slot) for mask in uncancelled for end in mask.edge if end != self.peer}
        for partner, slot in sorted(self._open.keys() - left):
            round = self._open.pop((partner, slot))
            self.notify(MasksCancelled(peer=self.peer, round=round, partners=(partner,)))
