"""Notices of the neighbours of a peer: their keys, names and releases, and who is missing."""

from __future__ import annotations

from p2pfl.results.notices.kinds import Notice


class KeyTrusted(Notice, frozen=True, kw_only=True):
    """The key of a neighbour is trusted because it is the first that was seen.

    Attributes
    ----------
    neighbour
    key
        Fingerprint.
    """

    neighbour: str
    key: str


class NameShared(Notice, frozen=True, kw_only=True):
    """Another peer answers to the name of this one.

    Attributes
    ----------
    key
        Its fingerprint.
    own
        The peer's fingerprint.
    """

    key: str
    own: str


class VersionDiffers(Notice, frozen=True, kw_only=True):
    """A neighbour runs another release of p2pfl.

    Attributes
    ----------
    neighbour
    theirs
        Empty if it announces none.
    ours
    """

    neighbour: str
    theirs: str
    ours: str


class PeerExcluded(Notice, frozen=True, kw_only=True):
    """A neighbour signed two different messages for one gossip step and was excluded.

    Attributes
    ----------
    neighbour
    key
        Fingerprint.
    signed
        Kind of statement.
    round, step
    proof
        File with the proof.
    """

    severity = "alarm"

    neighbour: str
    key: str
    signed: str
    round: int
    step: int
    proof: str | None = None


class ModelsRefused(Notice, frozen=True, kw_only=True):
    """Models of a neighbour were not used, because their size or numbers are not those of this run.

    Attributes
    ----------
    neighbour
    round
        First such round.
    """

    neighbour: str
    round: int


class NeighboursMissing(Notice, frozen=True, kw_only=True):
    """Neighbours did not come at the end of a run; the peer has played all rounds and goes on.

    Attributes
    ----------
    absent
        Never came.
    gone
        Left.
    message
    """

    absent: tuple[str, ...]
    gone: tuple[str, ...]
    message: str


class PartnersAwaited(Notice, frozen=True, kw_only=True):
    """A release waits for mask partners.

    Attributes
    ----------
    partners
    seconds
        Longest wait.
    """

    severity = "info"

    partners: tuple[str, ...]
    seconds: float
