"""Notices of the neighbours of a peer: their keys, names and releases, and who is missing."""

from __future__ import annotations

from p2pfl.report.notices.kinds import Notice


class KeyTrusted(Notice, frozen=True, kw_only=True):
    """The key of a neighbour is trusted because it is the first that was seen.

    Attributes
    ----------
    neighbour
        Name of the neighbour.
    key
        Fingerprint of its public key.
    """

    neighbour: str
    key: str


class NameShared(Notice, frozen=True, kw_only=True):
    """Another peer answers to the name of this one.

    Attributes
    ----------
    key
        Fingerprint of its public key.
    own
        Fingerprint of the peer's own public key.
    """

    key: str
    own: str


class VersionDiffers(Notice, frozen=True, kw_only=True):
    """A neighbour runs another release of p2pfl.

    Attributes
    ----------
    neighbour
        Name of the neighbour.
    theirs
        Release that it announces, escaped; empty if it announces none.
    ours
        Release of this peer.
    """

    neighbour: str
    theirs: str
    ours: str


class PeerExcluded(Notice, frozen=True, kw_only=True):
    """A neighbour signed two different messages for one gossip step and was excluded.

    Attributes
    ----------
    neighbour
        Name of the neighbour.
    key
        Fingerprint of its public key.
    signed
        Kind of statement that it signed twice.
    round
        Round, counted from 0.
    step
        Gossip step in the round, counted from 0.
    proof
        File with the proof; null if none is kept.
    """

    severity = "alarm"

    neighbour: str
    key: str
    signed: str
    round: int
    step: int
    proof: str | None = None


class ModelsRefused(Notice, frozen=True, kw_only=True):
    """Models of a neighbour arrived and were not used, because their size or numbers are not those of this run.

    Attributes
    ----------
    neighbour
        Name of the neighbour.
    round
        Round of the first one, counted from 0.
    """

    neighbour: str
    round: int


class NeighboursMissing(Notice, frozen=True, kw_only=True):
    """Neighbours did not come at the end of a run, which a peer that has played all rounds can do without.

    Attributes
    ----------
    absent
        Neighbours that never came.
    gone
        Neighbours that left.
    message
        Message of the error.
    """

    absent: tuple[str, ...]
    gone: tuple[str, ...]
    message: str


class PartnersAwaited(Notice, frozen=True, kw_only=True):
    """A release waits for mask partners.

    Attributes
    ----------
    partners
        Names of the partners.
    seconds
        Longest time that it waits.
    """

    severity = "info"

    partners: tuple[str, ...]
    seconds: float
