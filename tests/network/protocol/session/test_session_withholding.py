"""Sessions of a committee of which one member reports, and withholds its acceptance."""

import pytest

from commit_sessions import NAMES, Swarm
from p2pfl.network.protocol.interface.effects import Concluded
from p2pfl.network.protocol.interface.requests import Try

SEVEN = tuple(f"peer{number}" for number in range(7))


def rounds(swarm, count, *, first=0):
    """Play rounds; return by round its owner and the seconds until all know that it counts."""
    found = []
    for round in range(first, first + count):
        if round:
            for name in swarm.names:
                swarm.ask(name, Try(round, 0, swarm.names))
        found.append((swarm.owner, swarm.settle()))
    counted = Concluded(committed=True, members=swarm.names)
    assert all(answer == counted for answers in swarm.answers.values() for answer in answers)
    return found


def news(swarm):
    """Return what each session reports about members that withhold, by name."""
    return {name: said for name in swarm.names if (said := swarm.sessions[name].take_withheld())}


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("names", [NAMES[:3], NAMES, SEVEN])
def test_an_owner_waits_once_for_a_member_that_withholds_its_acceptance(names):
    """It waits a quarter of a second, and not at all once the next round has shown it the member."""
    swarm = Swarm(names=names)
    swarm.withholders = {names[1]}
    played = rounds(swarm, 40)
    for round, (owner, seconds) in enumerate(played):
        if owner != names[1]:
            knows = owner in {before for before, _ in played[: max(0, round - 1)]}
            assert seconds == pytest.approx(0.0 if knows else 0.25, abs=0.051), round
    assert {owner for owner, _ in played} == {*names}


def test_each_owner_names_the_member_the_first_second_and_fourth_time():
    swarm = Swarm()
    swarm.withholders = {"bob"}
    owners = [owner for owner, _ in rounds(swarm, 40)]
    said = news(swarm)
    for name, each in said.items():
        if name == "bob":
            continue  # its proposals are not sent either, which the others name in the same way
        mine = [round for round, owner in enumerate(owners[:-1]) if owner in {name, "bob"}]  # and not of the last one
        assert [(found.member, found.round, found.times) for found in each] == [
            ("bob", mine[times - 1], times) for times in (1, 2, 4, 8, 16) if times <= len(mine)
        ]
    assert {*said} == {*NAMES}
    assert not news(swarm)


def test_a_member_that_accepts_again_is_waited_for_again():
    swarm = Swarm()
    swarm.withholders = {"bob"}
    rounds(swarm, 20)
    swarm.withholders = set()
    rounds(swarm, 20, first=20)
    swarm.withholders = {"bob"}
    waited = {owner for owner, seconds in rounds(swarm, 20, first=40) if seconds > 0.2}
    assert waited == {*NAMES}  # bob withholds from itself too: that is, it does not propose


def test_nobody_is_named_where_all_accept_or_one_dies():
    swarm = Swarm()
    rounds(swarm, 10)
    for name in NAMES:
        swarm.ask(name, Try(10, 0, NAMES))
    swarm.dead.add(swarm.others(swarm.owner)[0])
    left = tuple(name for name in NAMES if name not in swarm.dead)
    swarm.settle()
    for name in left:
        swarm.ask(name, Try(10, 1, left))
    swarm.settle()
    assert {name: swarm.sessions[name].take_withheld() for name in left} == {name: [] for name in left}


def idle_swarm(names, idle):
    """Return a swarm of which one member sends its report to all at once, and as an owner nothing else."""
    swarm = Swarm(names=names)
    swarm.idle = {idle}
    swarm.sessions[idle].commits.ballots.withholders.passed[idle] = 1
    swarm.settle()
    return swarm


@pytest.mark.parametrize("names", [NAMES, SEVEN])
def test_an_owner_that_sends_nothing_but_its_report_delays_rounds_less_and_less(names):
    swarm = idle_swarm(names, names[1])
    played, delays = rounds(swarm, 60, first=1), [4.0, 1.0, 0.5, 0.25]
    for round, (owner, seconds) in enumerate(played):
        if owner == names[1]:
            known = sum(
                before == owner for before, _ in played[: max(0, round - 1)]
            )  # of the last one nobody knows yet
            assert seconds == pytest.approx(delays[min(known, 3)], abs=0.11), round
    assert sum(owner == names[1] for owner, _ in played) > 4


def test_each_other_member_of_the_committee_names_an_owner_that_sends_nothing_but_its_report():
    swarm = idle_swarm(NAMES, "bob")
    owned = [round for round, (owner, _) in enumerate(rounds(swarm, 40, first=1)[:-1], start=1) if owner == "bob"]
    expected = [("bob", owned[times - 1], times) for times in (1, 2, 4, 8, 16) if times <= len(owned)]
    said = news(swarm)
    assert [[(*each,) for each in said[name]] for name in ("ada", "dan", "eve")] == [expected] * 3


def test_a_member_that_keeps_its_report_from_healthy_owners_shortens_their_rounds_and_names_nobody():
    swarm = Swarm()
    swarm.settle()
    swarm.evasive = "bob"
    played = rounds(swarm, 24, first=1)
    assert max(seconds for _, seconds in played) < 4.2
    assert max(seconds for owner, seconds in played[-8:] if owner != "bob") < 2.5
    assert {each for each, times in swarm.sessions["bob"].commits.ballots.withholders.passed.items() if times} == {
        "ada",
        "dan",
        "eve",
    }
    assert news(swarm) == {}


def test_an_owner_that_leads_decisions_again_has_its_time_back():
    swarm = idle_swarm(NAMES, "bob")
    rounds(swarm, 20, first=1)
    assert swarm.sessions["ada"].commits.ballots.withholders.passed["bob"] > 1
    swarm.idle = set()
    rounds(swarm, 60, first=21)
    assert {
        name: each.commits.ballots.withholders.passed["bob"] for name, each in swarm.sessions.items()
    } == dict.fromkeys(NAMES, 0)
