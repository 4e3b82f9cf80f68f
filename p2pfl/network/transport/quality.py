"""Quality of service at which a broker grants subscriptions, decided from its answers."""

from __future__ import annotations

from collections.abc import Callable

SILENT_CONNECTIONS = 2
"""Connections in a row without an answer at quality of service 1, after which one tries 0."""


class SubscriptionQuality:
    """Quality of service of the connections of one transport.

    Clusters that replicate what they keep for a client at quality of service 1 refuse subscriptions, or leave them
    without an answer, once a node is gone; at 0 they keep nothing. One late answer is no such case: two connections
    in a row must be silent at 1 before one tries 0, and a broker that has ever granted 1 is asked for it by the next.

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
    1
    >>> quality.note_silence("no answer")
    >>> quality.qos
    0
    >>> quality.note_grant(0)
    no answer
    """

    def __init__(self, qos: int, lowered: Callable[[str], None]) -> None:
        self.qos = self._wanted = qos
        self._lowered = lowered
        self._silent = 0  # connections in a row without an answer at 1
        self._granted = False  # whether this broker has granted a subscription at 1
        self._trial: str | None = None  # why a connection tries 0, until a broker has granted it

    def note_silence(self, reason: str) -> None:
        """Take that there was no answer, which ends the connection: after the second one at 1 the next tries 0."""
        if self.qos:
            self._silent += 1
            if self._silent >= SILENT_CONNECTIONS:
                self.qos, self._trial = 0, reason
        elif self._trial is not None:  # it is not the quality of service
            self.qos, self._silent, self._trial = 1, 0, None

    def note_grant(self, qos: int) -> None:
        """Take that a broker has granted subscriptions."""
        if qos:
            self._granted, self._silent = True, 0
        elif self._trial is not None:
            reason, again = self._trial, self._granted
            self.lower(reason)
            if again:
                self.qos, self._silent = self._wanted, 0

    def lower(self, reason: str) -> None:
        """Go on at 0 for good."""
        self.qos, self._trial = 0, None
        self._lowered(reason)
