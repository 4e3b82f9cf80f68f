"""Rate limit on the messages of one sender."""

from __future__ import annotations

RATE = 2000.0
"""Messages a second of one sender that are looked at, all its topics together; rows come in far fewer."""

BURST = 4000.0
"""Messages at once: ten times what all its windows may have under way."""


class Allowance:
    r"""A token bucket for each sender, so that a flood costs no more than its sender's share.

    What is not authentic counts against no sender, see :meth:`p2pfl.network.protocol.session.shared.Shared.admit`.

    A sender has :math:`b \leftarrow \min(B, b + r\,\Delta t)` tokens and each message takes one. What exceeds
    them is dropped unread; a stream asks again for what was lost in that way.

    Parameters
    ----------
    rate, burst
        r a second, and B.

    Examples
    --------
    >>> allowance = Allowance(rate=1.0, burst=2.0)
    >>> [allowance.take("eve", now=0.0) for _ in range(3)], allowance.take("ada", now=0.0)
    ([True, True, False], True)
    >>> allowance.take("eve", now=1.0)
    True
    """

    def __init__(self, *, rate: float = RATE, burst: float = BURST) -> None:
        self.rate = rate
        self.burst = burst
        self._left: dict[str, tuple[float, float]] = {}  # by sender: tokens, and when they were counted

    def take(self, sender: str, *, now: float) -> bool:
        """Return whether one more message of the sender is to be read at this time, in seconds."""
        tokens, counted = self._left.get(sender, (self.burst, now))
        tokens = min(self.burst, tokens + self.rate * (now - counted))
        allowed = tokens >= 1
        self._left[sender] = tokens - allowed, now
        return allowed
