"""End of a live peer: what it pays, which model all agree on, and what stays open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from p2pfl.algorithms import State
from p2pfl.network.peer.masking.debt_payment import pay_masks
from p2pfl.network.peer.masking.mask_cover import shift
from p2pfl.network.peer.model_agreement import ModelAgreement
from p2pfl.network.peer.rounds import Rounds
from p2pfl.network.protocol.interface.requests import Finish
from p2pfl.network.protocol.ledgers.payments import residual_variance
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.results.content import Unsettled
from p2pfl.results.notices.kinds import MasksUnsettled, Notice, RestartUnsettled, StepsUnsettled, SumsUnsettled


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
        state = await _settle(rounds)
        if parts.plan.experiment.learning.consensus:
            agreeing = ModelAgreement(parts.plan, parts.name)
            state, common = await agreeing.close(lambda: rounds.neighbourhood(rounds.next), state, notify=parts.notify)
    parts.hiding.correct()
    parts.alarms.settle(parts.connection.session.ledgers.masks.list_uncancelled())
    deviation, peers = parts.plan.protection.settings.mask, len(parts.plan.topology.peers)
    relay, ledgers = parts.connection.relay, parts.connection.session.ledgers
    missed = {} if relay is None else relay.missed
    ended = PeerEnd(state, common, unsettled(ledgers, deviation=deviation, peers=peers, missed=missed))
    for notice in [*list_open(parts.name, ended.unsettled), *filter(None, [parts.meter.overdrawn])]:
        parts.notify(notice)
    return ended


async def _settle(rounds: Rounds) -> State:
    """Return the state after this peer has paid what it owes, masks first, for that takes gossip steps."""
    parts, state, connection = rounds.parts, rounds.state, rounds.parts.connection
    ledgers = connection.session.ledgers
    cover = None if rounds.first.late and rounds.first.over else parts.hiding.cover
    if cover is not None:
        await connection.ask(Finish("masks"))
    if cover is not None and parts.hiding.attempts is None:  # masks of attempts cancel, and nobody owes any
        cover.masks = parts.hiding.masks()  # somebody may have come after the last release, and masked with us
        state = await pay_masks(
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
            state = shift(state, ledgers.remainder(), mass=ledgers.mass)
    return state


def unsettled(ledgers: PeerLedgers, *, deviation: float, peers: int, missed: Mapping[str, int]) -> Unsettled:
    """Return what stays open at the end of a run.

    Parameters
    ----------
    ledgers
        What was moved along edges.
    deviation, peers
        Standard deviation of a mask, and how many models are averaged.
    missed
        By neighbour, how many sums lacked its part.

    Returns
    -------
    Unsettled
        False as a condition if nothing is open.
    """
    masks = ledgers.masks.list_uncancelled()
    ends = Counter(end for mask in masks for end in mask.edge if end != ledgers.peer)
    spread = residual_variance(masks, deviation=deviation) ** 0.5 / peers if masks else 0.0
    steps = Counter(partner for partner, _ in {*ledgers.flows.list_unsettled(), *ledgers.flows.lost})
    return Unsettled(
        dict(sorted(ends.items())),
        spread,
        dict(sorted(steps.items())),
        dict(sorted(missed.items())),
        tuple(sorted(ledgers.unaware)),
    )


def list_open(peer: str, left: Unsettled) -> list[Notice]:
    """Return a notice of each kind of what a peer could not settle; none if nothing is open."""
    notices: list[Notice] = []
    if left.masks:
        notices.append(MasksUnsettled(peer=peer, masks=left.masks, deviation=left.deviation))
    if left.steps:
        notices.append(StepsUnsettled(peer=peer, steps=left.steps))
    if left.sums:
        notices.append(SumsUnsettled(peer=peer, sums=left.sums))
    if left.earlier:
        notices.append(RestartUnsettled(peer=peer, neighbours=left.earlier))
    return notices
