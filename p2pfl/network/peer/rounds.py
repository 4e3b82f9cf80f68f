"""Rounds of a live peer: which it plays, and their scores and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from p2pfl.algorithms import State
from p2pfl.experiment import Plan
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.peer.threads import Threaded
from p2pfl.network.protocol.interface.effects import Play
from p2pfl.network.protocol.interface.requests import NextRound, Turn
from p2pfl.results import Record
from p2pfl.results.summary import assess


def turns(connection: Connection, plan: Plan, rounds: range) -> Iterator[int]:
    """Yield the rounds that a peer plays: all, unless it is slow or the others continued without it."""
    due = rounds.start
    together = plan.topology.period == 1 and not plan.topology.at(0).directed
    for round in rounds:
        if round < due:
            continue
        connection.submit(Turn(round))
        yield round
        if not plan.asynchronous:
            apart = 1 if together else plan.flood_steps
            answer = connection.submit(NextRound(apart=apart, last=rounds[-1]))
            due = answer.round if isinstance(answer, Play) else round + 1


def scored(plan: Plan, state: State, peer: str) -> dict[str, float]:
    """Return the scores of a peer's model."""
    return {name: float(each[0]) for name, each in assess(plan, state.rows, (peer,)).items()}


def recorded(
    connection: Connection,
    net: LiveNeighbourhood,
    state: State,
    *,
    training: Threaded,
    scores: Mapping[str, float],
    spent: float | None,
) -> Record:
    """Return the record of the round that a neighbourhood has served."""
    report = state.report
    return Record(
        peer=net.name,
        round=net.round,
        scores={**scores},
        training_loss=float(report.loss) if report is not None and report.steps else None,
        distance=net.distance,
        bytes_out=connection.bytes_out,
        bytes_in=connection.bytes_in,
        seconds_training=training.seconds,
        seconds_waiting=net.seconds_waiting,
        received=net.received,
        missed=net.missed,
        privacy_spent=spent,
        update=training.update,
        mixed=state.mixed,
    )
