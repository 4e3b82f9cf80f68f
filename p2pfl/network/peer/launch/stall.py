"""Detection of a peer that has waited for long, from one look at it to the next."""

from __future__ import annotations

from dataclasses import replace

from p2pfl.network.peer.updates import Progress


class Stall:
    """Time that a peer has waited in the same gossip step.

    Parameters
    ----------
    after
        Seconds of waiting after which the peer counts as stalled.

    Examples
    --------
    >>> stall, waits = Stall(after=1.0), Progress("ada", "learning", 3, ("bob",))
    >>> [stall.seen(waits, step=(3, 0), now=now).stalled for now in (0.0, 0.5, 1.0)]
    [False, False, True]
    >>> stall.seen(waits, step=(3, 1), now=1.5).stalled
    False
    """

    def __init__(self, *, after: float) -> None:
        self._after = after
        self._place: tuple[str, tuple[int, int]] | None = None  # phase and gossip step of the wait
        self._since = 0.0

    def seen(self, progress: Progress, *, step: tuple[int, int], now: float) -> Progress:
        """Return what the peer does, with ``stalled`` set if it has waited long enough.

        Parameters
        ----------
        progress
            Present activity of the peer.
        step
            Round and gossip step that it is in.
        now
            Time in seconds.
        """
        place = (progress.phase, step) if progress.waiting or not progress.connected else None
        if place != self._place:
            self._place, self._since = place, now
        return replace(progress, stalled=place is not None and now - self._since >= self._after)
