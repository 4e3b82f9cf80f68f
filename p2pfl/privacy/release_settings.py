"""Settings of the protection of a release."""

import math
from dataclasses import dataclass

from p2pfl.core.errors import InputError
from p2pfl.privacy.resolution import check_resolution


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
