"""Committees of up to seven of which some are malicious, in random histories: those of ``scripts/worlds --ballots``."""

import pytest

from exploring.mutants import Silent
from p2pfl.network.protocol.agreement import agreement, proofs
from worlds.random_ballots import AGAIN, COUNTS, SIZES, Chaos


@pytest.mark.parametrize(("seats", "faulty"), SIZES)
@pytest.mark.parametrize("seeds", [25, pytest.param(3000, marks=pytest.mark.nightly)])
def test_no_two_members_decide_differently_whatever_malicious_ones_sign(seats, faulty, seeds):
    outcomes = [Chaos(seats, faulty, seed).run() for seed in range(seeds)]
    assert max(map(len, outcomes)) == 1
    assert {COUNTS} in outcomes
    assert seats == 2 or {AGAIN} in outcomes


def test_members_that_expect_acceptances_of_all_are_found(monkeypatch):
    """A malicious one then hides its own, so that some decide a round that others play again."""

    def by_all(promises, **_):
        return COUNTS if {each.accepted_value for each in promises} == {COUNTS} else None

    monkeypatch.setattr(proofs, "accepted_by_most", by_all)
    monkeypatch.setattr(agreement, "contradict", lambda *_: False)
    assert any(len(Chaos(4, 1, seed).run()) > 1 for seed in range(400))


def test_members_that_promise_without_their_acceptances_are_found():
    assert any(len(Chaos(4, 0, seed, make=Silent).run()) > 1 for seed in range(400))
