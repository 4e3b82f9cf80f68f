"""The end of a live peer: why it stopped, who disappeared, and what stays open."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from p2pfl.algorithms import State
from p2pfl.errors import BudgetError, CoverError, UndecidedError
from p2pfl.experiment import Plan
from p2pfl.peer.connection import Connection
from p2pfl.peer.masking.unsettled import unsettled
from p2pfl.protocol.interface.effects import Vanished
from p2pfl.protocol.interface.events import Missed
from p2pfl.report.notices.masses import given
from p2pfl.report.results import Unsettled


def reason_of(error: BudgetError | CoverError | UndecidedError) -> Literal["budget", "partners", "undecided"]:
    """Return why a peer stops learning."""
    if isinstance(error, UndecidedError):
        return "undecided"
    return "budget" if isinstance(error, BudgetError) else "partners"


async def vanished(
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


def remaining(connection: Connection, plan: Plan) -> Unsettled:
    """Return what stays open with partners after the last round."""
    missed = {} if connection.adding is None else connection.adding.missed
    deviation, peers = plan.protection.settings.mask, len(plan.topology.peers)
    return unsettled(connection.session.ledgers, deviation=deviation, peers=peers, missed=missed)
