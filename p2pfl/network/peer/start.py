"""Start of a live peer: its identity and what earlier incarnations left, then its connection and its protection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from p2pfl import topology as graphs
from p2pfl.algorithms import Algorithm
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import Plan
from p2pfl.experiment.composing import compose
from p2pfl.learning import Learner
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.joining.sessions import announced, check_remembering, membership_of, restore, session_for
from p2pfl.network.peer.masking.model_protection import ModelProtection
from p2pfl.network.peer.neighbourhoods.sum_relay import sum_relay
from p2pfl.network.peer.storage.checkpoint import CheckpointStore, Former
from p2pfl.network.peer.storage.writer import Keeper
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.secagg.seal import Seal
from p2pfl.network.transport import Transport, Will
from p2pfl.privacy.keys import ExchangeKey, FirstUse, Identity, Roster, SenderKey, Source, Trust
from p2pfl.results.notices.kinds import Notice
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
    """Return the start of a peer; nothing is read, written or sent.

    Raises
    ------
    ExperimentError
        The plan needs a peer that keeps its votes on the disk, and there is no store.
    """
    check_remembering(plan, source, store)
    trust, identity = trust or FirstUse(), identity or Identity.generate(source, peer=name)
    roster = trust.digest if isinstance(trust, Roster) else ""
    keeper = Keeper(store, former, incarnation=incarnation, peer=name, source=source, remember=remember)
    public = ExchangeKey(keeper.journal.key).public, identity.public
    rounds = [] if former is None else former.rounds
    me = announced(name, plan.facts | {"roster": roster}, public, keeper, rounds=rounds)
    swarm = plan.experiment.name
    membership = membership_of(plan, me, trust=trust)
    return PeerStart(name, swarm, source, identity, keeper, f"{swarm}{roster}", membership)


async def join(
    start: PeerStart,
    plan: Plan,
    *,
    transport: Transport,
    stack: AsyncExitStack,
    mailbox: Mailbox,
    meter: Meter,
    notify: Callable[[Notice], None],
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
    notify
        Called with each notice.
    """
    keeper, source, me = start.keeper, start.source, start.me
    key = ExchangeKey(keeper.journal.key)
    sender = SenderKey.draw(source, peer=start.name, round=me.incarnation)
    envelope = Envelope(start.name, me.incarnation, key, sender, start.agreed, me.nonce)
    codec = MessageCodec(start.swarm, me, start.identity, envelope)
    will = Will(codec.topic("state"), encode(codec.announcement("dead")))
    client = f"{start.swarm}-{start.name}-{me.incarnation:x}"
    channel = await stack.enter_async_context(transport.join(client, will=will))
    session = session_for(plan, codec, start.membership, mailbox, limit=channel.limit)
    restore(session, keeper)
    relay = None
    if plan.protection.sums is not None:
        seal = Seal(start.identity, start.membership)
        relay = sum_relay(plan, start.name, seal=seal, source=source, meter=meter)
    hiding = ModelProtection(
        plan,
        session,
        relay=relay,
        kept=keeper.journal,
        reached=max((each.round for each in keeper.former.kept), default=0),
        agreed=start.agreed,
        meter=meter,
        source=source,
        notify=notify,
    )
    connection = Connection(channel, session, relay=relay, durable=partial(keeper.durable, hiding))
    return JoinedPeer(connection, hiding)
