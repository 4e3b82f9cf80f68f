""":class:`PrivateKaplanMeier`, survival curves with differential privacy of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.traits import ModelTraits
from p2pfl.learning.exact_model import Asked, Outcome, Own, Owns, Round, Tensors
from p2pfl.learning.small_cells import CellCheck
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.elementary import added
from p2pfl.plugins.exact.statistics.kaplan_meier import KaplanMeier
from p2pfl.plugins.exact.tensor_model import Shapes, parts_of, scalars

SPARE = 256
"""Numbers of the total to which nobody adds anything, so that they show how large the noise is."""


@dataclass(frozen=True, kw_only=True)
class PrivateKaplanMeier(KaplanMeier):
    r"""Survival curves by group from one total that takes private noise.

    A sample adds 1 to one number: the events, or the censored samples, of its group and cell. So it changes the total
    by 1. The samples that leave from a cell on are sums of noisy numbers; the nearest sums that never rise, and are not
    negative, make the curve. Standard errors include the noise, to the first order.

    Parameters
    ----------
    features, classes, horizon, width, group, fields, owned
        As in :class:`KaplanMeier`.
    least
        No effect: noise hides small counts, and a peer that stayed away would show them.

    Examples
    --------
    >>> PrivateKaplanMeier(features=1, classes=None, horizon=10).layout.names
    ('samples', 'events', 'leaving', 'noise')

    References
    ----------
    Dwork, Roth, The algorithmic foundations of differential privacy, 2014.
    """

    name: ClassVar[str] = "private_kaplan_meier"
    shows: ClassVar[str] = (
        "with private noise, how many samples of each group leave in each cell of time, with the event and without it"
    )
    checks: ClassVar[str] = ""
    traits: ClassVar[ModelTraits] = ModelTraits(noisy=True, predicts=False, test=0.0, command="survival")

    def __post_init__(self) -> None:
        if self.times != "grid":
            raise ModelError(
                "model.options.times has no effect with private_kaplan_meier, as the times of samples are no public "
                "grid; set horizon and width"
            )
        super().__post_init__()
        if self.cause is not None:
            raise ModelError(
                "model.options.cause belongs to kaplan_meier, as private_kaplan_meier counts one kind of event"
            )
        if self.auto:
            raise ModelError(
                'model.options.width = "auto" has no effect with private_kaplan_meier, whose noise hides small cells; '
                "set a number"
            )

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Return the model as it is, since noise hides small cells."""
        del check
        yield from ()
        return tensors

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        return super().shapes | {"noise": (1,)}

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take the total; further rounds take none."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        size = 2 * len(self.groups) * self.cells
        total, noise = yield from sums.noisy_total(
            lambda peer: self._added(own(peer)), size=size, change=1.0, spare=SPARE
        )
        return Outcome(self._estimated(total, noise), over=True)

    def _added(self, own: Own) -> Floats:
        """Return events and censored samples, in points of the grid."""
        events, leaving = self.counts(parts_of(own, owned=self.owned), self.grid({})).reshape(2, -1)
        return np.concatenate([events, leaving - events]) * 2.0**sums.NOISY_FRACTION

    def _estimated(self, counts: Floats, noise: float) -> Tensors:
        """Return the counts that noisy ones give."""
        table = counts.reshape(2, len(self.groups), self.cells)
        events, censored = (np.stack([_departures(row) for row in each]) for each in table)
        leaving = events + censored
        return {**scalars(samples=added(leaving.ravel()), noise=noise), "events": events, "leaving": leaving}


def _departures(noisy: Floats) -> Floats:
    """Return whole numbers, not negative, whose sums from each cell on are near those of noisy ones."""
    later = np.append(_falling(np.add.accumulate(noisy[::-1])[::-1]), 0.0)
    whole = np.rint(np.maximum(later, 0.0))
    return np.asarray(whole[:-1] - whole[1:])


def _falling(values: Floats) -> Floats:
    """Return the nearest numbers that never rise, by pooling neighbours that do.

    Examples
    --------
    >>> _falling(np.array([5.0, 1.0, 3.0, 0.0])).tolist()
    [5.0, 2.0, 2.0, 0.0]

    References
    ----------
    Ayer et al., An empirical distribution function for sampling with incomplete information, Annals of Mathematical
    Statistics 26, 1955.
    """
    pools = list[tuple[float, int]]()  # sum and number of the values of each
    for value in values.tolist():
        pool = (value, 1)
        while pools and pools[-1][0] * pool[1] < pool[0] * pools[-1][1]:
            last = pools.pop()
            pool = (last[0] + pool[0], last[1] + pool[1])
        pools.append(pool)
    return np.concatenate([np.full(count, whole / count) for whole, count in pools])
