"""Alarms that a person must see at once, with a remedy: pure functions of the results of a round."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

TRIPLED = 3.0
"""Ratio of the loss to that of the round before from which a model counts as spoiled without a known loss of partners.

Training alone hardly ever has this effect; uncancelled masks multiply the loss by tens.
"""


def spoiled(
    lost: Collection[str],
    *,
    round: int,
    deviation: float,
    before: Mapping[str, float] | None,
    now: Mapping[str, float],
    best: tuple[int, str] | None,
) -> str | None:
    """Return an alarm if the models of a round contain masks that did not cancel.

    Parameters
    ----------
    lost
        Mask partners that sent nothing in the round: they shared masks with this peer and did not send their half.
    round
        Round number, from 0.
    deviation
        Standard deviation of the noise that the masks of one partner leave in a parameter of the average.
    before, now
        Scores of the peer after the round before and after this one; ``None`` if there was none before.
    best
        Round and file of the best model so far, if one is kept.

    Returns
    -------
    str or None
        Event with its figures, and the remedy.

    Examples
    --------
    >>> before, now = {"accuracy": 0.97, "loss": 0.1}, {"accuracy": 0.29, "loss": 28.0}
    >>> how = {"round": 605, "deviation": 0.33, "before": before, "now": now}
    >>> alarm = spoiled(["peer1"], best=(600, "peers/peer0.best.safetensors"), **how)
    >>> "nothing came from peer1 in round 606" in alarm, "accuracy 0.970 before, 0.290 now" in alarm
    (True, True)
    >>> "if it has ended, start it with --resume" in alarm, "round 601, in peers/peer0.best.safetensors" in alarm
    (True, True)
    >>> spoiled([], best=None, round=3, deviation=0.33, before=before, now=before) is None
    True
    """
    if not lost and not _tripled(before, now):
        return None
    if lost:
        what, cure = _uncancelled(sorted(lost), round=round, deviation=deviation)
    else:
        what = f"the loss rose steeply in round {round + 1}; the models may contain masks of a peer that disappeared"
        cure = "Find the peer that disappeared, and start it with --resume while the others run"
    scores = f" ({_changes(before, now)})" if before else ""
    kept = "" if best is None else f"; the best model so far is that of round {best[0] + 1}, in {best[1]}"
    return f"ALARM: {what}{scores}. {cure}{kept}; a smaller privacy.mask limits such damage, and hides less"


def cancelled(partner: str, *, round: int) -> str:
    """Return the sentence that the masks of an alarm have cancelled.

    Examples
    --------
    >>> cancelled("peer1", round=11)
    'masks of peer1 are cancelled: what was missing in round 12 no longer moves the mean of the models'
    """
    said = f"what was missing in round {round + 1} no longer moves the mean of the models"
    return f"masks of {partner} are cancelled: {said}"


def _uncancelled(lost: Sequence[str], *, round: int, deviation: float) -> tuple[str, str]:
    """Return what happened in a round in which mask partners were lost, and the way back."""
    names, one = ", ".join(lost), len(lost) == 1
    who, are, have, them = ("it", "is", "has", "it") if one else ("they", "are", "have", "them")
    noise = f"noise of deviation {deviation * math.sqrt(len(lost)):.2g}"
    what = (
        f"nothing came from {names} in round {round + 1}, so the masks that {who} shared did not cancel: they leave "
        f"{noise} in the models"
    )
    cure = (
        f"If {names} {are} only slow, or offline for a while, the masks cancel when {who} {are} received again; if "
        f"{who} {have} ended, start {them} with --resume while the others run. This peer says when they are cancelled"
    )
    return what, cure


def _tripled(before: Mapping[str, float] | None, now: Mapping[str, float]) -> bool:
    if before is None or "loss" not in before or "loss" not in now:
        return False
    return not math.isnan(before["loss"]) and not now["loss"] <= TRIPLED * before["loss"]  # the first NaN counts


def _changes(before: Mapping[str, float], now: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {before[name]:.3f} before, {now[name]:.3f} now" for name in now if name in before)
