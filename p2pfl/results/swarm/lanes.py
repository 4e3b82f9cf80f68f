"""Activity of each peer over time: one lane a peer, from the same events as its state."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

Doing = Literal["training", "waiting", "offline", "away"]
"""Content of a lane: ``away`` is a peer that is gone, has failed, or sends nothing."""

KEPT_CHANGES = 300
"""Number of last changes that a lane keeps."""

LANE_CONTENT: Mapping[str, Doing] = {
    "learning": "training",
    "waiting": "waiting",
    "offline": "offline",
    "silent": "away",
    "gone": "away",
    "failed": "away",
}
"""Content of a lane by the activity of its peer; nothing before the start, in pauses, and after the end."""


class Stretch(NamedTuple):
    """Time in which a peer did one thing, in seconds since the start of the run."""

    doing: Doing
    began: float
    ended: float


class Lanes:
    """Lanes of all peers.

    Examples
    --------
    >>> lanes = Lanes()
    >>> lanes.note(0.0, "ada", "learning")
    >>> lanes.note(4.0, "ada", "waiting")
    >>> lanes.of("ada", since=1.0, until=6.0)
    [Stretch(doing='training', began=1.0, ended=4.0), Stretch(doing='waiting', began=4.0, ended=6.0)]
    """

    def __init__(self) -> None:
        self._changes: dict[str, deque[tuple[float, Doing | None]]] = {}

    def note(self, at: float, peer: str, activity: str) -> None:
        """Note what a peer does from a time on, or from its last change if that is later."""
        changes, doing = self._changes.setdefault(peer, deque(maxlen=KEPT_CHANGES)), LANE_CONTENT.get(activity)
        last, before = changes[-1] if changes else (at, None)
        if before != doing:
            changes.append((max(last, at), doing))

    def of(self, peer: str, *, since: float, until: float) -> list[Stretch]:
        """Return the stretches of a peer between two times, in order."""
        changes = [*self._changes.get(peer, ()), (until, None)]
        stretches = []
        for (at, doing), (end, _) in pairwise(changes):
            began, ended = max(at, since), min(end, until)
            if doing is not None and ended > began:
                stretches.append(Stretch(doing, began, ended))
        return stretches


def busiest(lanes: Lanes, peers: Sequence[str], *, since: float, until: float, most: int) -> list[str]:
    """Return the peers to show, in the order given: of many, those that lost most time."""
    if len(peers) <= most:
        return [*peers]

    def trained(peer: str) -> float:
        stretches = lanes.of(peer, since=since, until=until)
        lost = sum(each.ended - each.began for each in stretches if each.doing != "training")
        return -lost

    chosen = {*sorted(peers, key=trained)[:most]}
    return [peer for peer in peers if peer in chosen]
