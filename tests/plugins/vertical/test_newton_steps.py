"""Steps of Newton's method as a pure function of sums: halving, further steps, and the most that may be shown."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from p2pfl.plugins.vertical.newton_steps import LAST, MAX_NOISE, MOVED_SHARE, STILL, NewtonPoint, NewtonState, Problem
from p2pfl.plugins.vertical.party_roles import MAX_PREDICTORS

GRAM = np.diag([100.0, 100.0])
"""Of an intercept and a centred column of 100 rows."""


def begun(*, noisy=True, penalty=0.0):
    problem = Problem(GRAM, 100, np.array([0.0, penalty]), noisy)
    return NewtonState.begin(problem, intercept=0.5, score=np.array([0.0, 20.0]), weight=0.25, deviance=130.0)


def point(deviance):
    return NewtonPoint(deviance, 0.0, 25.0, 16.0)


def test_the_first_step_is_that_of_the_null_model():
    state = begun()
    assert state.beta == pytest.approx([0.5, 0.8])
    assert begun(penalty=15.0).beta == pytest.approx([0.5, 0.5])
    assert state.prepared().deviation == pytest.approx(0.3 * 0.8)


def test_a_rise_that_noise_explains_is_accepted_and_a_larger_one_is_halved():
    state = begun().prepared()
    explained = state.deviation**2 * 25 + 6 * state.deviation * 4
    assert state.judged(point(130 + explained - 0.01)).accepted
    halved = state.judged(point(130 + explained + 0.01))
    assert not halved.accepted
    assert halved.beta == pytest.approx([0.5, 0.4])
    again = halved.prepared()
    assert again.steps == 2
    assert again.deviation == state.deviation


@pytest.mark.parametrize("deviance", [math.nan, math.inf])
def test_a_deviance_that_is_no_number_is_halved(deviance):
    assert not begun().prepared().judged(point(deviance)).accepted


def test_without_noise_no_rise_is_accepted():
    state = begun(noisy=False).prepared()
    assert state.deviation == 0
    assert not state.judged(point(130.01)).accepted
    assert state.judged(point(129.0)).accepted


def ended(moves, *, noisy=True):
    """Return the last state, and the noise of each point, where steps move predictors by given distances."""
    state, noise, steps = begun(noisy=noisy), [], iter(moves)
    while True:
        state = state.prepared()
        if not state.going:
            return state, noise
        noise.append(state.deviation)
        state = state.judged(point(1.0))
        slope = next(steps)
        state = state.stepped(GRAM, np.array([100 * slope, 0.0]))


def test_noise_falls_as_slowly_as_the_rows_are_few():
    """Expect a factor of 3 sqrt(2 / 100) from point to point, as steps hardly move predictors, until exact ones."""
    state, noise = ended([1e-6] * 14)
    assert noise[:3] == pytest.approx([0.3 * 0.8 * (3 * 0.02**0.5) ** number for number in range(3)])
    assert noise[-1] == 0 < noise[-2]
    assert noise[-2] * 3 * 0.02**0.5 < LAST
    assert state.moved == pytest.approx(1e-6)


def test_predictors_that_still_move_have_noise_in_proportion():
    _, noise = ended([2.0, 1.0, 0.5] + [1e-6] * 11)
    assert noise[1:4] == pytest.approx([MOVED_SHARE * moved for moved in (2.0, 1.0, 0.5)])
    _, noise = ended([1e9] * 14)
    assert max(noise) == MAX_NOISE


def test_the_last_points_have_little_noise_and_one_is_exact_whatever_steps_do():
    state, noise = ended([1.0] * 14)
    assert state.steps == len(noise) == MAX_PREDICTORS == 14
    assert noise[:7] == pytest.approx([0.24] + [MOVED_SHARE] * 6)
    assert all(after < 0.4 * before for before, after in pairwise(noise[6:]))
    assert noise[-2:] == pytest.approx([LAST, 0.0])
    assert state.moved > STILL


def test_points_that_are_halved_to_the_end_leave_no_exact_one():
    state = begun().prepared()
    while state.going:
        state = state.judged(point(1e6)).prepared()
    assert (state.steps, state.moved) == (MAX_PREDICTORS - 1, math.inf)


def test_an_exact_point_that_raises_the_deviance_is_the_end():
    state = begun().prepared()
    last = replace(state, deviation=0.0, moved=1e-3).judged(point(1e6))
    assert not last.accepted
    assert not last.prepared().going
    assert last.moved == math.inf


def test_the_exact_point_ends_a_fit_only_where_six_deviations_of_the_last_noise_do_not_explain_its_rise():
    state = replace(begun().prepared(), deviation=0.0, moved=1e-4, slack=0.1)  # three deviations
    assert state.judged(point(130.19)).moved == 1e-4
    assert state.judged(point(130.21)).moved == math.inf


def test_exact_steps_go_on_until_they_move_nothing_or_are_too_many():
    state, noise = ended([1.0, 0.1, 1e-3, 1e-7], noisy=False)
    assert noise == [0.0] * 4
    state, noise = ended([1.0] * 20, noisy=False)
    assert state.steps == MAX_PREDICTORS


def test_dependent_columns_do_not_move():
    gram = np.array([[100.0, 0, 0], [0, 100, 100], [0, 100, 100]])
    problem = Problem(gram, 100, np.zeros(3), noisy=True)
    assert problem.kept.tolist() == [0, 1]
    state = NewtonState.begin(problem, intercept=0.0, score=np.array([0.0, 20, 20]), weight=1.0, deviance=1.0)
    assert state.beta == pytest.approx([0.0, 0.2, 0.0])
