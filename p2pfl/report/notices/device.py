"""Notices of what is around a peer: the broker, the clock and the disk of its device."""

from __future__ import annotations

from p2pfl.report.notices.kinds import Notice


class BrokerUnavailable(Notice, frozen=True, kw_only=True):
    """A peer waits for the broker.

    Attributes
    ----------
    message
        Message of the error.
    seconds
        Longest time that it retries; null without a limit.
    """

    message: str
    seconds: float | None


class PasswordExposed(Notice, frozen=True, kw_only=True):
    """A password travels unencrypted.

    Attributes
    ----------
    brokers
        Addresses of the brokers.
    """

    brokers: tuple[str, ...]


class ClockBehind(Notice, frozen=True, kw_only=True):
    """The clock of the device is behind the last start of the peer.

    Attributes
    ----------
    seconds
        By how much.
    key
        Fingerprint of the key of that start if it is another one; null otherwise.
    """

    seconds: int
    key: str | None = None


class AnnouncementAhead(Notice, frozen=True, kw_only=True):
    """The broker retains an announcement under the peer's name that is more than 80 years ahead of the clock.

    Attributes
    ----------
    key
        Fingerprint of the key of that announcement.
    topic
        Topic of the retained message.
    """

    key: str
    topic: str


class CheckpointDamaged(Notice, frozen=True, kw_only=True):
    """A checkpoint could not be used and was removed.

    Attributes
    ----------
    file
        Path of the checkpoint.
    message
        Message of the error.
    previous
        True if an earlier checkpoint is tried in its place.
    """

    file: str
    message: str
    previous: bool


class BestModelDamaged(Notice, frozen=True, kw_only=True):
    """The file of the best model cannot be read.

    Attributes
    ----------
    file
        Path of the model.
    message
        Message of the error.
    """

    file: str
    message: str


class SecretsRecorded(Notice, frozen=True, kw_only=True):
    """The run is recorded with all secrets of the peer.

    Attributes
    ----------
    file
        Path of the recording.
    """

    file: str
