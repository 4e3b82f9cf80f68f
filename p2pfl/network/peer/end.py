"""End of a live peer: what it pays, which model all agree on, who disappeared, and what stays open."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from p2pfl.algorithms import State
from p2pfl.experiment import Plan
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.debt_payment import paid
from p2pfl.network.peer.masking.mask_cover import shifted
from p2pfl.network.peer.masking.unsettled import bereft, left_open, unsettled
from p2pfl.network.peer.model_agreement import ModelAgreement
from p2pfl.network.peer.rounds import Rounds
from p2pfl.network.protocol.interface.effects import Vanished
from p2pfl.network.protocol.interface.requests import Finish, Missed
from p2pfl.results.content import Unsettled
from p2pfl.results.notices.kinds import Notice
from p2pfl.results.notices.masses import given


@dataclass(frozen=True)
class PeerEnd:
    """What a peer has at its end.

    Parameters
    ----------
    state
        State after it has paid what it owes and agreed on the model of all.
    common
        Scores of the common model on everybody's test data; ``None`` without one.
    given
        By neighbour, the mass that the peer gave beyond what it received; ``None`` if the algorithm keeps no account.
    vanished
        Neighbours that disappeared without a goodbye.
    unsettled
        What stays open with partners.
    """

    state: State
    common: dict[str, float] | None = None
    given: dict[str, float] | None = None
    vanished: frozenset[str] = frozenset()
    unsettled: Unsettled = field(default_factory=Unsettled)


async def end(rounds: Rounds) -> PeerEnd:
    """Settle with the neighbours after the rounds, and report what stays open."""
    parts, state, common = rounds.parts, rounds.state, None
    if rounds.ended == "played":
        state = await _settled(rounds)
        if parts.plan.experiment.learning.consensus:
            agreeing = ModelAgreement(parts.plan, parts.name)
            state, common = await agreeing.close(lambda: rounds.neighbourhood(rounds.next), state, notify=parts.notify)
    account = await _vanished(parts.connection, parts.plan, state, missed=rounds.missed)
    parts.hiding.correct()
    notices: list[Notice]
    if account is not None:  # running sums move nothing of which the ledgers would know
        ended = PeerEnd(state, common, *account)
        notices = bereft(parts.name, *account)
    else:
        parts.alarms.settle(parts.connection.session.ledgers.masks.uncancelled())
        ended = PeerEnd(state, common, unsettled=_remaining(parts.connection, parts.plan))
        notices = left_open(parts.name, ended.unsettled)
    for notice in [*notices, *filter(None, [parts.meter.overdrawn])]:
        parts.notify(notice)
    return ended


async def _settled(rounds: Rounds) -> State:
    """Return the state after this peer has paid what it owes, masks first, for that takes gossip steps."""
    parts, state, connection = rounds.parts, rounds.state, rounds.parts.connection
    ledgers = connection.session.ledgers
    cover = None if rounds.first.late and rounds.first.over else parts.hiding.cover
    if cover is not None:
        await connection.ask(Finish("masks"))
    if cover is not None and parts.hiding.attempts is None:  # masks of attempts cancel, and nobody owes any
        cover.masks = parts.hiding.masks()  # somebody may have come after the last release, and masked with us
        state = await paid(
            state,
            cover,
            plan=parts.plan,
            source=parts.source,
            round=rounds.next,
            neighbourhood=rounds.neighbourhood,
            notify=parts.notify,
        )
    if ledgers.conserving:
        await connection.ask(Finish("flows"))
        if parts.plan.codec is None:  # differences are not rows
            state = shifted(state, ledgers.remainder(), mass=ledgers.mass)
    return state


async def _vanished(
    connection: Connection, plan: Plan, state: State, *, missed: Collection[str]
) -> tuple[dict[str, float], frozenset[str]] | None:
    """Return what each neighbour was given, and the neighbours that disappeared without a goodbye.

    Parameters
    ----------
    missed
        Neighbours whose models were missing in the last round.

    Returns
    -------
    tuple or None
        ``None`` if the algorithm keeps no account of what it gives.
    """
    name = connection.session.shared.me.peer
    accounts = given(plan, state, peers=(name,))
    if accounts is None:
        return None
    answer = await connection.ask(Missed(frozenset(missed)))
    return accounts[name], answer.peers if isinstance(answer, Vanished) else frozenset()


def _remaining(connection: Connection, plan: Plan) -> Unsettled:
    """Return what stays open with partners after the last round."""
    missed = {} if connection.relay is None else connection.relay.missed
    deviation, peers = plan.protection.settings.mask, len(plan.topology.peers)
    return unsettled(connection.session.ledgers, deviation=deviation, peers=peers, missed=missed)
