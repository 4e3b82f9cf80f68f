"""Exact sums over all peers of numbers that nobody may see, under masks that are uniform in a ring."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from p2pfl.algorithms import Accord
from p2pfl.errors import PrivacyError
from p2pfl.neighbourhood import Neighbourhood, Released
from p2pfl.privacy import Masks

BITS = 20
"""Fraction bits of the grid of masked sums."""

_LIMB = 16  # bits: sums of limbs are whole numbers that gossip in double precision recovers exactly
LIMBS = 64 // _LIMB
"""Numbers that travel for each masked one."""


@dataclass
class Blinded:
    """A neighbourhood that adds up numbers without showing anybody's.

    Each number becomes a point of the grid modulo 2^64, and each mask is uniform modulo 2^64: the largest masks that
    there are. So what leaves is uniform, whatever the number is. It travels as four numbers of 16 bits, whose mean
    over all peers gossip finds to far less than 1 / N, so that their sums are exact, and the sum of the points is, too.

    Parameters
    ----------
    net
        Carries the messages.
    masks
        Between all that take part; ``None`` hides nothing.
    phase
        Keys the masks.
    count
        N, of all peers.
    """

    net: Neighbourhood
    masks: Masks | None
    phase: int
    count: int
    _sums: int = field(default=0, init=False)

    @property
    def peers(self) -> tuple[str, ...]:
        """Whose R rows these are."""
        return self.net.peers

    def check(self, values: torch.Tensor) -> None:
        """Refuse numbers whose sums leave the ring, before any of them is used.

        Raises
        ------
        PrivacyError
            With the bound.
        """
        largest = float(values.abs().max()) if values.numel() else 0.0
        bound = 2.0 ** (62 - BITS) / self.count
        if self.masks is not None and not largest < bound:
            raise PrivacyError(f"a sum at a peer must stay below {bound:.6g} to be masked, got {largest:.6g}")

    async def mean(self, accord: Accord, values: torch.Tensor) -> torch.Tensor:
        """Return the mean over all peers of private numbers ``[R, K]``; every row of it is the same."""
        if self.masks is None:
            return await accord.mean(self.net, values)
        self.check(values)
        points = (values.double().cpu() * 2.0**BITS).round().long().numpy()  # [R, K]
        attempt, self._sums = self._sums, self._sums + 1
        words = self.masks.words(self.peers, round=self.phase, size=points.shape[-1], attempt=attempt)  # [R, K]
        words += points.view(np.uint64)
        shifts = np.arange(LIMBS, dtype=np.uint64) * np.uint64(_LIMB)
        limbs = (words[..., None] >> shifts) & np.uint64((1 << _LIMB) - 1)  # [R, K, 4]
        public = torch.from_numpy(limbs.reshape(len(words), -1).astype(np.float64)).to(values.device)
        average = await accord.settle(self.net, Released(public))  # [R, 4 K]
        sums = (average * self.count).round().long().cpu().numpy().view(np.uint64)
        total = (sums.reshape(limbs.shape) << shifts).sum(-1, dtype=np.uint64).view(np.int64)  # [R, K]
        return torch.from_numpy(total).to(values.device).double() / (2.0**BITS * self.count)
