"""The neighbourhood of one round, as the plan of an experiment asks for it."""

from __future__ import annotations

from p2pfl.experiment import Plan
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.model_protection import ModelProtection
from p2pfl.network.peer.masking.round_attempts import Attempts
from p2pfl.network.peer.neighbourhoods.asynchronous_neighbourhood import AsynchronousNeighbourhood
from p2pfl.network.peer.neighbourhoods.attempt_neighbourhood import AttemptedNeighbourhood
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.peer.neighbourhoods.sum_neighbourhood import SummedLiveNeighbourhood
from p2pfl.network.peer.round_totals import RoundTotals


def live(
    plan: Plan, connection: Connection, hiding: ModelProtection, *, round: int, place: int, conserving: bool
) -> LiveNeighbourhood:
    """Return the neighbourhood of a round: asynchronous, by secure sums, or neither.

    Parameters
    ----------
    plan
        Plan of the experiment, resolved for this peer.
    connection, hiding
        Connection to the neighbours, and protection of the models.
    round
        Number of the round.
    place
        Number of the round for totals, which count from 1; 0 before the first round.
    conserving
        True if the mixing keeps the mean of all models.
    """
    totalling = RoundTotals(connection, place, hiding.totals)
    if plan.asynchronous:
        return AsynchronousNeighbourhood(
            connection, round=round, zstd=plan.zstd, conserving=conserving, totalling=totalling
        )
    if connection.relay is None:
        return LiveNeighbourhood(connection, round=round, zstd=plan.zstd, conserving=conserving, totalling=totalling)
    return SummedLiveNeighbourhood(
        connection,
        relay=connection.relay,
        bits=plan.protection.settings.bits,
        round=round,
        zstd=plan.zstd,
        conserving=conserving,
        totalling=totalling,
    )


def attempted(
    plan: Plan, connection: Connection, hiding: ModelProtection, *, attempts: Attempts, round: int
) -> AttemptedNeighbourhood:
    """Return the neighbourhood of a round that its members commit together.

    Parameters
    ----------
    plan, connection, hiding, round
        As of :func:`live`.
    attempts
        Attempts of the peer.
    """
    totalling = RoundTotals(connection, round + 1, hiding.totals)
    return AttemptedNeighbourhood(connection, attempts=attempts, round=round, zstd=plan.zstd, totalling=totalling)
