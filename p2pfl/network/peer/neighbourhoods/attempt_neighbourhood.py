"""Neighbourhood of a live peer whose rounds count once all members have received all models."""

from __future__ import annotations

from typing import Any

from p2pfl.core.neighbourhood import Released
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.round_attempts import Attempts
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood, Weighted


class AttemptedNeighbourhood(LiveNeighbourhood):
    """One round of one peer, in as many attempts as it takes.

    Parameters
    ----------
    connection, round, zstd, totalling
        As of :class:`~p2pfl.network.peer.neighbourhoods.live.LiveNeighbourhood`.
    attempts
        Attempts of the peer.
    """

    def __init__(self, connection: Connection, *, attempts: Attempts, **given: Any) -> None:
        super().__init__(connection, **given)
        self.attempts = attempts
        self._attempt = attempts.attempt

    async def mix(self, released: Released) -> Released:
        """Add up the models of the members; after the last gossip step, wait until the attempt counts.

        Raises
        ------
        AgainError
            The attempt has failed, and the round is played again.
        UndecidedError
            This peer ends.
        """
        attempts = self.attempts
        if self._attempt != attempts.attempt:
            self._attempt, self.step = attempts.attempt, attempts.step
            self.received, self.missed = 0, []  # of the attempt that counts
        weights = attempts.row(self._row_weights())
        total = Weighted(released, weights[self.name])
        for sender in await self._publish(released, weights):
            delivery = await self._model(sender, like=released, weighted=released.masses is not None)
            if delivery is None:
                await attempts.fail()
            total.add(sender, weights[sender], delivery)
        last = self.step == attempts.last
        self._close()
        mixed = total.close()
        self.record_step(released, mixed)
        if last:
            await attempts.report(complete=True)
        return mixed
