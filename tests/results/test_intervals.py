"""Student's t without scipy, against scipy."""

import numpy as np
import pytest
from scipy.special import stdtr, stdtrit

from p2pfl.results.comparisons.intervals import student_quantile, student_tail


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 30, 359, 10_000])
def test_students_t_is_that_of_scipy(degrees):
    distances = np.array([0.0, 1e-3, 0.3, 1.0, 1.7, 1.96, 2.5, 6.0, 30.0])
    ours = [student_tail(float(each), degrees) for each in distances]
    np.testing.assert_allclose(ours, 2 * stdtr(degrees, -distances), rtol=1e-9)
    assert student_quantile(degrees) == pytest.approx(stdtrit(degrees, 0.975), rel=1e-9)
