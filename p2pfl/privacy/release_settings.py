"""Settings of the protection of a release; resolution and range of private noise, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from p2pfl.core.errors import InputError


@dataclass(frozen=True)
class Settings:
    r"""Settings of the protection of a release; the defaults hide nothing.

    Parameters
    ----------
    clip
        C, the largest L2 norm of a weighted difference; infinity leaves it alone.
    noise
        Standard deviation of the private noise, which does not cancel.
    mask
        Standard deviation of the noise of one edge, which cancels.
    bits
        Fraction bits of the grid on which noise and masks live.
    participation
        q, with which probability a peer takes part in a release, in secret.

    Raises
    ------
    InputError
        A number is out of range.
    """

    clip: float = math.inf
    noise: float = 0.0
    mask: float = 0.0
    bits: int = 20
    participation: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.participation <= 1:
            raise InputError(
                f"the participation is {self.participation}, but must be above 0 and at most 1; 1 means all "
                "peers, always"
            )
        if not self.clip > 0:
            raise InputError(f"the clip is {self.clip}, but must be above 0; leave it out to clip nothing")
        for name, deviation in (("noise", self.noise), ("mask", self.mask)):
            if not 0 <= deviation < math.inf:
                raise InputError(f"the {name} deviation is {deviation}, but must be at least 0; 0 adds no {name}")
        if not 1 <= self.bits <= 40:
            raise InputError(f"the grid has {self.bits} bits, but needs 1 to 40; 20 resolve a millionth")
        if self.noise:
            check_resolution(self.noise, bits=self.bits)

    @property
    def hidden(self) -> bool:
        """True if rows leave as points of the grid, under noise or masks."""
        return self.noise > 0 or self.mask > 0

    @property
    def neutral(self) -> bool:
        """True if rows leave unchanged."""
        return not self.hidden and math.isinf(self.clip) and self.participation == 1


EXACT_DEVIATIONS = 14
"""Points up to so many standard deviations from zero are drawn with their exact probability."""

MAX_POINT_DEVIATION = 2.0**48
"""The largest standard deviation, in grid points: there are at least 8 fine points for each grid point."""

MAX_RELEASE_SIZE = 2**32
"""No release has more numbers: :func:`truncation` counts so many."""


def truncation(mu: float) -> float:
    r"""Return the share of delta that one release takes because noise is cut at :data:`EXACT_DEVIATIONS` deviations.

    Where no number of an update changes by more than :math:`\mu \sigma`, an outcome that only one of two updates can
    give needs noise beyond :math:`(R - \mu) \sigma` in at least one of at most :data:`MAX_RELEASE_SIZE` numbers:

    .. math:: \delta_0 = 2^{32} \cdot 2 \Phi(\mu - R)

    No :math:`e^\varepsilon` multiplies it: on the outcomes that both updates can give, the ratio of the two
    probabilities is that of the Gaussian mechanism.

    Parameters
    ----------
    mu
        Of the release.

    Examples
    --------
    >>> truncation(1.0) < 1e-27, truncation(4.0) < 1e-13, truncation(14.0)
    (True, True, 1.0)
    """
    return min(1.0, MAX_RELEASE_SIZE * math.erfc((EXACT_DEVIATIONS - mu) / math.sqrt(2)))


def check_resolution(noise: float, *, bits: int) -> None:
    """Raise :class:`InputError` for a deviation with more grid points than the sampler distinguishes.

    Raises
    ------
    InputError
        The deviation is too large; the message names the number of bits that fit.

    Examples
    --------
    >>> check_resolution(1.0, bits=20)
    """
    if not noise * 2.0**bits < MAX_POINT_DEVIATION:
        raise InputError(
            f"private noise of deviation {noise:g} on a grid of {bits} bits exceeds the resolution of its sampler, "
            f"2^48 grid points a deviation; set privacy.bits to {math.ceil(48 - math.log2(noise)) - 1} or less"
        )
