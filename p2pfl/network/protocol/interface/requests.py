"""Requests of the peer, which a session handles as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from p2pfl.network.protocol.ledgers.page import Page, Rows
from p2pfl.network.protocol.wire.wire_rows import Encoded
from p2pfl.privacy.total_masks import Ring
from p2pfl.topology import Tree

GossipStep = tuple[int, int]
"""Round, and gossip step within it."""


@dataclass(frozen=True)
class Enter:
    """Request to subscribe, check that the name is free, and announce this peer; answered by ``Entered``.

    Parameters
    ----------
    limit
        Size in bytes of the largest payload that the channel accepts.
    grace
        See :class:`~p2pfl.network.protocol.interface.events.Tick`.
    """

    limit: int
    grace: float = 0.0


@dataclass(frozen=True)
class Gather:
    """Request to wait for the neighbours; answered by ``Gathered``.

    Parameters
    ----------
    quorum
        Share of the neighbours that must be present before the peer begins.
    within
        Timeout in seconds.
    together
        True if the peer begins only with all neighbours, none of which has begun without it.
    """

    quorum: float
    within: float
    together: bool = False


@dataclass(frozen=True)
class Resume:
    """Request to continue with the ledgers of a checkpoint.

    Models from before ``round`` that the ledgers do not contain are never applied. ``late`` is true if others have
    played rounds since the checkpoint.
    """

    page: Page
    rows: Rows
    round: int
    late: bool = False


@dataclass(frozen=True)
class Begin:
    """Request to participate from this round on."""

    first: int


@dataclass(frozen=True)
class Tolerate:
    """Request to decide from now on which neighbours to wait for.

    Parameters
    ----------
    quantile
        Quantile of the neighbours' times beyond which a slow neighbour is left behind; 1 leaves no neighbour behind.
        With ``None``, every peer must receive every model, and no neighbour is suspected either.
    """

    quantile: float | None


@dataclass(frozen=True)
class Turn:
    """Request to begin the training of a round."""

    round: int


@dataclass(frozen=True)
class Pause:
    """Request to state in heartbeats, which are rare meanwhile, that this peer pauses before a round; 0 ends it.

    Parameters
    ----------
    seconds
        Seconds until the round begins.
    """

    seconds: float


@dataclass(frozen=True)
class Open:
    """Request to begin a gossip step, with the neighbours whose models are needed in it, in order.

    Parameters
    ----------
    since
        Round in which a neighbour must already have taken part for this peer to wait for it.
    """

    gossip_step: GossipStep
    senders: tuple[str, ...]
    since: int


@dataclass(frozen=True)
class Offer:
    """Request to send the model of the current gossip step; answered by ``Sent`` once the previous one is on its way.

    Parameters
    ----------
    model
        Encoded model.
    phase
        Phase of the schedule whose listeners receive the model.
    newest
        True if the model is skipped while the previous one is not on its way yet.
    """

    model: Encoded
    phase: int
    newest: bool = False


@dataclass(frozen=True)
class Expect:
    """Request to wait for a neighbour's model of the current gossip step; answered by ``Deliver`` or ``Missing``.

    Parameters
    ----------
    keep
        True if the model stays in the mailbox, so that it can be expected again.
    """

    sender: str
    keep: bool = False


@dataclass(frozen=True)
class Collect:
    """Request for the newest model received from each neighbour; answered by ``Collected`` at once."""


@dataclass(frozen=True)
class Reject:
    """Request to count a model as missing that was delivered but cannot be used."""

    sender: str
    fault: str


@dataclass(frozen=True)
class Close:
    """Request to end the current gossip step."""


@dataclass(frozen=True)
class Convene:
    """Request to agree on the participants of a round's totals; answered by ``Convened`` or ``Unfinished``.

    If the last attempt at this round has failed, this request begins the next one.

    Parameters
    ----------
    round
        See :class:`p2pfl.privacy.total_masks.TotalSlot`.
    """

    round: int


@dataclass(frozen=True)
class Contribute:
    """Request to contribute to the next total of the attempt; answered by ``Totalled`` or ``Unfinished``.

    Parameters
    ----------
    values
        Masked contribution, ``[K]`` in the ring; zeros of the recipient if it contributes nothing.
    to
        Tree in which the total moves to its root, the one peer that obtains it; a peer that is not in the tree goes on
        at once. ``None`` if all participants obtain the total.
    """

    values: Ring
    to: Tree | None = None


@dataclass(frozen=True)
class Try:
    """Request to begin an attempt at a round, before anything of it is sent.

    Parameters
    ----------
    round, attempt
        Round, and number of the attempt, which grows during the run.
    members
        Peers that take part in the attempt, sorted, this one among them.
    """

    round: int
    attempt: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class ReportAttempt:
    """Request to report the end of the attempt to its members; answered by ``Concluded`` or ``Undecided``.

    Parameters
    ----------
    complete
        True if this peer has received every model of the attempt.
    incarnations
        Digest of the members' incarnations that this peer knew when it chose its masks.
    """

    complete: bool
    incarnations: bytes = b""


@dataclass(frozen=True)
class Join:
    """Request to be a member of the rounds that the others play; answered by ``Admitted`` or ``Undecided``."""


@dataclass(frozen=True)
class NextRound:
    """Request to choose the round to play after this one; answered by ``Play`` at once.

    Parameters
    ----------
    apart
        Number of rounds that neighbours may be ahead although they wait for this peer.
    last
        Last round of the run, which every peer plays.
    """

    apart: int
    last: int


@dataclass(frozen=True)
class Finish:
    """Request to promise that flows are final, or that no release follows, and to wait for the promise of all partners.

    Answered by ``Settled``.
    """

    about: Literal["releases", "flows"]


@dataclass(frozen=True)
class Stop:
    """Request to promise that both ledgers are final, without waiting for partners; answered by ``Settled``."""


@dataclass(frozen=True)
class Leave:
    """Request to wait until all sent messages have arrived and then to send a goodbye; answered by ``Left``.

    Parameters
    ----------
    done
        True if all rounds were played.
    until
        Time at which to leave even if some messages have not arrived.
    """

    done: bool
    until: float


Request = (
    Enter
    | Gather
    | Resume
    | Begin
    | Tolerate
    | Turn
    | Pause
    | Open
    | Offer
    | Expect
    | Collect
    | Reject
    | Close
    | Convene
    | Contribute
    | Try
    | ReportAttempt
    | Join
    | NextRound
    | Finish
    | Stop
    | Leave
)
"""Request of the peer."""
