"""Every interleaving of three peers, and machines that are broken on purpose."""

import pytest

from ballots import AGAIN, COUNTS
from exploring.__main__ import HEAD, MARKS, refreshed
from exploring.explorer import Explorer, ViolationError
from exploring.masked import Masked, MaskInvariants
from exploring.members import NAMES, Invariants, Member, members
from exploring.mutants import (
    Belated,
    Deaf,
    Faithless,
    Forgetful,
    Half,
    Hasty,
    Lone,
    Loose,
    Once,
    Reconsidering,
    Reopening,
    Reusing,
    Secretive,
    Silent,
    Unbound,
    Unproven,
)

MOST = 400_000
AFTER_A_CRASH = {"size": 3, "ballots": (0, 1, 0), "crashes": (0, 0, 1), "proposed": AGAIN}


def explored(*, masked=False, most=MOST, blocking=True, progress=True, **given):
    """An exploration of all states; it fails where an invariant does not hold."""
    actors = members(blocking=blocking, **given)
    made, proposed = MaskInvariants if masked else Invariants, given.get("proposed", COUNTS)
    invariants = made(len(actors), proposed=proposed, progress=progress)
    return Explorer(actors, invariants.actors, invariants.messages, most=most).run()


@pytest.mark.slow
def test_three_peers_that_crash_never_hold_two_verdicts_and_are_never_stuck():
    found = explored(size=3, ballots=(0, 0, 0), crashes=(1, 1, 1), blocking=False)
    assert found.complete
    assert found.states > 1_000


@pytest.mark.slow
def test_three_peers_that_decide_to_play_again_never_hold_two_verdicts_and_are_never_stuck():
    found = explored(size=3, ballots=(0, 0, 0), crashes=(1, 0, 1), blocking=False, proposed=AGAIN)
    assert found.complete
    assert found.states > 10_000


@pytest.mark.parametrize(
    "crashes",
    [
        pytest.param((0, 0, 0), marks=pytest.mark.slow),
        pytest.param((0, 1, 0), marks=pytest.mark.nightly),
        pytest.param((1, 0, 0), marks=pytest.mark.nightly),
    ],
)
def test_three_peers_with_a_second_ballot_never_hold_two_verdicts_and_are_never_stuck(crashes):
    """There are too many states to see all of them; docs/notes/settled-rounds.md says how far scripts/explore went."""
    found = explored(size=3, ballots=(0, 1, 0), crashes=crashes, most=100_000)
    assert found.complete or found.states >= 100_000


@pytest.mark.slow
def test_no_mask_key_hides_two_plaintexts_whoever_crashes():
    found = explored(size=3, kind=Masked, masked=True, ballots=(0, 0, 0), crashes=(1, 1, 1), most=100_000)
    assert found.complete or found.states >= 100_000


@pytest.mark.slow
def test_no_mask_key_hides_two_plaintexts_where_models_may_be_dropped():
    """There are too many states to see all of them; docs/notes/settled-rounds.md says how far scripts/explore went."""
    found = explored(size=3, kind=Masked, masked=True, ballots=(0, 1, 0), crashes=(0, 1, 0), most=100_000)
    assert found.states >= 100_000


@pytest.mark.sampled(fast=0, all=4)
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"size": 2, "group": Half(NAMES[:2]), "ballots": (0, 1), "proposed": AGAIN}, "two verdicts"),
        ({"size": 3, "make": Hasty, "ballots": (0, 1, 0), "crashes": (0, 1, 0)}, "two verdicts|two values"),
        ({"size": 3, "make": Deaf, "ballots": (0, 1, 0), "proposed": AGAIN}, "two verdicts"),
        ({"size": 3, "make": Faithless, "ballots": (0, 1, 0)}, "two verdicts"),
        ({"size": 3, "make": Lone, "ballots": (0, 1, 0)}, "no verdict"),
        ({"size": 3, "make": Once, "ballots": (0, 1, 0)}, "no verdict"),
        ({"size": 3, "make": Silent, "ballots": (0, 1, 0)}, "two verdicts"),
        ({"size": 3, "make": Loose, "ballots": (0, 1, 0)}, "no verdict"),
        ({"size": 3, "make": Belated, "ballots": (0, 1, 0), "progress": False}, "two verdicts"),
        ({"size": 3, "make": Unproven, "ballots": (0, 1, 0)}, "no verdict"),
        ({"size": 3, "make": Reopening, "ballots": (0, 1, 0), "progress": False}, "two verdicts"),
        ({**AFTER_A_CRASH, "kind": Reconsidering, "most": 1_000_000, "progress": False}, "two verdicts"),
        ({"size": 3, "make": Secretive, "ballots": (0, 1, 0)}, "no verdict"),
        ({"size": 3, "kind": Forgetful, "ballots": (0, 1, 0), "crashes": (0, 1, 0)}, "two verdicts|two values"),
        ({"size": 3, "kind": Unbound, "ballots": (0, 1, 0), "crashes": (1, 0, 0)}, "two verdicts|two values"),
        ({"size": 3, "kind": Reusing, "masked": True, "ballots": (0, 1, 0), "crashes": (0, 1, 0)}, "one key"),
    ],
    ids=[
        "half",
        "hasty",
        "deaf",
        "faithless",
        "lone",
        "once",
        "silent",
        "loose",
        "belated",
        "unproven",
        "reopening",
        "reconsidering",
        "secretive",
        "forgetful",
        "unbound",
        "reusing",
    ],
)
def test_a_broken_machine_is_found(given, why):
    with pytest.raises(ViolationError, match=why) as found:
        explored(**given)
    assert found.value.trace


@pytest.mark.nightly
def test_a_bare_half_of_four_is_found_as_one_of_two_is():
    with pytest.raises(ViolationError, match="two verdicts"):
        explored(size=4, group=Half(NAMES), ballots=(0, 1, 0, 0), proposed=AGAIN)


def test_a_counterexample_is_the_way_to_it():
    with pytest.raises(ViolationError) as found:
        explored(size=3, make=Once, ballots=(0, 1, 0))
    assert found.value.trace[0] in ("ada proposes", "bob times out")
    assert len(found.value.trace) < 12


def test_a_member_that_is_down_receives_nothing():
    member = Member("bob", members(size=3)["bob"].committee)
    assert member.moves() == ["restart"]
    assert member.receives("ada", None) is None


def test_a_row_of_the_table_is_written_and_the_others_stay():
    page = "\n".join(["before", MARKS[0], "", *HEAD, "| one |", "| two |", "", MARKS[1], "after"])
    assert refreshed(page, 2, "| other |") == page.replace("two", "other")
    assert refreshed(page, 3, "| third |") == page.replace("| two |\n", "| two |\n| third |\n")
