"""Retries: pauses between attempts and deadlines, decided without an event loop; the caller passes the time."""

from dataclasses import dataclass
from hashlib import blake2b

DOUBT = 2.0
"""Seconds within which a lost channel may return, because a broker publishes all wills when it shuts down orderly."""

RETURN = 20.0
"""Seconds within which other peers return after a restart of the broker; more than two of the longest pauses."""

STEADY = 1.0
"""Seconds after which a connection counts as steady, and its next loss as the first."""


@dataclass(frozen=True)
class Backoff:
    r"""Pauses that double from one failure to the next, each somewhere in its upper half.

    After n failures in a row the pause is

    .. math:: \min(l, f 2^n) (1 + u) / 2,

    with u in [0, 1) drawn from the name and n, so that a thousand peers do not return at the same moment (after
    "equal jitter" in M. Brooker, Exponential Backoff and Jitter, AWS Architecture Blog 2015).

    Parameters
    ----------
    first, largest
        f and l, in seconds.
    outage
        Timeout in seconds after which to give up; 0 to try once.

    Examples
    --------
    >>> [round(Backoff().pause("ada", failures), 2) for failures in (0, 1, 2, 3, 9)]
    [0.15, 0.33, 0.74, 1.15, 7.85]
    """

    first: float = 0.25
    largest: float = 8.0
    outage: float = 600.0

    def pause(self, name: str, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row."""
        bound = min(self.largest, self.first * 2.0 ** min(failures, 64))
        digest = blake2b(f"{name}/{failures}".encode(), digest_size=8).digest()
        return bound * (1 + int.from_bytes(digest) / 2**64) / 2


class RetrySchedule:
    """Schedule of repeated attempts at one operation, with a deadline.

    Parameters
    ----------
    backoff
        Pauses and timeout.
    name
        Name of the channel.
    now
        Start of the first attempt, in seconds of any clock.

    Examples
    --------
    >>> attempts = RetrySchedule(Backoff(outage=1.0), "ada", now=10.0)
    >>> round(attempts.pause(10.0), 2), round(attempts.pause(10.9), 2), attempts.pause(11.0)
    (0.15, 0.1, None)
    """

    def __init__(self, backoff: Backoff, name: str, *, now: float) -> None:
        self.backoff = backoff
        self.name = name
        self.failures = 0
        self._deadline = now + backoff.outage

    def pause(self, now: float) -> float | None:
        """Count a failed attempt; return the seconds until the next one, the last at the deadline, or None after it."""
        left = self._deadline - now
        if left <= 0:
            return None
        pause = min(left, self.backoff.pause(self.name, self.failures))
        self.failures += 1
        return pause


class Outages:
    """Record of the outages of one channel.

    Parameters
    ----------
    backoff
        Pauses and timeout.
    name
        Name of the channel.
    now
        Time of the first connection, in seconds of any clock.
    """

    def __init__(self, backoff: Backoff, name: str, *, now: float) -> None:
        self.backoff = backoff
        self.name = name
        self.count = 0
        self._failures = 0
        self._total = 0.0
        self._joined = now
        self._lost: float | None = None  # time of the loss, None while connected
        self._trouble: float | None = None  # time since which there has been no steady connection

    def lost(self, now: float, *, since: float | None = None) -> None:
        """Record a loss; ``since`` is the last time at which the connection is known to have worked."""
        if self._lost is not None:
            return
        self.count += 1
        if now - self._joined > max(STEADY, self.backoff.pause(self.name, self._failures)):
            self._failures, self._trouble = 0, None
        elif self._trouble is not None:
            self._failures += 1
        self._lost = max(self._joined, now if since is None else since)
        self._trouble = self._lost if self._trouble is None else self._trouble

    def note_failure(self) -> None:
        """Record a failed attempt."""
        self._failures += 1

    def note_connection(self, now: float) -> None:
        """Record a new connection."""
        if self._lost is not None:
            self._total += now - self._lost
        self._lost, self._joined = None, now

    @property
    def pause(self) -> float:
        """Return the seconds to wait before the next attempt."""
        return self.backoff.pause(self.name, self._failures)

    def hopeless(self, now: float) -> bool:
        """Return whether there has been no steady connection for longer than the timeout."""
        if self._trouble is None:
            return False
        return not self.backoff.outage or now - self._trouble > self.backoff.outage

    def away(self, now: float) -> float:
        """Return the total seconds without a connection so far."""
        return self._total + (0.0 if self._lost is None else now - self._lost)

    def grace(self, now: float) -> float:
        """Return the seconds within which other lost channels may return; longer while they may be reconnecting."""
        return RETURN if self.count and now - self._joined < RETURN else DOUBT
