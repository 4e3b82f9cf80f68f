"""Alarms about models that contain masks that did not cancel: pure functions of a round's results, and of events."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import msgspec

from p2pfl.results.notices.kinds import Alarm, LossRose, MasksCancelled, MasksUncancelled, Notice

SPOILED_LOSS_RATIO = 3.0
"""Ratio of the loss to that of the round before from which a model counts as spoiled without a known loss of partners.

Training alone hardly ever has this effect; uncancelled masks multiply the loss by tens.
"""


def find_alarm(
    peer: str,
    lost: Collection[str],
    *,
    round: int,
    deviation: float,
    before: Mapping[str, float] | None,
    now: Mapping[str, float],
    best: tuple[int, str | None] | None,
) -> Alarm | None:
    """Return an alarm if the models of a round contain masks that did not cancel.

    Parameters
    ----------
    peer
        Peer that looks.
    lost
        Mask partners that sent nothing in the round: they shared masks with this peer and did not send their half.
    round
        Round number, from 0.
    deviation
        Standard deviation of the noise that the masks of one partner leave in a parameter of the average.
    before, now
        Scores of the peer after the round before and after this one; ``None`` if there was none before.
    best
        Round of the best model, if one is kept, and its file, if it has one.

    Returns
    -------
    MasksUncancelled, LossRose or None
        ``None`` if nothing is wrong.

    Examples
    --------
    >>> before, now = {"accuracy": 0.97, "loss": 0.1}, {"accuracy": 0.29, "loss": 28.0}
    >>> find_alarm("ada", [], best=None, round=3, deviation=0.33, before=before, now=before) is None
    True
    >>> alarm = find_alarm("ada", ["bob"], best=None, round=3, deviation=0.33, before=before, now=now)
    >>> alarm.partners, alarm.deviation
    (('bob',), 0.33)
    """
    if not lost and not _tripled(before, now):
        return None
    best_round, best_file = best or (None, None)
    scores = (None if before is None else dict(before)), dict(now)
    if not lost:
        return LossRose(
            peer=peer, round=round, before=scores[0], now=scores[1], best_round=best_round, best_file=best_file
        )
    return MasksUncancelled(
        peer=peer,
        round=round,
        partners=tuple(sorted(lost)),
        before=scores[0],
        now=scores[1],
        best_round=best_round,
        best_file=best_file,
        deviation=deviation * math.sqrt(len(lost)),
    )


def alarms_among(events: Iterable[Notice]) -> tuple[MasksUncancelled | LossRose, ...]:
    """Return the alarms among events, each with whether all its masks have cancelled since.

    An alarm without partners never counts as cancelled, because nobody knows whose masks caused it.

    Examples
    --------
    >>> alarm = MasksUncancelled(peer="ada", round=3, partners=("bob",), now={}, deviation=0.3)
    >>> over = MasksCancelled(peer="ada", round=3, partners=("bob",))
    >>> [alarm.cancelled for alarm in alarms_among([alarm])], [alarm.cancelled for alarm in alarms_among([alarm, over])]
    ([False], [True])
    """
    alarms: list[tuple[MasksUncancelled | LossRose, set[str]]] = []  # and partners whose masks are left
    of_round: dict[tuple[str, int], list[set[str]]] = {}
    for event in events:
        match event:
            case MasksUncancelled() | LossRose():
                alarms.append((event, {*event.partners}))
                of_round.setdefault((event.peer, event.round), []).append(alarms[-1][1])
            case MasksCancelled():
                for left in of_round.get((event.peer, event.round), ()):
                    left -= {*event.partners}
            case _:
                pass
    return tuple(msgspec.structs.replace(alarm, cancelled=bool(alarm.partners) and not left) for alarm, left in alarms)


def _tripled(before: Mapping[str, float] | None, now: Mapping[str, float]) -> bool:
    if before is None or "loss" not in before or "loss" not in now:
        return False
    return (
        not math.isnan(before["loss"]) and not now["loss"] <= SPOILED_LOSS_RATIO * before["loss"]
    )  # the first NaN counts
