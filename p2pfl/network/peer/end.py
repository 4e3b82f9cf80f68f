"""End of a live peer: what it settles, which model all agree on, and what stays open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from p2pfl.algorithms import State
from p2pfl.core.neighbourhood import derived
from p2pfl.core.tensors import torch
from p2pfl.network.peer.model_agreement import ModelAgreement
from p2pfl.network.peer.rounds import Rounds
from p2pfl.network.protocol.interface.requests import Finish
from p2pfl.network.protocol.ledgers.flows import Row
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.results.content import Unsettled
from p2pfl.results.notices.kinds import Notice, RestartUnsettled, StepsUnsettled, SumsUnsettled


@dataclass(frozen=True)
class PeerEnd:
    """Results of a peer that has ended.

    Parameters
    ----------
    state
        State after it has settled its flows and agreed on the model of all.
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
    relay, ledgers = parts.connection.relay, parts.connection.session.ledgers
    missed = {} if relay is None else relay.missed
    ended = PeerEnd(state, common, unsettled(ledgers, missed=missed))
    for notice in [*list_open(parts.name, ended.unsettled), *filter(None, [parts.meter.overdrawn])]:
        parts.notify(notice)
    return ended


async def _settle(rounds: Rounds) -> State:
    """Return the state after this peer has settled its flows, and has waited until its mask partners end as well."""
    parts, state, connection = rounds.parts, rounds.state, rounds.parts.connection
    ledgers = connection.session.ledgers
    if parts.hiding.cover is not None and not (rounds.first.late and rounds.first.over):
        await connection.ask(Finish("releases"))
    if ledgers.conserving:
        await connection.ask(Finish("flows"))
        if parts.plan.codec is None:  # differences are not rows
            state = shift(state, ledgers.remainder(), mass=ledgers.mass)
    return state


def shift(state: State, row: Row | None, *, mass: float | None) -> State:
    """Return the models with what arrived after the last gossip step; homogeneous if there is a weight."""
    if row is None:
        return state
    late = torch.from_numpy(row).to(state.public.rows)  # [P] or [P + 1]
    moved = late if mass is None else (late[:-1] - late[-1] * state.public.rows[0]) / (mass + late[-1])  # [P]
    return replace(state, rows=state.rows + moved, public=derived(lambda public: public + moved, state.public))


def unsettled(ledgers: PeerLedgers, *, missed: Mapping[str, int]) -> Unsettled:
    """Return what stays open at the end of a run, false as a condition if nothing is.

    Parameters
    ----------
    ledgers
        What was moved along edges.
    missed
        By neighbour, how many sums lacked its part.
    """
    steps = Counter(partner for partner, _ in ledgers.list_unsettled())
    return Unsettled(dict(sorted(steps.items())), dict(sorted(missed.items())), tuple(sorted(ledgers.unaware)))


def list_open(peer: str, left: Unsettled) -> list[Notice]:
    """Return a notice of each kind of what a peer could not settle; none if nothing is open."""
    notices: list[Notice] = []
    if left.steps:
        notices.append(StepsUnsettled(peer=peer, steps=left.steps))
    if left.sums:
        notices.append(SumsUnsettled(peer=peer, sums=left.sums))
    if left.earlier:
        notices.append(RestartUnsettled(peer=peer, neighbours=left.earlier))
    return notices
