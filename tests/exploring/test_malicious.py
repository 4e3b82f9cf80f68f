"""Every interleaving with one member that sends whatever it can sign."""

import pytest

from ballots import COUNTS
from exploring.__main__ import NONSENSE, Setting
from exploring.explorer import ViolationError
from exploring.malicious import Credulous
from exploring.mutants import Partial, Wavering

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
