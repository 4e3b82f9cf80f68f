"""Protected releases of a cohort: the noise of all peers in its sum, without the rows of all."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from p2pfl.core.neighbourhood import Neighbourhood, Public, Released
from p2pfl.core.rows import Rows, to_device
from p2pfl.experiment.modes import Mode
from p2pfl.privacy import Settings
from p2pfl.privacy.keys import Source
from p2pfl.privacy.keys.exchange import KEY_BYTES
from p2pfl.privacy.noise import NoiseSampler
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK, Floats, spans
from p2pfl.privacy.release import MaskSource, PrivateNeighbourhood
from p2pfl.simulation.cohort import CohortNeighbourhood

MASK_MARGIN = 5.0
"""Standard deviations of the masks of a peer that its numbers reach, where masks are not drawn."""


class PrivateCohort(PrivateNeighbourhood):
    r"""Neighbourhood of a cohort whose clipped releases add up as those of all peers.

    Their average is all that peers receive. Masks cancel in it, so none are drawn. Private noise of all N peers adds up
    to normal noise of :math:`\sqrt N` times the deviation, which the first row has.

    Parameters
    ----------
    net, settings, source, round, charge
        As of :func:`p2pfl.privacy.private`.
    """

    def __init__(
        self,
        net: CohortNeighbourhood,
        *,
        settings: Settings,
        source: Source,
        round: int,
        charge: Callable[[], None] | None,
    ) -> None:
        super().__init__(net, settings=settings, masks=None, source=source, round=round, charge=charge)
        self._cohort = net.cohort
        partners = len(net.everyone) - 1
        net.margin = MASK_MARGIN * settings.mask * math.sqrt(partners) * 2.0**settings.bits

    @classmethod
    def over(
        cls,
        mode: Mode,
        net: Neighbourhood,
        *,
        settings: Settings,
        masks: MaskSource | None,
        source: Source,
        round: int,
        charge: Callable[[], None] | None,
    ) -> Neighbourhood:
        """Return the neighbourhood of a round, of a cohort or of all peers, that a privacy mode protects."""
        if isinstance(net, CohortNeighbourhood) and mode.traits.hides:
            return cls(net, settings=settings, source=source, round=round, charge=charge)
        return mode.wrap(net, settings=settings, masks=masks, source=source, round=round, charge=charge)

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Clip the changes since the public parameters, and add the noise of all peers."""
        balanced = None if masses is None else self._cohort.balanced(masses)
        return await super().release(rows, since=since, masses=balanced)

    def _coins(self, attempt: int) -> Floats:
        """Return the factor of each update, ``[R, 1]``: ``1 / q`` of those that are drawn, or zero."""
        del attempt
        return self._cohort.joined.double().unsqueeze(-1).numpy() / self._settings.participation

    def _noise_and_masks(self, device: torch.device, *, size: int, attempt: int) -> torch.Tensor:
        """Return the private noise of all peers in the first row, ``[R, P]`` grid points on a device."""
        points = np.zeros((len(self.peers), size), np.int64)
        if self._settings.noise and self._cohort.leads:  # once, however many processes share the peers
            count = len(self._cohort.everyone)
            sampler = NoiseSampler(self._settings.noise * 2.0**self._settings.bits * math.sqrt(count))
            key = self._source.bytes(
                KEY_BYTES, purpose=f"noise {attempt} of a cohort", peer=self._cohort.everyone[0], round=self._round
            )
            for columns in spans(size, VALUES_PER_BLOCK):
                points[0, columns] = sampler.window([key], columns)[0]
        return to_device(torch.from_numpy(points), device)
