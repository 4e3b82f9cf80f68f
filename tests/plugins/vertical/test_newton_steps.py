"""Steps of Newton's method as a pure function of sums: halving, further steps, and the most that may be shown."""

import math
from dataclasses import replace

import numpy as np
import pytest

from p2pfl.plugins.vertical.newton_steps import AGAIN, MAX_RESTARTS, SCHEDULE, STILL, NewtonPoint, NewtonState, Problem
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


def test_noise_is_at_most_that_of_predictors_of_deviation_one():
    state = begun()
    wide = NewtonState(state.problem, 5 * state.beta, state.before, state.covariance, 130.0)
    assert wide.prepared().deviation == pytest.approx(0.3)


def test_a_rise_that_noise_explains_is_accepted_and_a_larger_one_is_halved():
    state = begun().prepared()
    explained = state.deviation**2 * 25 + 6 * state.deviation * 4
    assert state.judged(point(130 + explained - 0.01)).accepted
    halved = state.judged(point(130 + explained + 0.01))
    assert not halved.accepted
    assert halved.beta == pytest.approx([0.5, 0.4])
    assert halved.schedule == SCHEDULE
    again = halved.prepared()
    assert again.steps == 2
    assert again.deviation == pytest.approx(0.3 * 0.4)


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
        noise.append(state.schedule[0])
        state = state.judged(point(1.0))
        slope = next(steps)
        state = state.stepped(GRAM, np.array([100 * slope, 0.0]))


def test_the_schedule_ends_where_the_last_step_moves_little():
    state, noise = ended([1.0] * 6 + [1e-3, 1e-4])
    assert tuple(noise) == SCHEDULE
    assert state.steps == 8
    assert state.moved == pytest.approx(1e-4)


def test_further_steps_are_added_before_the_exact_one_of_which_there_is_one():
    state, noise = ended([1.0] * 20)
    assert tuple(noise) == SCHEDULE[:-1] + AGAIN * MAX_RESTARTS + (0.0,)
    assert state.steps == 12 < MAX_PREDICTORS == 14
    assert state.moved > STILL
    state, noise = ended([1.0] * 8 + [1e-3, 1e-6])
    assert tuple(noise) == SCHEDULE[:-1] + AGAIN + (0.0,)


def test_an_exact_point_that_raises_the_deviance_is_the_end():
    state = begun().prepared()
    last = replace(state, schedule=(0.0,), deviation=0.0, moved=1e-3).judged(point(1e6))
    assert not last.accepted
    assert not last.prepared().going
    assert last.moved == math.inf


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
