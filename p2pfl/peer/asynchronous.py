"""The neighbourhood of a live peer in cycles of its own: it takes what has come, and goes on."""

from __future__ import annotations

from collections.abc import Sequence

from p2pfl.errors import RunError
from p2pfl.neighbourhood import Heard, Released, unmixed
from p2pfl.peer.live import LiveNeighbourhood, values
from p2pfl.protocol.mailbox import Newest


class AsynchronousNeighbourhood(LiveNeighbourhood):
    """One cycle of one peer, whose mailbox is :class:`~p2pfl.protocol.mailbox.Newest`."""

    async def mix(self, released: Released) -> Released:
        """Refuse: what has come is merged by its age."""
        del released
        raise unmixed()

    async def hear(self, released: Released) -> Heard:
        """Send the own row, and take the newest of each neighbour that came since; all that one hears weigh alike."""
        await self._publish(released, self._row_weights())
        rows, peers = [released.values], [self.name]
        for sender, delivery in self._mailbox.collect().items():
            checked = self._checked(sender, delivery, like=released, weighted=False)
            if checked is not None:
                rows.append(values(checked, released).to(rows[0]).unsqueeze(0))
                peers.append(sender)
        self._close()
        return self._heard(rows, peers, [1 / len(rows)] * len(rows))

    async def _send(self, parts: Sequence[bytes | memoryview], *, phase: int) -> None:
        """Let a row go, or leave it out where the one before is not on its way yet: the next will be newer."""
        if not self.link.streams.busy(phase):
            await self.link.send(parts, phase=phase)

    @property
    def _mailbox(self) -> Newest:
        if not isinstance(self.link.mailbox, Newest):
            raise RunError("expected a mailbox of the newest rows for peers that wait for nobody, got another")
        return self.link.mailbox
