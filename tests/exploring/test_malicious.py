"""Every interleaving with one member that sends whatever it can sign."""

import pytest

from ballots import COUNTS
from exploring.__main__ import NONSENSE, Setting
from exploring.explorer import Explorer, ViolationError
from exploring.malicious import Credulous
from exploring.members import NAMES, SUBJECT, Invariants, committee, members
from exploring.mutants import Partial, Wavering
from exploring.tagged import Continuing, Convinced, Tagging
from p2pfl.network.protocol.agreement.agreement import Agreement
from p2pfl.network.protocol.wire.verdict_messages import Ballot

NONE = (0, 0, 0, 0)


def explored(setting, *, most=20_000, **given):
    """An exploration with a malicious member; it fails where an invariant does not hold."""
    return setting.explorer(most=most, **given).run()


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("malicious", ["ada", "mia"], ids=["the owner", "another member"])
def test_one_malicious_member_of_four_cannot_bring_the_others_to_two_verdicts(malicious):
    assert explored(Setting(NONE, NONE, malicious=malicious)).states > 10_000


@pytest.mark.nightly
@pytest.mark.parametrize("malicious", ["ada", "mia"], ids=["the owner", "another member"])
def test_one_malicious_member_of_four_cannot_bring_the_others_to_two_verdicts_in_a_second_ballot(malicious):
    assert explored(Setting((0, 1, 0, 0), NONE, malicious=malicious), most=100_000, progress=False).states > 50_000


@pytest.mark.slow
def test_an_owner_cannot_bring_the_others_to_an_outcome_that_none_of_them_believes():
    """Nor keep them from one: an honest majority begins another ballot."""
    setting = Setting(NONE, NONE, malicious="ada", values=(COUNTS, NONSENSE))
    assert explored(setting, most=10_000).states >= 10_000


@pytest.mark.slow
def test_members_that_accept_what_they_do_not_believe_are_found():
    setting = Setting(NONE, NONE, malicious="ada", values=(NONSENSE,))
    with pytest.raises(ViolationError, match="no honest member believed"):
        explored(setting, make=Credulous, progress=False)


def test_members_that_vote_with_the_owner_whatever_it_shows_are_found():
    setting = Setting(NONE, NONE, malicious="ada", values=(NONSENSE,))
    with pytest.raises(ViolationError, match="no honest member believed"):
        explored(setting, make=Partial, progress=False)


def test_members_that_accept_two_values_in_one_ballot_are_found():
    with pytest.raises(ViolationError, match="two values in one ballot"):
        explored(Setting(NONE, NONE, malicious="ada"), make=Wavering, progress=False)


def test_one_malicious_member_of_three_can_bring_the_others_to_two_verdicts():
    """Two majorities of three may share the malicious member alone: docs/notes/settled-rounds.md says so."""
    with pytest.raises(ViolationError, match="two verdicts"):
        explored(Setting(NONE[:3], NONE[:3], malicious="ada"), progress=False)


def explored_with_tags(make, *, most, ballots=NONE):
    """An exploration in which the owner of four can tag what it does not sign."""
    actors = members(4, make=make, kind=Convinced, ballots=ballots, blocking=True, malicious={"ada"})
    invariants = Invariants(4, malicious={"ada"})
    begun = [Ballot(1, name) for name, number in zip(NAMES, ballots, strict=True) if number]
    owner = Tagging("ada", committee(4), SUBJECT, (Ballot(1, "ada"), *begun))
    return Explorer(actors, invariants.actors, invariants.messages, most=most, enemy=owner.says).run()


@pytest.mark.slow
def test_members_that_decide_by_tags_of_acceptances_can_leave_the_others_without_a_verdict():
    """Whoever has decided takes part in no ballot, and cannot show the others what convinced it."""
    with pytest.raises(ViolationError, match="communicate and have no verdict"):
        explored_with_tags(Agreement, most=10_000)


@pytest.mark.nightly
@pytest.mark.parametrize("ballots", [NONE, (0, 1, 0, 0)])
def test_members_that_decide_by_tags_and_go_on_to_vote_leave_nobody_without_a_verdict(ballots):
    assert explored_with_tags(Continuing, most=50_000, ballots=ballots).states >= 50_000
