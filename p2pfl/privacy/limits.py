"""Numbers that no release may contain."""

import numpy as np

from p2pfl.core.errors import LearningError, PrivacyError
from p2pfl.privacy.normal_stream import LIMIT, Floats


def check_finite(values: Floats, *, peers: tuple[str, ...]) -> None:
    """Raise :class:`LearningError` for NaN or infinity in ``[G, ...]``, and name the peer."""
    finite = np.isfinite(values).all(axis=-1)  # [G]
    if not finite.all():
        raise LearningError(
            f"the model of {peers[int(np.argmin(finite))]} contains NaN or infinity before its release; lower "
            "the learning rate or check its data"
        )


def check_range(values: Floats, *, peers: tuple[str, ...], bits: int) -> None:
    """Raise :class:`PrivacyError` for ``[G, ...]`` values outside of the grid, and name the peer."""
    largest = np.abs(values).max(axis=-1)  # [G], NaN where one value is
    limit = LIMIT * 2.0**-bits
    if not (largest < limit).all():
        check_finite(values, peers=peers)
        worst = int(np.argmax(largest))
        raise PrivacyError(
            f"a released value of {peers[worst]} is {largest[worst]:.6g}, above the limit of {limit:.6g} where "
            f"a grid of {bits} bits is exact; clip, lower the learning rate or use fewer bits"
        )
