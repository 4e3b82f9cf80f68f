r"""Privacy boundary: the release of a peer's rows, clipped, noised and masked.

With :math:`w` the weight of a row, Q rounding to the grid and :math:`\eta` private noise on the grid
(:mod:`p2pfl.privacy.noise`),

.. math:: Y = Q(q w \cdot \text{since}) + Q(b \operatorname{clip}(w (X - \text{since}))) + \eta + B D

for all peers at once. All four terms are integers, so whatever B D adds to one row it takes from
another, exactly. b is a coin that each peer throws in secret, 1 with probability q: an abstaining peer
releases noise and masks like all others. The weights that travel are :math:`q w`, public and
independent of the coin, so that the average is since plus :math:`\sum_k b_k \Delta_k / (q \sum_k w_k)`,
the estimator with a fixed denominator of McMahan et al. By default q = 1 and there is no coin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, Unpack

import numpy as np

from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.core.neighbourhood import (
    Contribution,
    Neighbourhood,
    Public,
    PublicContribution,
    Released,
    TotalOptions,
    Wrapped,
    check_later,
    check_public,
)
from p2pfl.core.process import cores, spread
from p2pfl.core.rows import Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.privacy.device_masks import mask_sums
from p2pfl.privacy.keys import KEY_BYTES, Source
from p2pfl.privacy.masks import Masks
from p2pfl.privacy.noise import NoiseSampler
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK, Floats, Ints, spans
from p2pfl.privacy.release_settings import Settings
from p2pfl.privacy.update import Update

MIN_TOTAL_DEVIATION = 16.0
"""Least deviation of private noise in a total, in integers: sums of rounded normal numbers then hide as normal ones."""


class MaskSource(Protocol):
    """Source of masks: :class:`p2pfl.privacy.masks.Masks`, or the corrections of a ledger."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise of an edge."""
        ...

    @property
    def bits(self) -> int:
        """Fraction bits of the grid."""
        ...

    def sums(self, peers: Sequence[str], *, round: int, size: int, attempt: int = 0) -> Ints:
        """Return the signed sum of each peer's masks, grid points ``[R, P]``."""
        ...


def private(
    net: Neighbourhood,
    *,
    settings: Settings,
    masks: MaskSource | None,
    source: Source,
    round: int,
    charge: Callable[[], None] | None = None,
) -> Neighbourhood:
    """Wrap one round's neighbourhood so that rows leave clipped, noised and masked.

    Parameters
    ----------
    net
        Carries the messages.
    settings
        Neutral ones give the plain neighbourhood back.
    masks
        Needed where ``settings.mask`` is positive, with that deviation and grid.
    source
        Of the key of each peer's private noise.
    round
        Peers whose keys are used. One wrapper serves one round: a second one of that round draws the same masks again.
    charge
        Called before each release, so that what it costs is noted before anything can be seen.

    Raises
    ------
    InputError
        Settings and masks differ.

    References
    ----------
    The release of GOPA and DECOR, see :mod:`p2pfl.privacy.masks`.
    """
    if settings.neutral:
        return net
    if settings.mask > 0 and (masks is None or (masks.deviation, masks.bits) != (settings.mask, settings.bits)):
        got = "none" if masks is None else f"deviation {masks.deviation} on {masks.bits} bits"
        raise InputError(
            f"the masks have {got}, but the settings have deviation {settings.mask} on a grid of "
            f"{settings.bits} bits; build the masks from the same settings"
        )
    return PrivateNeighbourhood(
        net, settings=settings, masks=masks if settings.mask > 0 else None, source=source, round=round, charge=charge
    )


class PrivateNeighbourhood(Wrapped):
    """Neighbourhood whose releases are protected; :func:`private` makes it and explains the parameters."""

    def __init__(
        self,
        net: Neighbourhood,
        *,
        settings: Settings,
        masks: MaskSource | None,
        source: Source,
        round: int,
        charge: Callable[[], None] | None,
    ) -> None:
        super().__init__(net)
        self._settings = settings
        self._masks = masks
        self._source = source
        self._round = round
        self._charge = charge
        self._releases = self._totals = 0

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Hide the change since the public parameters.

        Each release of a round has its own masks and its own noise.

        Parameters
        ----------
        rows, since
            ``[R, P]``; the difference is private.
        masses
            ``[R, 1]`` public weights. A peer that sits out openly has weight 0 and still releases noise and masks.

        Returns
        -------
        Released
            Floats where settings only clip, else int64 points of the grid.

        Raises
        ------
        LearningError
            A row is not finite.
        PrivacyError
            A released value leaves the grid.

        Notes
        -----
        On an accelerator the last two are raised at the end of the round, where the neighbourhood can postpone them.
        """
        if self._charge is not None:
            self._charge()
        attempt, self._releases = self._releases, self._releases + 1
        joins = None
        if self._settings.participation < 1:
            joins = self._coins(attempt)  # [R, 1]
            masses = torch.ones(len(rows), 1, dtype=torch.float64) if masses is None else masses
            masses = masses * self._settings.participation  # [R, 1]
        before = check_public(since, "since").rows
        update = Update.of(rows, before, masses=masses, joins=joins, clip=self._settings.clip)
        bits = self._settings.bits
        if self._settings.hidden:
            released = Released(self._hide(update, attempt), masses, grid=bits, dtype=rows.dtype)
        else:
            released = Released(update.floats(), masses)
        check = partial(update.check, peers=self.peers, bits=bits)
        if rows.device.type == "cpu":
            check()
        else:
            check_later(self._net, check)
        return released

    async def total(self, contribution: Contribution, **options: Unpack[TotalOptions]) -> Ints:
        """Add up as the wrapped neighbourhood does, with private noise in every contribution.

        Noise in a total relates to ``change`` as noise in a release relates to the clip, so that both cost the same.

        Raises
        ------
        PrivacyError
            There is private noise, and nobody knows in relation to what, or the integers are too coarse for it.
        """
        if isinstance(contribution, PublicContribution):
            return await self._net.total(contribution, **options)
        if self._charge is not None:
            self._charge()
        number, self._totals = self._totals, self._totals + 1
        if self._settings.noise:
            change = options.get("change")
            contribution = self._add_noise(contribution, size=options["size"], number=number, change=change)
        return await self._net.total(contribution, **options)

    def _add_noise(self, contribution: Contribution, *, size: int, number: int, change: float | None) -> Contribution:
        """Return a contribution with rounded normal noise."""
        settings = self._settings
        if change is None or math.isinf(settings.clip):
            missing = "change" if change is None else "privacy.clip"
            raise PrivacyError(
                f"private noise in a total needs {missing}, in relation to which it hides a contribution; give it, or "
                "leave out privacy.noise"
            )
        deviation = change * settings.noise / settings.clip
        if deviation < MIN_TOTAL_DEVIATION:
            raise PrivacyError(
                f"private noise in a total has a deviation of {deviation:.3g} integers, but needs "
                f"{MIN_TOTAL_DEVIATION:g}; encode the contribution with more fraction bits"
            )
        sampler = NoiseSampler(deviation)

        def noised(peer: str) -> Ints:
            values = contribution(peer).copy()  # [K]
            key = self._source.bytes(KEY_BYTES, purpose=f"total noise {number}", peer=peer, round=self._round)
            for columns in spans(size, VALUES_PER_BLOCK):
                values[columns] += sampler.window([key], columns)[0]
            return values

        return noised

    def _hide(self, update: Update, attempt: int) -> torch.Tensor:
        """Return grid points ``[R, P]``, added to masks and private noise in place: no other array is that large."""
        points = self._noise_and_masks(update.rows.device, size=update.rows.shape[-1], attempt=attempt)
        update.add_to(points, bits=self._settings.bits)
        return points

    def _noise_and_masks(self, device: torch.device, *, size: int, attempt: int) -> torch.Tensor:
        """Return the sums of masks and private noise, ``[R, P]`` grid points on a device."""
        points, keys = self._masks_on(device, size=size, attempt=attempt), self._noise_keys(attempt)  # [R, P]
        if not keys:
            return points
        on_cpu = device.type == "cpu"
        noise = points.numpy() if on_cpu else np.zeros(points.shape, np.int64)  # only the CPU draws it
        groups = [*spans(len(keys), max(1, VALUES_PER_BLOCK // size))]
        workers = min(cores(), len(groups))
        samplers = [NoiseSampler(self._settings.noise * 2.0**self._settings.bits) for _ in range(workers)]

        def add_noise(number: int, group: slice) -> None:
            for columns in spans(size, VALUES_PER_BLOCK):
                noise[group, columns] += samplers[number].window(keys[group], columns)

        spread(add_noise, groups, workers=workers)
        return points if on_cpu else points.add_(to_device(torch.from_numpy(noise), device))

    def _masks_on(self, device: torch.device, *, size: int, attempt: int) -> torch.Tensor:
        """Return the sums of masks on a device, ``[R, P]``; zeros without masks."""
        if self._masks is None:
            return torch.zeros(len(self.peers), size, dtype=torch.int64, device=device)
        if device.type != "cpu" and isinstance(self._masks, Masks):
            return mask_sums(self._masks, self.peers, round=self._round, size=size, attempt=attempt, device=device)
        sums = self._masks.sums(self.peers, round=self._round, size=size, attempt=attempt)
        return to_device(torch.from_numpy(sums), device)

    def _coins(self, attempt: int) -> Floats:
        """Return the factor of each peer's update, ``[R, 1]``: ``1 / q`` (its weight contains a q already) or zero."""
        limit = int(self._settings.participation * 2**64)
        words = [
            self._source.bytes(8, purpose=f"participation {attempt}", peer=peer, round=self._round)
            for peer in self.peers
        ]
        joined = [[int.from_bytes(word, "little") < limit] for word in words]
        return np.array(joined, np.float64) / self._settings.participation  # [R, 1]

    def _noise_keys(self, attempt: int) -> list[bytes]:
        """Return one fresh key per peer, or none without noise."""
        if not self._settings.noise:
            return []
        purpose = f"noise {attempt}"
        return [self._source.bytes(KEY_BYTES, purpose=purpose, peer=peer, round=self._round) for peer in self.peers]
