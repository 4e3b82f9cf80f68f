"""The end of a live peer: why it stopped, and what stays open: masks, flows and sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal

from p2pfl.algorithms import State
from p2pfl.core.errors import BudgetError, CoverError, UndecidedError
from p2pfl.experiment import Plan
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.hiding import Hiding
from p2pfl.network.peer.masking.paying import paid
from p2pfl.network.peer.masking.settling import Cover, shifted
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.protocol.interface.requests import Finish
from p2pfl.network.protocol.ledgers.payments import residual_variance
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.privacy.keys import Source
from p2pfl.results.content import Unsettled
from p2pfl.results.notices.damage import MasksUnsettled, RestartUnsettled, StepsUnsettled, SumsUnsettled
from p2pfl.results.notices.kinds import Notice


def reason_of(error: BudgetError | CoverError | UndecidedError) -> Literal["budget", "partners", "undecided"]:
    """Return why a peer stops learning."""
    if isinstance(error, UndecidedError):
        return "undecided"
    return "budget" if isinstance(error, BudgetError) else "partners"


async def settled(
    state: State,
    cover: Cover | None,
    *,
    plan: Plan,
    connection: Connection,
    hiding: Hiding,
    source: Source,
    round: int,
    neighbourhood: Callable[[int], LiveNeighbourhood],
    notify: Callable[[Notice], None],
) -> State:
    """Return the state after this peer has paid what it owes, masks first, for that takes gossip steps.

    Parameters
    ----------
    state, cover
        State after the last round, and the masks of the last release; ``None`` if the peer has none.
    plan, connection, hiding
        Plan of the experiment, connection to the neighbours, and protection of the models.
    source
        Source of private noise.
    round
        Round after the last.
    neighbourhood
        Returns the neighbourhood of a round.
    notify
        Called with each notice.
    """
    ledgers = connection.session.ledgers
    if cover is not None:
        await connection.ask(Finish("masks"))
    if cover is not None and hiding.attempts is None:  # masks of attempts cancel, and nobody owes any
        cover.masks = hiding.masks()  # somebody may have come after the last release, and masked with us
        state = await paid(
            state, cover, plan=plan, source=source, round=round, neighbourhood=neighbourhood, notify=notify
        )
    if ledgers.conserving:
        await connection.ask(Finish("flows"))
        if plan.codec is None:  # differences are not rows
            state = shifted(state, ledgers.remainder(), mass=ledgers.mass)
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
    masks = ledgers.masks.uncancelled()
    ends = Counter(end for mask in masks for end in mask.edge if end != ledgers.peer)
    spread = residual_variance(masks, deviation=deviation) ** 0.5 / peers if masks else 0.0
    steps = Counter(partner for partner, _ in {*ledgers.flows.unsettled(), *ledgers.flows.lost})
    return Unsettled(
        dict(sorted(ends.items())),
        spread,
        dict(sorted(steps.items())),
        dict(sorted(missed.items())),
        tuple(sorted(ledgers.unaware)),
    )


def left_open(peer: str, found: Unsettled) -> list[Notice]:
    """Return a notice of each kind of what a peer could not settle; none if nothing is open."""
    said: list[Notice] = []
    if found.masks:
        said.append(MasksUnsettled(peer=peer, masks=found.masks, deviation=found.deviation))
    if found.steps:
        said.append(StepsUnsettled(peer=peer, steps=found.steps))
    if found.sums:
        said.append(SumsUnsettled(peer=peer, sums=found.sums))
    if found.earlier:
        said.append(RestartUnsettled(peer=peer, neighbours=found.earlier))
    return said


def remaining(connection: Connection, plan: Plan) -> Unsettled:
    """Return what stays open with partners after the last round."""
    missed = {} if connection.relay is None else connection.relay.missed
    deviation, peers = plan.protection.settings.mask, len(plan.topology.peers)
    return unsettled(connection.session.ledgers, deviation=deviation, peers=peers, missed=missed)
