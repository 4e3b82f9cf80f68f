"""What peers of running sums state at their end, added up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.algorithms import start
from p2pfl.experiment import plan, read
from p2pfl.results.notices.masses import account
from p2pfl.results.notices.masses import given as stated

PATH = plan(
    read(
        {
            "topology": {"kind": "path", "peers": 4},
            "data": {"name": "wine"},
            "model": {"name": "linear"},
            "learning": {"algorithm": "robust_sgp"},
        }
    )
)


def test_one_death_took_its_own_mass_and_what_its_neighbours_gave_it():
    found = account(
        PATH,
        {"peer0": {"peer1": 0.25}, "peer1": {"peer0": -0.25, "peer2": 0.5}, "peer2": {"peer1": -0.5, "peer3": 0.75}},
    )
    assert found["lost"] == [{"peers": ["peer3"], "mass": 1.75}]
    assert (found["of"], found["held"], found["on_its_way"]) == (4, 2.25, 0.0)
    assert (
        found["statement"]
        == "of a total weight of 4 the death of peer3 took 1.75; the average is that of the other 2.25"
    )


def test_of_deaths_side_by_side_only_what_they_took_together_is_known():
    found = account(PATH, {"peer0": {"peer1": 0.5}, "peer3": {"peer2": -0.125}})
    assert found["lost"] == [{"peers": ["peer1", "peer2"], "mass": 2.375}]
    assert found["statement"] == (
        "of a total weight of 4 the deaths of peer1, peer2 took 2.375 together; the average is that of the other 1.625"
    )


def test_deaths_apart_are_told_apart():
    found = account(PATH, {"peer1": {"peer0": 0.5, "peer2": 0.25}, "peer3": {"peer2": 0.5}})
    assert found["lost"] == [{"peers": ["peer0"], "mass": 1.5}, {"peers": ["peer2"], "mass": 1.75}]
    assert "the death of peer0 took 1.5, the death of peer2 took 1.75;" in found["statement"]


def test_what_one_survivor_gave_and_the_other_had_not_never_arrived():
    found = account(PATH, {f"peer{n}": {} for n in range(4)} | {"peer1": {"peer2": 0.5}, "peer2": {"peer1": -0.25}})
    assert found["lost"] == []
    assert found["statement"] == "of a total weight of 4 0.25 never arrived; the average is that of the other 3.75"


def test_where_nothing_is_missing_nothing_is_said():
    assert account(PATH, {f"peer{n}": {} for n in range(4)})["statement"] == ""


def test_who_never_played_gave_nothing_and_other_algorithms_keep_no_account():
    names = PATH.topology.peers
    begin = start(PATH.learner, names)
    assert stated(PATH, begin, peers=names)["peer1"] == {"peer0": 0.0, "peer2": 0.0}
    plain = plan(
        read({"topology": {"kind": "path", "peers": 4}, "data": {"name": "wine"}, "model": {"name": "linear"}})
    )
    assert stated(plain, begin, peers=names) is None


masses = st.floats(-2.0, 2.0)


@given(st.sets(st.sampled_from(PATH.topology.peers), min_size=1), st.data())
def test_held_on_its_way_and_lost_are_all_there_is(left, data):
    said = {peer: {to: data.draw(masses) for to in PATH.topology.neighbours(peer)} for peer in sorted(left)}
    found = account(PATH, said)
    lost = sum(each["mass"] for each in found["lost"])
    assert found["held"] + found["on_its_way"] + lost == pytest.approx(found["of"])
    dead = [peer for each in found["lost"] for peer in each["peers"]]
    assert sorted(dead) == sorted(set(PATH.topology.peers) - left)
