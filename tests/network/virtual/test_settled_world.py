"""Simulated worlds whose peers settle rounds, and faults in the protocol that they find."""

from dataclasses import replace

import pytest
import torch

from p2pfl.network.peer.masking import round_attempts
from p2pfl.network.protocol.agreement.attempt_reports import AttemptOutcome
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.session.decisions import commits
from worlds import explore
from worlds.explore import outcome
from worlds.insiders import insider
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


@pytest.mark.parametrize("seed", [25, 229, 407, 442, 653, 5184, 6053])
def test_settled_histories_are_survived(seed, plans):
    found = outcome(seed, plans=plans)
    assert setting(seed).settles
    assert not found.failure


def test_a_peer_whose_claim_to_its_name_is_lost_until_the_others_have_ended_meets_nobody(plans):
    assert not outcome(8150, plans=plans).failure


def test_members_that_give_up_while_others_begin_a_ballot_are_found(monkeypatch, plans):
    def shrinking(self):
        return [self._since + self.shared.patience]

    monkeypatch.setattr(commits.Commits, "_deadlines", shrinking)
    assert "did not go on after peer2 died" in failure(407, plans)


INSIDERS = {
    "acceptances": 475,
    "reports": 5,
    "decisions": 29,
    "failures": 58,
    "two reports": 1147,
    "two models": 149,
    "sample numbers": 689,
}
"""Seeds by the fault of their insider, without which the other members are connected."""


@pytest.mark.parametrize("fault", INSIDERS)
def test_a_malicious_member_neither_divides_nor_ends_the_others(fault, plans):
    seed = INSIDERS[fault]
    assert insider(seed, plans.of(setting(seed), seed=seed).topology.peers).fault == fault
    assert not outcome(seed, plans=plans, kinds=GENTLE[:-1], insiders=True).failure


PAIRS = {
    68: ("acceptances", "two models"),
    229: ("acceptances", "reports"),  # both collude with the broker
    363: ("sample numbers", "decisions"),
    1224: ("failures", "failures"),
}
"""Faults of two insiders of seven members by seed."""


@pytest.mark.parametrize("seed", PAIRS)
def test_two_malicious_members_of_seven_neither_divide_nor_end_the_others(seed, plans):
    found = outcome(seed, plans=plans, insiders=True)
    assert {f"insiders: {fault}" for fault in PAIRS[seed]} <= {*found.faults}
    assert not found.failure


class Nothing(dict):
    """Forgets what it is told."""

    def __setitem__(self, key, value):
        del key, value


def test_a_mean_that_moves_further_than_an_insider_may_add_is_found(monkeypatch, plans):
    def drawn(seed, peers, **beside):
        return replace(insider(seed, peers, **beside), added=Nothing())

    monkeypatch.setattr(explore, "insider", drawn)
    found = outcome(INSIDERS["two models"], plans=plans, kinds=(), insiders=True)
    assert "the mean of the members' rows changes by" in found.failure


def test_members_that_end_after_one_false_failure_are_found(monkeypatch, plans):
    monkeypatch.setattr(round_attempts, "MAX_ATTEMPTS", 1)
    assert "did not go on" in outcome(INSIDERS["failures"], plans=plans, kinds=(), insiders=True).failure


def deciding(monkeypatch, counts):
    """Let each attempt count, or not, whatever the committee has decided."""
    decided = Settlement.outcome.fget

    def changed(self):
        found = decided(self)
        return None if found is None else AttemptOutcome(counts(), found.members)

    monkeypatch.setattr(Settlement, "outcome", property(changed))


def test_an_attempt_that_counts_without_all_members_is_found(monkeypatch, plans):
    deciding(monkeypatch, lambda: True)
    assert "round 0 counts although peer0 has reported that it failed" in failure(229, plans)


def test_members_that_learn_different_outcomes_are_found(monkeypatch, plans):
    outcomes = iter([True])
    deciding(monkeypatch, lambda: next(outcomes, False))
    assert "and another peer" in failure(407, plans, ())
