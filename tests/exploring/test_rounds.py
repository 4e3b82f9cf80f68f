"""Interleavings of an attempt at a round of two gossip steps among three peers on a line, and broken outcomes."""

import pytest

from exploring import rounds
from exploring.explorer import ViolationError
from p2pfl.network.protocol.agreement import settlement
from p2pfl.network.protocol.agreement.attempt_reports import COMPLETE, AttemptOutcome, complete, outcome
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.wire.verdict_messages import Place


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


@pytest.mark.parametrize(
    ("graph", "options", "most"),
    [
        (rounds.TRIANGLE, {"returned": "eve"}, 4_000),
        pytest.param(rounds.TRIANGLE, {"returned": "eve", "ballots": {"ada": 1}}, 100_000, marks=pytest.mark.nightly),
        pytest.param(rounds.SQUARE, {"returned": "eve"}, 100_000, marks=pytest.mark.nightly),
        pytest.param(rounds.LINE, {"restarts": ["eve"], "ballots": {"ada": 1}}, 100_000, marks=pytest.mark.nightly),
    ],
)
def test_all_members_know_when_a_peer_that_has_restarted_is_a_member_again(graph, options, most):
    found = rounds.explorer(graph=graph, steps=1, most=most, **options).run()
    assert found.complete or found.states >= most


def test_a_peer_that_a_single_member_admits_is_not_a_member_yet():
    peers = rounds.players(rounds.SQUARE, steps=1, ballots={}, returned="eve")
    (eve, _), lie = peers["eve"].after("restarts")[0], ("admitted", Place(1, 1), ("ada", "eve"))
    for sender in ("bob", "dan"):
        eve, _ = eve.receives(sender, lie)
    assert eve.machine is None


@pytest.mark.slow
def test_a_round_that_counts_although_a_member_failed_is_found(monkeypatch):
    def careless(verdicts):
        counts = any(value is not None and value.startswith(COMPLETE) for value in verdicts.values())
        return AttemptOutcome(counts, tuple(sorted(verdicts)))

    monkeypatch.setattr(settlement, "outcome", careless)
    monkeypatch.setattr(Settlement, "_believes", lambda *_: True)
    with pytest.raises(ViolationError, match=r"a round counts that .* cannot complete"):
        rounds.explorer(graph=rounds.PAIR, steps=1).run()


def test_a_round_that_counts_with_half_of_a_mask_is_found():
    """Eve dies before it sends; bob, which shares a mask with it, is dropped after ada has its model."""
    found = rounds.players(rounds.LINE, steps=1, ballots={})
    (bob, _), (ada, _) = found["bob"].after("sends")[0], found["ada"].after("sends")[0]
    ada, _ = ada.receives("bob", ("model", Place(0, 0), 0, 0))
    actors = (ada, bob, found["eve"])
    assert rounds.halves(actors, ("ada",)) == "bob and eve"
    verdicts = {"ada": complete(), "bob": None, "eve": None}
    assert outcome(verdicts) == AttemptOutcome(committed=False, members=("ada",))


@pytest.mark.nightly
def test_an_outcome_that_depends_on_the_member_is_found(monkeypatch):
    votes = iter(range(10**9))

    def varying(machine):
        return None if machine.outcome is None else AttemptOutcome(False, (*machine.members, str(next(votes))))

    monkeypatch.setattr(rounds, "conclude", varying)
    with pytest.raises(ViolationError, match="two outcomes"):
        rounds.explorer(steps=1).run()
