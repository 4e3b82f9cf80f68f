""":class:`OwnLoss`, a loss of boosting by a function of the user's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.importing import describe_error, import_callable
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Owns
from p2pfl.plugins.exact.trees.losses.smooth import Units

KEY = "model.options.loss"
"""Key of the experiment file that names the function."""


@dataclass(frozen=True)
class OwnLoss:
    """Loss whose derivatives a function returns.

    ``function(margins, targets)`` receives float64 arrays ``[n]`` and returns two arrays ``[n]``: the first and the
    second derivative of the loss of each sample by its margin. It may depend on nothing else, so that derivatives of a
    sample are the same at whichever peer it is. Boosting starts from the margin 0.

    Parameters
    ----------
    reference
        ``package.module:function``.
    bound
        Bound of the magnitude of both derivatives, in which they are encoded as integers.
    """

    reference: str
    bound: float
    columns: ClassVar[int] = 1
    steepest: ClassVar[float] = 1.0
    curved: ClassVar[bool] = True
    quantile: ClassVar[None] = None
    valued: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse a function that cannot be imported.

        Raises
        ------
        ModelError
            It does not exist or cannot be called.
        """
        self._function()

    def units(self, scale: float) -> Units:
        """Return the bound, as a power of two, for all."""
        return Units(scale, scale, scale)

    def begin(self, own: Owns) -> Asked[tuple[int, float, Floats]]:
        """Start from the margin 0."""
        total = yield Question(lambda peer: np.array([len(own(peer).train)], np.int64), size=1)
        return int(total[0]), 2.0 ** math.ceil(math.log2(self.bound)), np.zeros(1)

    def derivatives(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> tuple[Floats, Floats | None]:
        """Return what the function returns.

        Raises
        ------
        ModelError
            The function fails, or does not return two arrays within the bound, the second one without negative numbers.
        """
        if not len(targets):
            return np.zeros((1, 0)), np.zeros((1, 0))
        try:
            slopes, curves = self._function()(np.array(margins[:, 0]), targets.astype(np.float64))
            found = np.array([slopes, curves], np.float64)  # [2, n]
        except ModelError:
            raise
        except Exception as error:
            said = describe_error(error, module=self.reference.partition(":")[0])
            raise ModelError(
                f"{KEY}: {self.reference} does not return two arrays of numbers ({said}); fix the function"
            ) from error
        if found.shape != (2, len(targets)):
            raise ModelError(
                f"{KEY}: {self.reference} returns arrays of the shape {found.shape[1:]} for {len(targets)} samples; "
                "return one number of each kind for each sample"
            )
        if not (np.abs(found) <= self.bound).all():
            raise ModelError(
                f"{KEY}: {self.reference} returns a derivative that is not within model.options.loss_bound = "
                f"{self.bound:g}; clip it in the function, or raise the bound"
            )
        if (found[1] < 0).any():
            raise ModelError(
                f"{KEY}: {self.reference} returns a negative second derivative, with which a step could go the wrong "
                "way; return 0 or more, such as an upper bound of it"
            )
        return found[:1] / scale, found[1:] / scale

    def values(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> Floats:
        """Return zeros, because derivatives alone are known."""
        del margins, scale
        return np.zeros(len(targets))

    def _function(self) -> Callable[..., Any]:
        return import_callable(self.reference, key=KEY, sought="a function", refused=ModelError)
