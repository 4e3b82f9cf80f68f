"""Interleavings of an attempt at a round of two gossip steps among three peers on a line, and broken outcomes."""

import pytest

from exploring import rounds
from exploring.explorer import ViolationError
from p2pfl.network.protocol.agreement.attempt_reports import AttemptOutcome, complete, outcome
from p2pfl.network.protocol.wire.verdict_messages import DROPPED


@pytest.mark.parametrize(
    ("ballots", "most"),
    [
        ({}, 2_000),
        pytest.param({}, 60_000, marks=pytest.mark.nightly),
        pytest.param({"bob": 1}, 60_000, marks=pytest.mark.nightly),
    ],
)
def test_no_two_members_come_to_two_outcomes_and_none_commits_a_round_that_another_cannot_complete(ballots, most):
    assert rounds.explorer(ballots=ballots, most=most).run().states >= most


@pytest.mark.nightly
def test_a_round_that_counts_although_a_member_failed_is_found(monkeypatch):
    def careless(verdicts):
        return AttemptOutcome(complete() in verdicts.values(), tuple(sorted(verdicts)))

    monkeypatch.setattr(rounds, "outcome", careless)
    with pytest.raises(ViolationError, match=r"a round counts that .* cannot complete"):
        rounds.explorer(steps=1).run()


def test_a_round_that_counts_with_half_of_a_mask_is_found():
    """Eve dies before it sends; bob, which shares a mask with it, is dropped after ada has its model."""
    found = rounds.players(rounds.LINE, steps=1, ballots={})
    (bob, _), (ada, _) = found["bob"].after("sends")[0], found["ada"].after("sends")[0]
    ada, _ = ada.receives("bob", ("model", 0))
    actors = (ada, bob, found["eve"])
    assert rounds.halves(actors, ("ada",)) == "bob and eve"
    verdicts = {"ada": complete(), "bob": DROPPED, "eve": DROPPED}
    assert outcome(verdicts) == AttemptOutcome(committed=False, members=("ada",))


@pytest.mark.nightly
def test_an_outcome_that_depends_on_the_member_is_found(monkeypatch):
    votes = iter(range(10**9))
    monkeypatch.setattr(
        rounds, "outcome", lambda verdicts: AttemptOutcome(False, (*sorted(verdicts), str(next(votes))))
    )
    with pytest.raises(ViolationError, match="two outcomes"):
        rounds.explorer(steps=1).run()
