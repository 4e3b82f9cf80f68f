"""The neighbourhood of a live peer in cycles of its own: it takes what has come, and goes on."""

from __future__ import annotations

from dataclasses import replace

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import Contribution, ReceivedModels, Released, refuse_mix, refuse_total
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood, values
from p2pfl.network.protocol.interface.effects import Collected
from p2pfl.network.protocol.interface.requests import Collect, Offer
from p2pfl.network.protocol.wire.wire_rows import Delivery


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
            checked = self._checked(sender, delivery, like=released, weighted=False)
            if checked is not None:
                rows.append(values(checked, released).to(rows[0]).unsqueeze(0))
                peers.append(sender)
        self._close()
        return self._received(rows, peers, [1 / len(rows)] * len(rows))

    async def total(
        self, contribution: Contribution, *, size: int, bits: int = 64, change: float | None = None
    ) -> Ints:
        """Raise an error, as a total waits for all peers."""
        del contribution, size, bits, change
        raise refuse_total()

    async def _send(self, offer: Offer) -> None:
        """Send a model, or leave it out where the one before is not on its way yet: the next will be newer."""
        await super()._send(replace(offer, newest=True))

    def _collect(self) -> dict[str, Delivery]:
        answer = self.connection.submit(Collect())
        if not isinstance(answer, Collected):
            raise RunError("peers that wait for nobody need a mailbox of the newest models, and this one is another")
        return answer.models
