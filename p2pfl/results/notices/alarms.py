"""Alarms about models under masks that got much worse: pure functions of a round's results, and of events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from p2pfl.results.notices.kinds import LossRose, Notice

SPOILED_LOSS_RATIO = 3.0
"""Ratio of the loss to that of the round before from which a model counts as spoiled.

Training alone hardly ever has this effect; uncancelled masks multiply the loss by tens.
"""


def find_alarm(
    peer: str,
    *,
    round: int,
    before: Mapping[str, float] | None,
    now: Mapping[str, float],
    best: tuple[int, str | None] | None,
) -> LossRose | None:
    """Return an alarm if the models of a round are much worse than those before; ``None`` if they are not.

    Parameters
    ----------
    peer
        Peer that looks.
    round
        Round number, from 0.
    before, now
        Scores of the peer after the round before and after this one; ``None`` if there was none before.
    best
        Round of the best model, if one is kept, and its file, if it has one.

    Examples
    --------
    >>> before, now = {"accuracy": 0.97, "loss": 0.1}, {"accuracy": 0.29, "loss": 28.0}
    >>> find_alarm("ada", best=None, round=3, before=before, now=before) is None
    True
    >>> find_alarm("ada", best=None, round=3, before=before, now=now).round
    3
    """
    if not _tripled(before, now):
        return None
    best_round, best_file = best or (None, None)
    earlier = None if before is None else dict(before)
    return LossRose(peer=peer, round=round, before=earlier, now=dict(now), best_round=best_round, best_file=best_file)


def alarms_among(events: Iterable[Notice]) -> tuple[LossRose, ...]:
    """Return the alarms among events.

    Examples
    --------
    >>> [alarm.round for alarm in alarms_among([LossRose(peer="ada", round=3, now={})])]
    [3]
    """
    return tuple(event for event in events if isinstance(event, LossRose))


def _tripled(before: Mapping[str, float] | None, now: Mapping[str, float]) -> bool:
    if before is None or "loss" not in before or "loss" not in now:
        return False
    return (
        not math.isnan(before["loss"]) and not now["loss"] <= SPOILED_LOSS_RATIO * before["loss"]
    )  # the first NaN counts
