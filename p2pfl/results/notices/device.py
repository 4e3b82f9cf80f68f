"""Notices of what is around a peer: the broker, the clock and the disk of its device."""

from __future__ import annotations

from p2pfl.results.notices.kinds import Notice


class BrokerUnavailable(Notice, frozen=True, kw_only=True):
    """A peer waits for the broker.

    Attributes
    ----------
    message
    seconds
        Longest time that it retries.
    """

    message: str
    seconds: float | None


class PasswordExposed(Notice, frozen=True, kw_only=True):
    """A password travels unencrypted.

    Attributes
    ----------
    brokers
        Addresses.
    """

    brokers: tuple[str, ...]


class ClockBehind(Notice, frozen=True, kw_only=True):
    """The clock of the device is behind the last start of the peer.

    Attributes
    ----------
    seconds
        By how much.
    key
        Fingerprint of the key of that start if it is another one.
    """

    seconds: int
    key: str | None = None


class AnnouncementAhead(Notice, frozen=True, kw_only=True):
    """The broker retains an announcement under the peer's name more than 80 years ahead of the clock.

    Attributes
    ----------
    key
        Fingerprint of its key.
    topic
        Of the retained message.
    """

    key: str
    topic: str


class CheckpointDamaged(Notice, frozen=True, kw_only=True):
    """A checkpoint could not be used and was removed.

    Attributes
    ----------
    file, message
    previous
        Whether an earlier one is tried.
    """

    file: str
    message: str
    previous: bool


class BestModelDamaged(Notice, frozen=True, kw_only=True):
    """The file of the best model cannot be read.

    Attributes
    ----------
    file, message
    """

    file: str
    message: str
