"""Announcement, membership and session of a peer, from the plan of its experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import p2pfl
from p2pfl.algorithms import count_extra
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import Plan
from p2pfl.network.peer.masking.mask_cover import kept_by
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.peer.storage.writer import Keeper
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.incoming.plausible import AFTER
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.session.shared import Decider
from p2pfl.network.protocol.session.streams import arrive_singly
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_rows import row_bytes
from p2pfl.privacy.keys import SecretSource, Source, Trust
from p2pfl.privacy.secagg.in_process import partners


def check_remembering(plan: Plan, source: Source, store: CheckpointStore | None) -> None:
    """Refuse to vote on releases if the peer would forget its votes when it restarts; simulated peers never do."""
    if plan.decided and store is None and isinstance(source, SecretSource):
        raise ExperimentError(
            "privacy.departures needs a peer that keeps its votes on the disk, because one that restarts without them "
            "could vote twice; give Peer a store, or leave privacy.departures out"
        )


def announced(
    name: str, facts: Mapping[str, Any], public: tuple[bytes, bytes], keeper: Keeper, *, rounds: list[int]
) -> Announcement:
    """Return the announcement of this incarnation.

    Parameters
    ----------
    name, facts
        Name of the peer, and what all peers must agree on.
    public
        Public keys, of the exchange and of the identity.
    keeper
        What earlier incarnations left on the disk.
    rounds
        Rounds with which the peer can continue.
    """
    journal = keeper.journal
    used = max([journal.until[0], *(each.release.attempt for each in journal.verdicts)])
    attempt = used + 1 if rounds and not journal.over else 0
    return Announcement(
        name,
        journal.incarnation,
        "up",
        {**facts},
        *public,
        rounds=rounds,
        attempt=attempt,
        version=p2pfl.__version__,
        nonce=keeper.nonce,
    )


def membership_of(plan: Plan, me: Announcement, *, trust: Trust) -> Membership:
    """Return the membership of a peer, which knows of no announcement yet.

    With secure sums a peer also knows the other neighbours of its receivers, with which it masks; where the members of
    a round commit it together, it knows all peers.
    """
    name = me.peer
    around = {*plan.topology.neighbours(name), *(plan.protection.graph.neighbours(name) if plan.masked else ())}
    if plan.protection.sums is not None:
        around |= {*partners(plan.weights[0]).neighbours(name)}
    if plan.commits:
        around = {*plan.topology.peers} - {name}
    return Membership(me, frozenset(around), plan.experiment.name, trust)


def session_for(plan: Plan, codec: MessageCodec, membership: Membership, mailbox: Mailbox, *, limit: int) -> Session:
    """Return the session of one peer.

    Parameters
    ----------
    plan
        Plan of the experiment, resolved for this peer.
    codec, membership, mailbox
        As of :class:`~p2pfl.network.protocol.session.session.Session`.
    limit
        Size in bytes of the largest payload that the channel accepts.

    Raises
    ------
    ExperimentError
        Peers decide which releases count, but models are too large to be taken back.
    """
    name, settings = membership.me.peer, plan.experiment.transport
    dtype = torch.int64 if plan.protection.settings.hidden else plan.learner.dtype
    size, partners = plan.learner.layout.size + count_extra(plan.algorithm), len(plan.topology.peers) * plan.decided
    largest, chunk = row_bytes(size, dtype, partners=partners), min(settings.chunk, limit)
    edges = Edges(name, plan.topology, plan.weights)
    ledgers = kept_by(plan, name, large=arrive_singly(largest, edges, chunk=chunk))
    if plan.decided and not plan.commits and not ledgers.conserving:
        raise ExperimentError(
            "privacy.departures needs models that fit into the window of a stream, because peers take back models of a "
            "round; use a smaller model or a larger transport.chunk, or leave privacy.departures out"
        )
    return Session(
        codec,
        membership=membership,
        mailbox=mailbox,
        edges=edges,
        ledgers=ledgers,
        row_bytes=largest,
        chunk=chunk,
        patience=settings.patience,
        last=plan.experiment.rounds + AFTER,
        sums=plan.protection.sums is not None,
        decider=_decider(plan),
    )


def _decider(plan: Plan) -> Decider | None:
    """Return the part of a session that decides what counts."""
    if plan.commits:
        return "commits"
    return "verdicts" if plan.decided else None


def restore(session: Session, keeper: Keeper) -> None:
    """Restore the votes of earlier incarnations.

    Parameters
    ----------
    session, keeper
        Session of this incarnation, and what earlier ones left on the disk.
    """
    if session.verdicts is not None:
        session.verdicts.restore(keeper.journal.verdicts)
    if session.commits is not None and not keeper.former.bare:  # or else its attempts may have the same numbers
        session.commits.restore(keeper.journal.verdicts)
