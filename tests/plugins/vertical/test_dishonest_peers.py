"""Peers that do not follow the protocol: what they gain, and how honest ones end the run."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest

from p2pfl.core.errors import LearningError, P2PFLError, PrivacyError
from p2pfl.learning.additive import add_up
from p2pfl.plugins.vertical.gram import ask_design
from p2pfl.plugins.vertical.newton import NewtonOptions, fit_newton
from p2pfl.plugins.vertical.newton_steps import (
    FASTEST,
    FIRST,
    LAST,
    NewtonState,
    ShownPredictors,
    least_noise,
    noisy_points,
)
from p2pfl.plugins.vertical.party_roles import MAX_PREDICTORS
from p2pfl.privacy.keys import SeededSource
from vertical_roles import PAIR, joined_table, play, play_altered

ROWS = 400


def drawn(seed=1):
    """Return the columns of ada and bob, and a target of two classes that follows from both."""
    rng = np.random.default_rng(seed)
    parts = {"ada": rng.normal(size=(ROWS, 3)), "bob": rng.normal(size=(ROWS, 2))}
    eta = parts["ada"] @ [1, 0.5, -1] + parts["bob"] @ [0.4, -0.3]
    return parts, (rng.random(ROWS) < 1 / (1 + np.exp(-eta))).astype(float)


def asked(seed=2, **options):
    parts, target = drawn()
    return fit_newton(joined_table(parts, target, PAIR), SeededSource(seed), NewtonOptions(**options))


def first_predictors(asking):
    """Return what bob receives at the first point, where the fit is left."""
    question = next(asking)
    while question.to is None or question.to.peer != "bob" or question.size != ROWS:
        question = asking.send(add_up(question, PAIR.peers))
    return sum(question.answer(peer) for peer in question.to.among) / 2**24


def noise_of(**options):
    """Return the deviation of the noise of the first predictors, which follow from sums but for it."""
    one, other = (first_predictors(asked(seed, **options)) for seed in (1, 2))
    return (one - other).std() / np.sqrt(2)


def lying_solver(monkeypatch, **lies):
    """Make the solver publish and send other numbers than the method asks for: functions of its state."""
    prepared = NewtonState.prepared

    def changed(self):
        state = prepared(self)
        return replace(state, **{name: lie(state) for name, lie in lies.items()})

    monkeypatch.setattr(NewtonState, "prepared", changed)


# ---------------------------------------------------------------------- noise of predictors


def test_a_solver_that_publishes_hardly_any_noise_changes_nothing_of_what_the_label_holder_sees(monkeypatch):
    honest = noise_of()
    lying_solver(monkeypatch, deviation=lambda state: 1e-9 * state.deviation)
    assert 0.8 * honest < noise_of() < 1.2 * honest
    assert honest > 0.25


def test_coefficients_that_outweigh_the_noise_are_shown_under_noise_that_grows_with_them(monkeypatch):
    lying_solver(monkeypatch, beta=lambda state: 1e3 * state.beta)
    assert noise_of() > 0.08 * first_predictors(asked()).std() > 50
    large = np.array([600.0, -600.0])
    assert least_noise(FIRST, large, large) == 60  # also where they are shown again


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        (lambda _: 1e9, r"noise of deviation 1e\+09, but noise falls by a factor of 0\.37 at most"),
        (lambda _: -1.0, "noise of deviation -1"),
        (lambda _: np.nan, "noise of deviation nan"),
        (lambda _: 0.0, "exact ones come only at the end"),
    ],
)
def test_noise_that_the_schedule_does_not_have_ends_the_fit(lie, sentence, monkeypatch):
    lying_solver(monkeypatch, deviation=lie)
    with pytest.raises(PrivacyError, match=sentence):
        play(asked(), PAIR)


def test_coefficients_that_are_no_numbers_end_the_fit(monkeypatch):
    lying_solver(monkeypatch, beta=lambda state: np.nan * state.beta)
    with pytest.raises(PrivacyError, match="coefficients that are no numbers from cleo"):
        play(asked(), PAIR)


def test_a_solver_that_goes_on_and_on_sees_no_further_predictors(monkeypatch):
    lying_solver(monkeypatch, going=lambda _: True)
    with pytest.raises(PrivacyError, match=rf"further predictors after (?!{MAX_PREDICTORS})\d"):
        play(asked(), PAIR)
    with pytest.raises(PrivacyError, match=f"further predictors after {MAX_PREDICTORS}"):
        play(asked(predictor_noise=False), PAIR)


def test_combinations_of_columns_that_others_choose_are_shown_under_noise_of_a_third_of_their_size(monkeypatch):
    """A solver, or a label holder by crafted residuals, sends another column of ada's at each point."""
    lying_solver(
        monkeypatch,
        beta=lambda state: coefficients(0, *np.eye(3)[state.steps % 3], 0, 0)(state),
        deviation=lambda state: 1e-9 * state.deviation,
    )
    monkeypatch.setattr(NewtonState, "judged", lambda self, _: replace(self, accepted=True, agreed=self.agreed + 1))
    seen, columns = [], drawn()[0]["ada"]
    with suppress(P2PFLError):
        play(noted(asked(), lambda _: None, lambda values, real: seen.append(values) or real(values)), PAIR)
    shown = [values / 2**24 for values in seen if len(values) == ROWS and np.abs(values).max() < 2**40]
    assert len(shown) > 6
    for values in shown[:-1]:  # the last one is exact
        away = min((values - column + column.mean()).std() for column in columns.T)
        assert away > 0.25


def test_noise_never_falls_below_that_before_the_exact_predictors():
    shown = ShownPredictors(noisy=True, factor=FASTEST)
    for _ in range(10):
        assert shown.show(1e-9) >= LAST
        shown.judge(accepted=True)


# ---------------------------------------------------------------------- people who are singled out


def coefficients(*values):
    """Return what a solver sends in place of its coefficients, for columns of deviation 1: intercept, ada, and bob."""
    return lambda state: np.array(values) / np.sqrt(np.diag(state.problem.gram) / ROWS)


def accepting(monkeypatch):
    """Make the solver take a step from any point."""
    judged = NewtonState.judged
    monkeypatch.setattr(NewtonState, "judged", lambda self, point: replace(judged(self, point), accepted=True))


@pytest.mark.parametrize("intercept", [0.0, 2000.0, -3000.0])
def test_coefficients_at_which_few_people_have_weights_end_the_fit_before_their_sums_leave(intercept, monkeypatch):
    """All others are so far from the border of the classes that their weights are nothing beside those at it."""
    lying_solver(monkeypatch, beta=coefficients(intercept, 4000, 0, 0, 0, 0))
    accepting(monkeypatch)
    opened = []
    monkeypatch.setattr(NewtonState, "stepped", lambda self, *sums: opened.append(sums) or self)
    with pytest.raises(PrivacyError, match="bob sends no sums in which one person has more than 1/10 of all weights"):
        play(asked(), PAIR)
    assert opened == []


def test_coefficients_at_which_one_person_has_the_whole_residual_end_the_fit(monkeypatch):
    """Weights of a gamma model are all 1, but not the residuals of a person whose mean is next to nothing."""
    parts, target = drawn()
    parts["ada"][7, 0] = 40.0
    lying_solver(monkeypatch, beta=coefficients(0, -1, 0, 0, 0, 0))
    accepting(monkeypatch)
    table = joined_table(parts, 1.0 + target, PAIR)
    with pytest.raises(PrivacyError, match="bob sends no sums in which one person has more than 1/10 of all residuals"):
        play(fit_newton(table, SeededSource(1), NewtonOptions("gamma")), PAIR)


# ---------------------------------------------------------------------- what all know


@pytest.mark.parametrize("factor", [0.1, 0.35, 0.5])
def test_exact_predictors_come_after_as_many_noisy_ones_as_the_rows_ask_for_and_no_sooner(factor):
    shown = ShownPredictors(noisy=True, factor=factor)
    for number in range(noisy_points(factor)):
        with pytest.raises(PrivacyError, match="exact ones come only at the end"):
            shown.show(0.0)
        assert shown.show(1e-6) == pytest.approx(0.3 * factor**number)
        shown.judge(accepted=True)
    shown.show(0.0)
    shown = ShownPredictors(noisy=True, factor=factor)
    for _ in range(3):  # a point that was halved has the noise of the one before
        assert shown.show(0.1) == 0.3
        shown.judge(accepted=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("number", [0, int(np.array(np.nan).view(np.int64))], ids=["0", "nan"])
def test_each_message_may_have_any_numbers_and_the_fit_ends_in_a_sentence_if_at_all(number):
    sent = []
    play(noted(asked(), sent.append), PAIR)
    for place in range(0, len(sent), 3):
        garbled = count()

        def take(values, real, garbled=garbled, place=place):
            real(np.full_like(values, number) if next(garbled) == place else values)

        with suppress(P2PFLError):
            play(noted(asked(), lambda _: None, take), PAIR)


def noted(asking, note, take=lambda values, real: real(values)):
    """Ask the same questions, note the messages among them, and give their receivers what ``take`` makes of them."""
    question = next(asking)
    with suppress(StopIteration):
        while True:
            if question.to is not None:
                note(question.to.peer)
                to = replace(question.to, take=partial(take, real=question.to.take))
                question = replace(question, to=to)
            question = asking.send((yield question))


@pytest.mark.parametrize(("width", "error"), [(-40, PrivacyError), (1000, LearningError)])
def test_a_number_of_columns_that_no_party_has_ends_the_run_at_the_others_in_a_sentence(width, error):
    parts, target = drawn()
    asking = ask_design(joined_table(parts, target, PAIR))
    own = next(asking).answer("bob")
    with pytest.raises(error, match=r"ada comes with -40 columns|1003 coefficients of all parties for 400 rows"):
        asking.send(own + np.array([width, 0]))


@pytest.mark.parametrize("number", range(3))
def test_who_alters_a_published_number_is_noticed_by_the_peer_that_published_it(number):
    """The numbers of columns, whether there is another point with which noise, and whether it was accepted."""

    def change(place, total):
        if place == number:
            total[-1] += 1
        return total

    with pytest.raises(PrivacyError, match=r"all peers have received other numbers than (ada|bob|cleo) has published"):
        play_altered(asked(), PAIR, change)
