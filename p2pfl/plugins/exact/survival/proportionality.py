"""Test of proportional hazards: whether coefficients change with a function of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.explanations import FittedTest
from p2pfl.data.data_description import Field
from p2pfl.learning.exact_model import Tensors
from p2pfl.plugins.exact.elementary import added, inverse, times


def proportionality(
    tensors: Tensors, kept: Sequence[int], columns: Sequence[tuple[Field, slice]]
) -> tuple[FittedTest, ...]:
    """Return a test for each column, and one for all of them, as R's ``cox.zph``.

    Parameters
    ----------
    tensors
        ``drift`` with ``drift_variance`` of p features, and their ``covariance``, whose row is zero for a feature that
        others determine.
    kept
        Position of each of the p features among all of the data.
    columns
        Columns of the table with their places among the features.

    References
    ----------
    Grambsch and Therneau, Proportional hazards tests and diagnostics based on weighted residuals, Biometrika 81, 1994.
    """
    free = np.diag(tensors["covariance"]) > 0
    groups = [
        (field.name, [index for index, feature in enumerate(kept) if where.start <= feature < where.stop])
        for field, where in columns
    ]
    tests = [_tested(name, tensors, [index for index in places if free[index]]) for name, places in groups if places]
    whole = _tested("all columns", tensors, np.flatnonzero(free).tolist())
    return tuple(test for test in (*tests, whole) if test.freedom)


def _tested(name: str, tensors: Tensors, places: list[int]) -> FittedTest:
    score = tensors["drift"][places]
    inverted, dependent = inverse(tensors["drift_variance"][np.ix_(places, places)])
    statistic = abs(added(score * times(inverted, score)))
    freedom = len(places) - len(dependent)
    return FittedTest(name, statistic, freedom, float(scipy.special.chdtrc(max(1, freedom), statistic)))
