"""Membership and session of a peer, from the plan of its experiment."""

from __future__ import annotations

import torch

from p2pfl.algorithms import beside_of
from p2pfl.errors import ExperimentError
from p2pfl.experiment import Plan
from p2pfl.identity import Trust
from p2pfl.peer.masking.settling import kept_by
from p2pfl.protocol.incoming.mailbox import Mailbox
from p2pfl.protocol.incoming.plausible import AFTER
from p2pfl.protocol.membership.edges import Edges
from p2pfl.protocol.membership.membership import Membership
from p2pfl.protocol.session.session import Session
from p2pfl.protocol.session.streams import arrive_singly
from p2pfl.protocol.wire.messages import Announcement
from p2pfl.protocol.wire.rows import row_bytes
from p2pfl.protocol.wire.sealing import Codec
from p2pfl.secagg.in_process import partners


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
    names = () if plan.healing is None else {*plan.topology.peers} - {name}
    return Membership(me, frozenset(around), plan.experiment.name, trust, frozenset(names))


def session_for(plan: Plan, codec: Codec, membership: Membership, mailbox: Mailbox, *, limit: int) -> Session:
    """Return the session of one peer.

    Parameters
    ----------
    plan
        Plan of the experiment, resolved for this peer.
    codec, membership, mailbox
        As of :class:`~p2pfl.protocol.session.session.Session`.
    limit
        Size in bytes of the largest payload that the channel accepts.

    Raises
    ------
    ExperimentError
        Peers decide which releases count, but models are too large to be taken back.
    """
    name, settings = membership.me.peer, plan.experiment.transport
    dtype = torch.int64 if plan.protection.settings.hidden else plan.learner.dtype
    largest, chunk = row_bytes(plan.learner.layout.size + beside_of(plan.algorithm), dtype), min(settings.chunk, limit)
    edges = Edges(name, plan.topology, plan.weights, healing=plan.healing)
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
        commits=plan.commits,
    )
