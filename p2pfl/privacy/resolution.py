"""Resolution and range of private noise, and their privacy cost: arithmetic, without drawing."""

from __future__ import annotations

import math

from p2pfl.core.errors import InputError

REACH = 14
"""Points up to so many standard deviations from zero are drawn with their exact probability."""

FINEST = 2.0**48
"""The largest standard deviation, in grid points: there are at least 8 fine points for each grid point."""

LONGEST = 2**32
"""No release has more numbers: :func:`truncation` counts so many."""


def truncation(mu: float) -> float:
    r"""Return the share of delta that one release takes because noise is cut at :data:`REACH` deviations.

    Where no number of an update changes by more than :math:`\mu \sigma`, an outcome that only one of two updates can
    give needs noise beyond :math:`(R - \mu) \sigma` in at least one of at most :data:`LONGEST` numbers:

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
    return min(1.0, LONGEST * math.erfc((REACH - mu) / math.sqrt(2)))


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
    if not noise * 2.0**bits < FINEST:
        raise InputError(
            f"private noise of deviation {noise:g} on a grid of {bits} bits exceeds the resolution of its sampler, "
            f"2^48 grid points a deviation; set privacy.bits to {math.ceil(48 - math.log2(noise)) - 1} or less"
        )
