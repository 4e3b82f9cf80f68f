"""The gossip step after the last round, in which masks that only one end of an edge applied are paid."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from p2pfl.algorithms import Idle, State, maximum, settle, settling_places
from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import Contribution, Neighbourhood, Public, Recipient, Released, Wrapped, release_bare
from p2pfl.core.rows import Rows
from p2pfl.experiment import Plan
from p2pfl.network.peer.masking.mask_cover import Cover
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.privacy import private
from p2pfl.privacy.keys import Source
from p2pfl.privacy.normal_stream import Ints, to_grid
from p2pfl.results.notices.kinds import Notice, SettlementIncomplete


async def pay_masks(
    state: State,
    cover: Cover,
    *,
    plan: Plan,
    source: Source,
    round: int,
    neighbourhood: Callable[[int], LiveNeighbourhood],
    notify: Callable[[Notice], None],
) -> State:
    """Release what is public once more with the masks that are owed, if anybody owes any, and mix it.

    Parameters
    ----------
    state, cover
        Of this peer, whose ledger has finished.
    plan, source
        Of the run.
    round
        The first after the last.
    neighbourhood
        Makes that of a round.
    notify
        Called with a notice where models of this gossip step are missing for good, which no record contains.

    Returns
    -------
    State
        With the average that all masks have left; as it was where nobody owes any.
    """
    size = state.public.rows.shape[-1]
    owed = cover.settle(settling_places(plan.algorithm, size, rounds=range(round)).numpy())  # [1, Q]
    owes = torch.tensor([[float(owed is not None)]], dtype=torch.float64)  # [1, 1]
    if not bool((await maximum(neighbourhood(round), owes, steps=plan.flood_steps)).any()):
        return state
    live = neighbourhood(round + 1)
    settings = replace(plan.protection.settings, noise=0.0, clip=math.inf, participation=1.0)
    masks = Owed(cover.deviation, cover.bits, owed)
    after = await settle(
        plan.algorithm,
        state,
        Idle(plan.learner),
        Republished(private(live, settings=settings, masks=masks, source=source, round=round + 1), masks),
        gossip=plan.gossip,
        rounds=round,
        participation=plan.protection.settings.participation,
    )
    if live.missed and not live.session.ledgers.conserving:
        notify(SettlementIncomplete(peer=live.peers[0], neighbours=tuple(sorted({*live.missed}))))
    return after


@dataclass(frozen=True)
class Owed:
    """Masks that are owed, in place of :class:`p2pfl.privacy.Masks`.

    Attributes
    ----------
    deviation, bits
        Of the masks of the run.
    points
        Their sum, grid points ``[1, Q]``; ``None`` if this peer owes none.
    """

    deviation: float
    bits: int
    points: Ints | None

    def sums(self, peers: object, *, round: int, size: int, attempt: int = 0) -> Ints:
        """Return a copy of the sum, ``[1, Q]``."""
        del peers, round, attempt  # one peer, and the ledger knows the slots
        return np.zeros((1, size), np.int64) if self.points is None else self.points.copy()


class Republished(Wrapped):
    """A neighbourhood that releases nothing but what is public already.

    Parameters
    ----------
    net
        Adds the masks, and neither clips nor adds noise.
    masks
        Those that it adds.
    """

    def __init__(self, net: Neighbourhood, masks: Owed) -> None:
        super().__init__(net)
        self._masks = masks

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release public rows, and check that nothing else is in them.

        Raises
        ------
        PrivacyError
            Without its masks the release is not what is public.
        """
        released = await self._net.release(rows, since=since, masses=masses)
        owed = self._masks.sums(self.peers, round=0, size=rows.shape[-1])  # [1, Q]
        public = release_bare(since.rows.cpu().double(), masses).rows.numpy().copy()  # [1, Q]
        if not np.array_equal(released.rows.cpu().numpy() - owed, to_grid(public, scale=2.0**self._masks.bits)):
            raise PrivacyError(
                "the release that pays masks holds more than public parameters and was not sent; report this as a bug"
            )
        return released

    async def total(
        self,
        contribution: Contribution,
        *,
        size: int,
        bits: int = 64,
        change: float | None = None,
        to: Recipient | None = None,
    ) -> Ints:
        """Raise an error, as a contribution is private.

        Raises
        ------
        PrivacyError
            Always.
        """
        del contribution, size, bits, change, to
        raise PrivacyError("masks are paid with public parameters, and a contribution is private; report this as a bug")
