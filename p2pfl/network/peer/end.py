"""End of a live peer: what it pays, which model all agree on, and what stays open."""

from __future__ import annotations

from dataclasses import dataclass, field

from p2pfl.algorithms import State
from p2pfl.experiment import Plan
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.debt_payment import paid
from p2pfl.network.peer.masking.mask_cover import shifted
from p2pfl.network.peer.masking.unsettled import left_open, unsettled
from p2pfl.network.peer.model_agreement import ModelAgreement
from p2pfl.network.peer.rounds import Rounds
from p2pfl.network.protocol.interface.requests import Finish
from p2pfl.results.content import Unsettled


@dataclass(frozen=True)
class PeerEnd:
    """Results of a peer that has ended.

    Parameters
    ----------
    state
        State after it has paid what it owes and agreed on the model of all.
    common
        Scores of the common model on everybody's test data; ``None`` without one.
    unsettled
        What stays open with partners.
    """

    state: State
    common: dict[str, float] | None = None
    unsettled: Unsettled = field(default_factory=Unsettled)


async def end(rounds: Rounds) -> PeerEnd:
    """Settle with the neighbours after the rounds, and report what stays open."""
    parts, state, common = rounds.parts, rounds.state, None
    if rounds.ended == "played":
        state = await _settled(rounds)
        if parts.plan.experiment.learning.consensus:
            agreeing = ModelAgreement(parts.plan, parts.name)
            state, common = await agreeing.close(lambda: rounds.neighbourhood(rounds.next), state, notify=parts.notify)
    parts.hiding.correct()
    parts.alarms.settle(parts.connection.session.ledgers.masks.uncancelled())
    ended = PeerEnd(state, common, _remaining(parts.connection, parts.plan))
    for notice in [*left_open(parts.name, ended.unsettled), *filter(None, [parts.meter.overdrawn])]:
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


def _remaining(connection: Connection, plan: Plan) -> Unsettled:
    """Return what stays open with partners after the last round."""
    missed = {} if connection.relay is None else connection.relay.missed
    deviation, peers = plan.protection.settings.mask, len(plan.topology.peers)
    return unsettled(connection.session.ledgers, deviation=deviation, peers=peers, missed=missed)
