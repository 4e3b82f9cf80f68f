"""Simulated worlds whose peers settle rounds, and faults in the protocol that they find."""

import pytest
import torch

from p2pfl.network.protocol.agreement.attempt_reports import AttemptOutcome
from p2pfl.network.protocol.agreement.attempt_reports import outcome as agreed
from p2pfl.network.protocol.session.decisions import commits
from worlds.explore import outcome
from worlds.settings import Plans, setting

pytestmark = pytest.mark.slow

GENTLE = ("latency", "duplication", "overtaking", "clocks", "forgeries", "deaths")
"""Faults after which the survivors of one death play all rounds."""


@pytest.fixture(scope="module")
def plans():
    torch.set_num_threads(1)
    return Plans()


def failure(seed, plans, kinds=GENTLE):
    assert setting(seed).settles
    return outcome(seed, plans=plans, kinds=kinds).failure


@pytest.mark.parametrize("seed", [25, 229, 407, 653, 5184, 6053])
def test_settled_histories_are_survived(seed, plans):
    found = outcome(seed, plans=plans)
    assert setting(seed).settles
    assert not found.failure


def test_a_peer_whose_claim_to_its_name_is_lost_until_the_others_have_ended_meets_nobody(plans):
    assert not outcome(8150, plans=plans).failure


def test_members_that_give_up_while_others_begin_a_ballot_are_found(monkeypatch, plans):
    def shrinking(self):
        silent = {release.peer for release in self._undecided_releases()} - self._reported
        last = max((self._slow(peer) for peer in silent if not self._is_gone(peer)), default=self._since)
        return [last + 2 * self.shared.patience]

    monkeypatch.setattr(commits.Commits, "_deadlines", shrinking)
    assert "did not go on after peer2 died" in failure(407, plans)


def test_an_attempt_that_counts_without_all_members_is_found(monkeypatch, plans):
    monkeypatch.setattr(commits, "outcome", lambda verdicts: AttemptOutcome(True, agreed(verdicts).members))
    assert "an attempt counts although a member has reported that it failed" in failure(407, plans)


def test_members_that_learn_different_outcomes_are_found(monkeypatch, plans):
    outcomes = iter([True])
    monkeypatch.setattr(
        commits, "outcome", lambda verdicts: AttemptOutcome(next(outcomes, False), agreed(verdicts).members)
    )
    assert "and another peer" in failure(407, plans, ())
