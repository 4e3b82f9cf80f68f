"""Every interleaving with one member that sends whatever it can sign."""

import pytest

from exploring.__main__ import Setting
from exploring.explorer import ViolationError
from exploring.malicious import Gullible

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
def test_an_owner_that_signs_two_copies_cannot_bring_the_others_to_two_verdicts():
    """Nor keep them from one: an honest majority drops the release, or counts the copy that may be decided."""
    assert explored(Setting(NONE, NONE, malicious="ada", copies=2), most=10_000).states >= 10_000


@pytest.mark.nightly
def test_members_that_believe_what_they_are_told_come_to_two_verdicts():
    with pytest.raises(ViolationError, match="two verdicts"):
        explored(Setting(NONE, NONE, malicious="mia"), make=Gullible, most=400_000, progress=False)


def test_one_malicious_member_of_three_can_bring_the_others_to_two_verdicts():
    """Two majorities of three may share the malicious member alone: docs/notes/settled-rounds.md says so."""
    with pytest.raises(ViolationError, match="two verdicts"):
        explored(Setting(NONE[:3], NONE[:3], malicious="eve"))
