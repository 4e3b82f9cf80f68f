"""Verdicts on the releases of a round, and removal of the masks that a dropped release leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from p2pfl.core.errors import UndecidedError
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.masking.mask_cover import Cover
from p2pfl.network.protocol.interface.effects import Decided, Disclosed, Undecided
from p2pfl.network.protocol.interface.requests import Decide, Disclose
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.privacy.masks import check_partners
from p2pfl.privacy.normal_stream import Floats, grid_normals


@dataclass(frozen=True)
class DroppedHalf:
    """Mask in a release whose other half was dropped.

    Attributes
    ----------
    holder
        Owner of the release that contains it.
    values
        Mask with its sign in that release, ``[Q]``.
    """

    holder: str
    values: Floats = field(repr=False)


@dataclass
class ReleaseVerdicts:
    """Decision on which releases of a round count, made by a peer between its gossip step and the end of the round.

    Parameters
    ----------
    connection
        Connection to the neighbours.
    cover
        Masks of this peer's releases.
    charge
        Records that private noise alone hides a release of this peer.
    goes_on
        True if the peer continues after a dropped release, without the masks that it leaves; otherwise it ends.
    masked
        Partners with which the current release is masked, and their incarnations.
    """

    connection: Connection
    cover: Cover
    charge: Callable[[Slot], None]
    goes_on: bool
    masked: Mapping[str, int] = field(default_factory=dict)

    @property
    def _me(self) -> str:
        return self.cover.ledger.peer

    async def verdicts(self, round: int, *, arrived: Collection[str]) -> frozenset[str]:
        """Return the peers whose releases of a round are dropped.

        Raises
        ------
        UndecidedError
            The verdicts are not known in time, this peer's own release is dropped, or a release is dropped and the peer
            is to end then.
        """
        answer = await self.connection.ask(Decide(round, frozenset(arrived), dict(self.masked)))
        if not isinstance(answer, Decided):
            if self.goes_on:  # the others may drop this release, and publish its masks
                self._charge()
                await self.connection.durable()
            raise UndecidedError(_describe_wait(self._me, round, answer))
        dropped = answer.dropped
        if self._me in dropped:
            self._charge()
            raise UndecidedError(
                f"{self._me} was cut off in round {round}, and its neighbours dropped its model of that round; "
                "start it again, and it joins late"
            )
        if dropped and not self.goes_on:
            raise UndecidedError(
                f"the model of {', '.join(sorted(dropped))} in round {round} is missing for good; start the run again, "
                'or set privacy.departures to "go_on" if the update of such a peer may become visible'
            )
        return dropped

    async def halves(self, round: int, dropped: Collection[str], *, applied: Collection[str]) -> list[DroppedHalf]:
        """Publish the keys of this peer's masks with dropped peers; return the masks to remove, its own first.

        Parameters
        ----------
        round
            Round of the releases.
        dropped
            Peers whose releases are dropped.
        applied
            Neighbours whose releases this peer has applied.

        Raises
        ------
        CoverError
            Too few mask partners are left to hide this peer's release; no key is published.
        UndecidedError
            The key of a neighbour did not arrive in time.
        """
        left = self.masked.keys() - {*dropped}
        if self.masked.keys() & {*dropped}:
            check_partners(self._me, left, self.masked.keys(), least=min(self.cover.least, len(self.masked)))
        keys = {peer: self.cover.withdraw(peer) for peer in sorted(dropped)}
        if any(keys.values()):
            self._charge()
        await self.connection.durable()
        awaited = {(holder, peer) for peer in dropped for holder in applied}
        answer = await self.connection.ask(Disclose(round, keys, frozenset(awaited)))
        if not isinstance(answer, Disclosed):
            blocking = ", ".join(_find_blocking(answer))
            raise UndecidedError(
                f"round {round} cannot be completed at {self._me}, because {blocking} did not publish the keys of "
                f"masks shared with {', '.join(sorted(dropped))}, whose models were dropped; start the run again, "
                f"without {blocking} if this happens more than once"
            )
        pair_keys = {(self._me, peer): key for peer, key in keys.items()} | dict(sorted(answer.keys.items()))
        return await asyncio.to_thread(lambda: list(self._draw(round, pair_keys)))

    def _charge(self) -> None:
        if self.cover.slot is not None:
            self.charge(self.cover.slot)

    def _draw(self, round: int, keys: Mapping[tuple[str, str], bytes]) -> Iterator[DroppedHalf]:
        scale, size = 2.0**-self.cover.bits, len(self.cover.places(round))
        for (holder, peer), key in keys.items():
            if key:
                points = grid_normals(key, size, deviation=self.cover.deviation, bits=self.cover.bits)  # [Q]
                yield DroppedHalf(holder, points.astype(np.float64) * (scale if holder < peer else -scale))


def _describe_wait(me: str, round: int, answer: object) -> str:
    peers = ", ".join(_find_blocking(answer))
    return (
        f"round {round} cannot be completed at {me}, because no majority answered about {peers or 'a release'} in "
        "time; start the missing peers and the run again, or raise transport.patience if none is missing"
    )


def _find_blocking(answer: object) -> list[str]:
    """Return the peers that a decision waits for."""
    return sorted(answer.peers) if isinstance(answer, Undecided) else []
