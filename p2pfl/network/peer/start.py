"""Start of a live peer: its identity and what earlier incarnations left, then its connection and its protection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import p2pfl
from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm, count_extra
from p2pfl.core.errors import ExperimentError
from p2pfl.core.tensors import torch
from p2pfl.experiment import Plan
from p2pfl.experiment.composing import compose
from p2pfl.experiment.timetable import Timetable
from p2pfl.learning import Learner
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.mask_cover import peer_ledgers_of
from p2pfl.network.peer.masking.model_protection import ModelProtection
from p2pfl.network.peer.neighbourhoods.sum_relay import sum_relay
from p2pfl.network.peer.storage.checkpoint import CheckpointStore, Former
from p2pfl.network.peer.storage.writer import Keeper
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.incoming.plausible import AFTER
from p2pfl.network.protocol.ledgers.mask_slots import Slot
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.session.streams import arrive_singly
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.protocol.wire.wire_rows import row_bytes
from p2pfl.network.secagg.seal import Seal
from p2pfl.network.transport import Transport, Will
from p2pfl.privacy.keys import ExchangeKey, FirstUse, Identity, Roster, SenderKey, Source, Trust
from p2pfl.privacy.secagg.in_process import partners
from p2pfl.results.spending.meter import Meter


@dataclass(frozen=True)
class PeerStart:
    """Identity of one incarnation of a peer, and what earlier ones left.

    Parameters
    ----------
    name, swarm
        Names of the peer and of the run.
    source
        Source of keys and private noise.
    identity
        Key pair with which it signs.
    keeper
        Its store, and what earlier incarnations left there.
    agreed
        Name of the run and the roster, on which the keys of all edges depend.
    membership
        Peers that it knows; it contains the announcement of this incarnation.
    """

    name: str
    swarm: str
    source: Source
    identity: Identity
    keeper: Keeper
    agreed: str
    membership: Membership

    @property
    def me(self) -> Announcement:
        """Announcement of this incarnation."""
        return self.membership.me


@dataclass(frozen=True)
class JoinedPeer:
    """Connection of a peer to its neighbours, and the protection of its models."""

    connection: Connection
    hiding: ModelProtection


def plan_of(
    name: str,
    algorithm: Plan | Algorithm,
    learner: Learner | None,
    topology: graphs.Topology | graphs.Schedule | graphs.NetworkxGraph | None,
    *,
    parts: Mapping[str, Any],
) -> Plan:
    """Return the plan of a peer, given or put together from its parts.

    Raises
    ------
    ExperimentError
        A part is missing, or the topology does not have the peer.
    """
    if isinstance(algorithm, Plan):
        return algorithm
    if learner is None or topology is None:
        raise ExperimentError("a peer needs a learner and a topology beside its algorithm; pass both")
    topology = graphs.as_topology(topology)
    if name not in topology.peers:
        some = ", ".join(topology.peers[:8])
        raise ExperimentError(f'"{name}" is no peer of the topology; its peers are {some}')
    return compose(algorithm, learner, topology, live=True, **parts)


def start_of(
    plan: Plan,
    name: str,
    *,
    source: Source,
    identity: Identity | None,
    trust: Trust | None,
    incarnation: int,
    store: CheckpointStore | None,
    former: Former | None,
    remember: Callable[[], None] | None,
) -> PeerStart:
    """Return the start of a peer; nothing is read, written or sent."""
    trust, identity = trust or FirstUse(), identity or Identity.generate(source, peer=name)
    roster = trust.digest if isinstance(trust, Roster) else ""
    keeper = Keeper(store, former, incarnation=incarnation, peer=name, source=source, remember=remember)
    journal, rounds = keeper.journal, keeper.former.rounds if former is not None else []
    used = max([journal.until[0], *(each.subject.attempt for each in journal.verdicts)])
    me = Announcement(
        name,
        journal.incarnation,
        "up",
        {**plan.facts, "roster": roster},
        ExchangeKey(journal.key).public,
        identity.public,
        rounds=rounds,
        attempt=used + 1 if rounds and not journal.over else 0,
        version=p2pfl.__version__,
        nonce=keeper.nonce,
    )
    swarm = plan.experiment.name
    membership = Membership(me, frozenset(_known_peers(plan, name)), swarm, trust)
    return PeerStart(name, swarm, source, identity, keeper, f"{swarm}{roster}", membership)


def _known_peers(plan: Plan, name: str) -> set[str]:
    """Return the peers that a peer knows: its neighbours in the graph, under masks and in sums.

    With secure sums a peer also knows the other neighbours of its receivers, with which it masks; where the members of
    a round commit it together, it knows all peers.
    """
    if plan.commits:
        return {*plan.topology.peers} - {name}
    neighbours = {*plan.topology.neighbours(name), *(plan.protection.graph.neighbours(name) if plan.masked else ())}
    return neighbours if plan.protection.sums is None else neighbours | {*partners(plan.weights[0]).neighbours(name)}


async def join(
    start: PeerStart,
    plan: Plan,
    *,
    transport: Transport,
    stack: AsyncExitStack,
    mailbox: Mailbox,
    meter: Meter,
) -> JoinedPeer:
    """Open the channel of a peer to its broker, which ``stack`` closes.

    Parameters
    ----------
    start, plan
        The peer, and its plan.
    transport, stack
        Transport to the broker, and what closes the channel.
    mailbox
        Mailbox for received models.
    meter
        Meter that releases are charged to.
    """
    keeper, source, me = start.keeper, start.source, start.me
    key = ExchangeKey(keeper.journal.key)
    sender = SenderKey.draw(source, peer=start.name, round=me.incarnation)
    envelope = Envelope(start.name, me.incarnation, key, sender, start.agreed, me.nonce)
    codec = MessageCodec(start.swarm, me, start.identity, envelope)
    will = Will(codec.topic("state"), encode(codec.announcement("dead")))
    client = f"{start.swarm}-{start.name}-{me.incarnation:x}"
    channel = await stack.enter_async_context(transport.join(client, will=will))
    session = _session(plan, codec, start.membership, mailbox, limit=channel.limit, until=keeper.journal.until)
    if session.commits is not None and not keeper.former.bare:  # or else its attempts may have the same numbers
        session.commits.restore(keeper.journal.verdicts)
    relay = None
    if plan.protection.sums is not None:
        seal = Seal(start.identity, start.membership)
        relay = sum_relay(plan, start.name, seal=seal, meter=meter)
    hiding = ModelProtection(
        plan,
        session,
        relay=relay,
        kept=keeper.journal,
        reached=max((each.round for each in keeper.former.kept), default=0),
        agreed=start.agreed,
        meter=meter,
        source=source,
    )
    connection = Connection(channel, session, relay=relay, durable=partial(keeper.durable, hiding.extend))
    return JoinedPeer(connection, hiding)


def _session(
    plan: Plan, codec: MessageCodec, membership: Membership, mailbox: Mailbox, *, limit: int, until: Slot
) -> Session:
    """Return the session of a peer that may have used slots before ``until``; payloads have ``limit`` bytes at most."""
    name, settings = membership.me.peer, plan.experiment.transport
    dtype = torch.int64 if plan.protection.settings.hidden else plan.learner.dtype
    size = plan.learner.layout.size + count_extra(plan.algorithm)
    largest, chunk = row_bytes(size, dtype), min(settings.chunk, limit)
    edges = Edges(name, plan.topology, plan.weights)
    ledgers = peer_ledgers_of(plan, name, large=arrive_singly(largest, edges, chunk=chunk), until=until)
    return Session(
        codec,
        membership=membership,
        mailbox=mailbox,
        edges=edges,
        ledgers=ledgers,
        row_bytes=largest,
        chunk=chunk,
        patience=settings.patience,
        outage=settings.outage,
        last=plan.experiment.horizon + AFTER,
        longest_pause=Timetable.of(settings.pace).longest,
        sums=plan.protection.sums is not None,
        commits=plan.commits,
    )
