"""Totals of one live peer: it sends its masked contribution and receives the total."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np

from p2pfl.algorithms import Algorithm, AsyncLearner, State
from p2pfl.core.encodings import Ints, check_contribution
from p2pfl.core.errors import PeerError
from p2pfl.core.neighbourhood import (
    Contribution,
    Neighbourhood,
    Public,
    PublicContribution,
    Recipient,
    Released,
    TotalOptions,
    Wrapped,
)
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.network.peer.connection import Connection
from p2pfl.network.protocol.interface.effects import Convened, Totalled, Unfinished
from p2pfl.network.protocol.interface.requests import Contribute, Convene
from p2pfl.privacy.total_masks import TotalMasks, TotalSlot, to_signed, to_unsigned, zeros
from p2pfl.topology import tree_to


class LostError(PeerError):
    """Error for an attempt at totals that failed because peers were lost; it revealed nothing about contributions."""


class RepeatError(LostError):
    """Error for totals that must be taken again without the peers that were lost, in another attempt at the round."""


@dataclass
class RoundTotals:
    """Totals of one round, in which either all participants take part or none.

    An attempt that fails is followed by another one without the peers that were lost, as long as a majority of the
    peers of the plan is left. Under masks there is no other attempt, because two totals that differ by one peer reveal
    its contribution.

    Parameters
    ----------
    connection
        Connection to the neighbours.
    round
        See :class:`p2pfl.privacy.total_masks.TotalSlot`.
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

    async def total(
        self, contribution: Contribution, *, peer: str, size: int, bits: int, to: Recipient | None = None
    ) -> Ints:
        """Return the total of contributions, ``[size]``; of a total to one peer, that peer takes it instead.

        Raises
        ------
        PrivacyError
            The contribution could make the total wrap around, or masks cannot hide it among these participants. Nothing
            is sent in these cases.
        RepeatError
            Peers were lost after an earlier total of the round, and the others go on: take all totals of the round
            again.
        LostError
            Peers were lost, and the others cannot go on without them.
        """
        public = isinstance(contribution, PublicContribution)
        if not self.participants:
            await self._convene(masked=not public and self.masks() is not None)
        first = self._number == 0
        values = None
        if peer in self._senders(to):
            values = await asyncio.to_thread(contribution, peer)  # once, as it may have private noise
        while True:
            senders = self._senders(to)
            if values is not None:
                shared = len(senders) if to is None else None
                check_contribution(values, peer=peer, size=size, participants=shared, bits=bits)
            masks = None if public else self._masks
            await asyncio.to_thread(self._check, masks, senders, to)  # cuts of a large graph take a while
            request = await self._request(values, peer=peer, size=size, bits=bits, masks=masks, senders=senders, to=to)
            self._number += 1
            answer = await self.connection.ask(request) if size else Totalled(zeros(0, bits))  # [0] needs no message
            outcome = await self._again(answer, masked=masks is not None) if isinstance(answer, Unfinished) else answer
            if isinstance(outcome, Totalled):
                total = to_signed(outcome.values)  # [K], [0] at a peer that does not obtain it
                if to is not None and to.peer == peer:
                    await asyncio.to_thread(to.take, total)
                return total if to is None else np.zeros(0, np.int64)
            if not first:
                raise RepeatError(
                    "peers were lost after an earlier total of the round; take all totals of the round again"
                )

    @property
    def last(self) -> tuple[int, int]:
        """Attempt and number of the last total of the round."""
        return self._attempt, self._number - 1

    async def _convene(self, *, masked: bool) -> None:
        answer = await self.connection.ask(Convene(self.round))
        if isinstance(answer, Unfinished):
            await self._again(answer, masked=masked)
            return
        assert isinstance(answer, Convened)  # noqa: S101 (the answer to this request)
        self._begin(answer)

    async def _again(self, answer: Unfinished, *, masked: bool) -> Convened | Totalled:
        """Begin other attempts until peers agree on the participants; return that, or the total if another has it."""
        for _ in range(self.connection.session.edges.peers):
            if masked:
                break
            outcome = await self.connection.ask(Convene(self.round))
            if isinstance(outcome, Convened):
                self._begin(outcome)
            if isinstance(outcome, Convened | Totalled):
                return outcome
            assert isinstance(outcome, Unfinished)  # noqa: S101 (the answer to this request)
            answer = outcome
        raise _lost(answer)

    def _begin(self, answer: Convened) -> None:
        """Begin an attempt, in which the majority of the peers of the plan takes part."""
        peers = self.connection.session.edges.peers
        if 2 * len(answer.peers) <= peers and peers > 1:
            gone = sorted({*self.connection.session.edges.topology.peers} - {*answer.peers})
            raise LostError(
                f"a total needs a majority of the {peers} peers, but {', '.join(gone)} did not answer; start the peers "
                "that are missing and the run again",
                gone=gone,
            )
        self._masks = self.masks()
        self.participants, self._attempt, self._number = answer.peers, answer.attempt, 0

    def _senders(self, to: Recipient | None) -> tuple[str, ...]:
        """Return who contributes to a total: all participants, or those that the recipient expects."""
        if to is None:
            return self.participants
        senders = self.connection.session.edges.topology.peers if to.among is None else to.among
        if gone := sorted({to.peer, *senders} - {*self.participants}):
            raise LostError(
                f"{', '.join(gone)} did not answer, and a total to {to.peer} needs them; start the peers that are "
                "missing and the run again",
                gone=gone,
            )
        return senders

    def _check(self, masks: TotalMasks | None, senders: tuple[str, ...], to: Recipient | None) -> None:
        if masks is None:
            return
        if len(self.participants) < self.connection.session.edges.peers:
            raise LostError(
                f"a total under masks needs all peers, and {len(self.participants)} take part; two totals that differ "
                "by one peer reveal its contribution, so start the missing peers and the run again"
            )
        if to is None:
            masks.check(senders)
        else:
            masks.check_recipient(to.peer, senders)

    async def _request(
        self,
        values: Ints | None,
        *,
        peer: str,
        size: int,
        bits: int,
        masks: TotalMasks | None,
        senders: tuple[str, ...],
        to: Recipient | None,
    ) -> Contribute:
        """Return the request for the next total, with this peer's contribution masked where masks are given.

        Masks hide contributions from the one recipient of a total, so it has none, and nor has a single sender.
        """
        tree, hidden = None, senders
        if to is not None:
            tree = tree_to(self.connection.session.edges.topology, root=to.peer, among=senders)
            hidden = tuple(each for each in senders if each != to.peer)
            masks = masks if len(hidden) > 1 else None
        if values is None:
            return Contribute(zeros(size if tree is not None and tree.root == peer else 0, bits), tree)
        if masks is None or peer not in hidden:
            return Contribute(to_unsigned(values, bits), tree)
        slot = TotalSlot(self.round, self._attempt, self._number)
        masked = await asyncio.to_thread(masks.hide, values, peer=peer, slot=slot, participants=hidden, bits=bits)
        return Contribute(masked, tree)


class RetryRound:
    """Algorithm whose rounds are repeated if their totals must be taken again, unless they have released models.

    Parameters
    ----------
    algorithm
        Algorithm of the peer.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round, again where peers were lost in its totals."""
        while True:
            noting = ReleaseTracker(net)
            try:
                after = await self.algorithm.round(state, learner, noting, round)
                await noting.finish(state.public)
            except RepeatError as error:
                if noting.released:
                    raise LostError(
                        "peers were lost in a total of a round that has released models, which is not repeated; "
                        "start the peers that are missing and the run again"
                    ) from error
            else:
                return after


class ReleaseTracker(Wrapped):
    """Neighbourhood that notes whether anything was released, and ends with a total of all peers.

    Attributes
    ----------
    released
        True if a model was released.
    """

    released = False
    _apart = False  # True if the last total went to one peer, which others did not wait for

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release as the wrapped neighbourhood does."""
        self.released = True
        return await super().release(rows, since=since, masses=masses)

    async def total(self, contribution: Contribution, **options: Unpack[TotalOptions]) -> Ints:
        """Add up as the wrapped neighbourhood does."""
        self._apart = options.get("to") is not None
        return await super().total(contribution, **options)

    async def finish(self, public: Public) -> None:
        """Wait for all peers if the last total went to one: no peer keeps a round that another has to repeat."""
        if self._apart:
            nothing = PublicContribution(public, self.peers, lambda _: np.zeros(1, np.int64))
            await self.total(nothing, size=1)


def _lost(answer: Unfinished) -> LostError:
    gone = sorted(answer.lost)
    why = f"{', '.join(gone) or 'a peer'} did not answer"
    if answer.reporter:
        why = f"{answer.reporter} reports that {why}"
    return LostError(
        f"a total over all peers did not complete, because {why}; start the peers that are missing and the run again",
        gone=gone,
    )
