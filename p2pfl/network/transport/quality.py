"""Quality of service at which a broker grants subscriptions, decided from its answers."""

from __future__ import annotations

from collections.abc import Callable


class SubscriptionQuality:
    """Quality of service of the connections of one transport.

    Clusters that replicate what they keep for a client at quality of service 1 refuse subscriptions, or leave them
    without an answer, once a node is gone; at 0 they keep nothing.

    Parameters
    ----------
    qos
        Quality of service that the user wants.
    lowered
        Function that is called with the reason when the transport goes on at 0.

    Attributes
    ----------
    qos
        Quality of service of the next connection.

    Examples
    --------
    >>> quality = SubscriptionQuality(1, print)
    >>> quality.note_silence("no answer")
    >>> quality.qos
    0
    >>> quality.note_answer(0)
    no answer
    """

    def __init__(self, qos: int, lowered: Callable[[str], None]) -> None:
        self.qos = self._wanted = qos
        self._lowered = lowered
        self._trial: str | None = None  # why a connection tries 0, until a broker has answered it

    def note_silence(self, reason: str) -> None:
        """Take that there was no answer: the next connection tries the other quality of service."""
        if self._wanted and (self.qos or self._trial is not None):
            self._trial = reason if self.qos else None
            self.qos = 1 - self.qos

    def note_answer(self, qos: int) -> None:
        """Take that a broker has answered a subscription."""
        if qos == 0 and self._trial is not None:
            self.lower(self._trial)

    def lower(self, reason: str) -> None:
        """Go on at 0 for good."""
        self.qos, self._trial = 0, None
        self._lowered(reason)
