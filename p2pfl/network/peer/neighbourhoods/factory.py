"""Neighbourhoods of a round, as the plan of an experiment asks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from p2pfl.core.codecs import Zstd
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import Contribution, ReceivedModels, Released, TotalOptions, refuse_mix, refuse_total
from p2pfl.experiment import Plan
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.model_protection import ModelProtection
from p2pfl.network.peer.masking.round_attempts import Attempts
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood, values
from p2pfl.network.peer.neighbourhoods.sum_neighbourhood import SummedLiveNeighbourhood
from p2pfl.network.peer.round_totals import RoundTotals
from p2pfl.network.protocol.interface.effects import Collected
from p2pfl.network.protocol.interface.requests import Collect, Offer
from p2pfl.network.protocol.wire.wire_rows import Delivery


def round_neighbourhood(
    plan: Plan,
    connection: Connection,
    hiding: ModelProtection,
    *,
    round: int,
    total_round: int,
    conserving: bool = True,
    attempts: Attempts | None = None,
) -> LiveNeighbourhood:
    """Return the neighbourhood of a round: in attempts, asynchronous, by secure sums, or none of these.

    Parameters
    ----------
    plan
        Plan of the experiment, resolved for this peer.
    connection, hiding
        Connection to the neighbours, and protection of the models.
    round
        Number of the round.
    total_round
        Number of the round for totals, which count from 1; 0 before the first round.
    conserving
        True if the mixing keeps the mean of all models.
    attempts
        Attempts of the peer in a round that its members commit together.
    """
    totalling = RoundTotals(connection, total_round, hiding.totals)
    if attempts is not None:
        return AttemptedNeighbourhood(attempts, connection, round=round, zstd=plan.zstd, totalling=totalling)
    kind = LiveNeighbourhood if connection.relay is None else SummedLiveNeighbourhood
    kind = AsynchronousNeighbourhood if plan.asynchronous else kind
    return kind(connection, round=round, zstd=plan.zstd, conserving=conserving, totalling=totalling)


class AttemptedNeighbourhood(LiveNeighbourhood):
    """One round of one peer, in as many attempts as it takes.

    Parameters
    ----------
    attempts
        Attempts of the peer.
    connection, round, zstd, totalling
        As of :class:`~p2pfl.network.peer.neighbourhoods.live.LiveNeighbourhood`.
    """

    def __init__(
        self, attempts: Attempts, connection: Connection, *, round: int, zstd: Zstd | None, totalling: RoundTotals
    ) -> None:
        super().__init__(connection, round=round, zstd=zstd, conserving=False, totalling=totalling)
        self.attempts = attempts
        self._part: tuple[int, bool] | None = None  # attempt, and whether it floods the condition to stop

    @property
    def begins(self) -> bool:
        """True before the first gossip step of the attempt."""
        return self._part != (self.attempts.attempt, self.attempts.flooding) or self.step == self.attempts.step

    def _row_weights(self) -> dict[str, float]:
        """Return the weights of this gossip step among the members of the attempt."""
        attempts, part = self.attempts, (self.attempts.attempt, self.attempts.flooding)
        if self._part != part:
            if self._part is None or self._part[0] != part[0]:
                self.received, self.missed = 0, []  # of the attempt that counts
            self._part, self.step = part, attempts.step
        return attempts.row(self._phase)

    async def _model(self, sender: str, *, like: Released, weighted: bool) -> Delivery | None:
        """Return the sender's model of this gossip step.

        Raises
        ------
        AgainError
            It is missing, so the attempt has failed, and the round is played again.
        UndecidedError
            This peer ends.
        """
        delivery = await super()._model(sender, like=like, weighted=weighted)
        if delivery is None:
            await self.attempts.fail()
        return delivery


class AsynchronousNeighbourhood(LiveNeighbourhood):
    """One cycle of one peer, whose mailbox is :class:`~p2pfl.network.protocol.incoming.mailbox.Newest`."""

    async def mix(self, released: Released) -> Released:
        """Refuse: what has come is merged by its age."""
        del released
        raise refuse_mix()

    async def receive(self, released: Released) -> ReceivedModels:
        """Send the own model, and return the newest of each neighbour that arrived since; all have the same weight."""
        await self._publish(released, self._row_weights())
        rows, peers = [released.values], [self.name]
        for sender, delivery in self._collect().items():
            checked = self._check(sender, delivery, like=released, weighted=False)
            if checked is not None:
                rows.append(values(checked, released).to(rows[0]).unsqueeze(0))
                peers.append(sender)
        self._close()
        return self._to_models(rows, peers, [1 / len(rows)] * len(rows))

    async def total(self, contribution: Contribution, **options: Unpack[TotalOptions]) -> Ints:
        """Raise an error, as a total waits for all peers."""
        del contribution, options
        raise refuse_total()

    async def _send(self, offer: Offer) -> None:
        """Send a model, or leave it out where the one before is not on its way yet: the next will be newer."""
        await super()._send(replace(offer, newest=True))

    def _collect(self) -> dict[str, Delivery]:
        answer = self.connection.submit(Collect())
        if not isinstance(answer, Collected):
            raise RunError("peers that wait for nobody need a mailbox of the newest models, and this one is another")
        return answer.models
