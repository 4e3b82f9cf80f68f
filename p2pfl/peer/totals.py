"""Totals of one live peer: it sends its masked contribution and receives the total."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from p2pfl.encodings import Ints, check_contribution
from p2pfl.errors import PeerError
from p2pfl.neighbourhood import Contribution
from p2pfl.peer.connection import Connection
from p2pfl.privacy.ring import Ring, signed, unsigned
from p2pfl.privacy.totals import Slot, TotalMasks
from p2pfl.protocol.session.effects import Convened, Totalled, Unfinished
from p2pfl.protocol.session.events import Contribute, Convene


class LostError(PeerError):
    """Error for an attempt at totals that failed because peers were lost; it revealed nothing about contributions."""


@dataclass
class Totalling:
    """Totals of one round, in which either all participants take part or none.

    Parameters
    ----------
    connection
        Connection to the neighbours.
    round
        See :class:`p2pfl.privacy.totals.Slot`.
    masks
        Function that returns the masks of the current incarnations, which hide contributions, or ``None`` if all peers
        may see contributions.

    Attributes
    ----------
    participants
        Names of the participants, once they are agreed.
    """

    connection: Connection
    round: int
    masks: Callable[[], TotalMasks | None] = lambda: None
    participants: tuple[str, ...] = ()
    _attempt: int = 0
    _number: int = 0
    _masks: TotalMasks | None = field(default=None, repr=False)

    async def total(self, contribution: Contribution, *, peer: str, size: int, bits: int) -> Ints:
        """Return the total of contributions, ``[size]``.

        Raises
        ------
        PrivacyError
            The contribution could make the total wrap around, or masks cannot hide it among these participants. Nothing
            is sent in these cases.
        PeerError
            Peers were lost.
        """
        if not self.participants:
            await self._convene()
        slot, self._number = Slot(self.round, self._attempt, self._number), self._number + 1
        masked = await asyncio.to_thread(self._masked, contribution, peer, slot, size, bits)
        if size == 0:
            return np.zeros(0, np.int64)  # [0], which needs no message
        answer = await self.connection.ask(Contribute(masked))
        if isinstance(answer, Unfinished):
            raise _lost(answer)
        assert isinstance(answer, Totalled)  # noqa: S101 (the answer to this request)
        return signed(answer.values)  # [K]

    async def _convene(self) -> None:
        answer = await self.connection.ask(Convene(self.round))
        if isinstance(answer, Unfinished):
            raise _lost(answer)
        assert isinstance(answer, Convened)  # noqa: S101 (the answer to this request)
        self._masks = self.masks()
        if self._masks is not None:
            if len(answer.peers) < self.connection.session.edges.peers:  # of the plan, not of a graph that has healed
                raise LostError(
                    f"a total under masks needs all peers, and {len(answer.peers)} take part; two totals that differ "
                    "by one peer reveal its contribution, so start the missing peers and the run again"
                )
            self._masks.check(answer.peers)
        self.participants, self._attempt, self._number = answer.peers, answer.attempt, 0

    def _masked(self, contribution: Contribution, peer: str, slot: Slot, size: int, bits: int) -> Ring:
        """Compute, check and mask this peer's contribution, ``[K]`` in the ring."""
        values = contribution(peer)
        check_contribution(values, peer=peer, size=size, participants=len(self.participants), bits=bits)
        if self._masks is None:
            return unsigned(values.copy(), bits)
        return self._masks.hide(values, peer=peer, slot=slot, participants=self.participants, bits=bits)


def _lost(answer: Unfinished) -> LostError:
    gone = sorted(answer.lost)
    why = f"{', '.join(gone) or 'a peer'} did not answer"
    if answer.reporter:
        why = f"{answer.reporter} reports that {why}"
    return LostError(
        f"a total over all peers did not complete, because {why}; start the peers that are missing and the run again",
        gone=gone,
    )
