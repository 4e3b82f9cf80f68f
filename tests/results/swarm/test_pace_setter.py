"""The peer that sets the pace of all, from records of live peers in virtual time."""

import msgspec
import pytest

from p2pfl.experiment import read
from p2pfl.experiment.schema import TrainingTimes
from p2pfl.network.virtual.forecast import Network, One, forecast
from p2pfl.network.virtual.virtual_network import Conditions
from p2pfl.results.records import Record, late_senders
from p2pfl.results.swarm.pace_setter import find_pace_setter
from swarms import SMALL

MOBILE = Conditions(latency=0.5, up=8000, down=8000, loss=0.2)
"""The link of the walk with six devices: 64 kbit/s, 500 ms, a fifth of all messages lost."""


def played(*, kind="ring", rounds=5, **network):
    """Return the run of some peers over a network."""
    changes = [f"topology.kind={kind}", "topology.peers=6", f"rounds={rounds}", "learning.weighted=false"]
    return forecast(read(SMALL, changes=changes), Network(**network), baselines=False)


def found(run):
    """Return the peer that sets the pace of a run."""
    records = {peer: [each for each in run.metrics if each.peer == peer] for peer in {r.peer for r in run.metrics}}
    return find_pace_setter(records)


@pytest.mark.parametrize("kind", ["ring", pytest.param("complete", marks=pytest.mark.slow)])
def test_a_peer_behind_a_slow_link_is_named_though_it_trains_as_fast_as_the_others(kind):
    run = played(kind=kind, training=TrainingTimes(seconds=0.2), peers={"peer3": One(link=MOBILE)})
    setter = found(run)
    assert setter.peer == "peer3"
    assert "its models are later than its training explains; check its link" in setter.sentence
    assert [each for each in run.summary["advice"] if each.startswith("peer3 holds up the others for ")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("training", "link"),
    [(0.2, Conditions()), (0.2, MOBILE), (5.0, Conditions(latency=0.1))],
    ids=["quick", "all links are slow", "training takes long"],
)
def test_nobody_is_named_where_all_peers_are_alike(training, link):
    assert found(played(training=TrainingTimes(seconds=training), link=link)) is None


def test_the_slow_leaf_of_a_star_is_named_with_its_link_and_the_centre_that_waits_for_it_is_not():
    run = played(kind="star", training=TrainingTimes(seconds=0.2), peers={"peer3": One(link=MOBILE)})
    setter = found(run)
    assert setter.peer == "peer3"
    assert "models between it and peer0 are late; check the link between them" in setter.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "peers"),
    [
        (MOBILE, {}),
        (Conditions(), {"peer0": One(link=MOBILE)}),
        (Conditions(), {"peer3": One(link=MOBILE), "peer4": One(link=MOBILE)}),
    ],
    ids=["all links are slow", "the link of the centre is slow", "two links are slow"],
)
def test_no_single_leaf_of_a_star_is_named_where_several_are_late(link, peers):
    assert found(played(kind="star", training=TrainingTimes(seconds=0.2), link=link, peers=peers)) is None


@pytest.mark.slow
def test_a_leaf_of_a_star_that_trains_for_long_is_named_for_its_training():
    run = played(kind="star", rounds=12, training=TrainingTimes(seconds=0.2), peers={"peer3": One(seconds=4.0)})
    assert found(run).peer == "peer3"
    assert found(run).sentence.startswith("trains for 4 s a round and the others for 0.2 s, so all wait for it")
    few = played(kind="star", training=TrainingTimes(seconds=0.2), peers={"peer3": One(seconds=4.0)})
    assert found(few) is None  # its link is not to blame


STAR = {"ada": ["eve"], "bob": [], "cy": [], "dan": [], "eve": []}


def in_star(waits=STAR, *, leaf=3, centre=12, waiting=9.0):
    """Return records of a star with ada in its centre, of peers that receive so many models a round."""
    return {
        peer: [msgspec.structs.replace(each, received=centre if peer == "ada" else leaf) for each in rounds]
        for peer, rounds in records(waits, waiting=waiting).items()
    }


def test_only_the_centre_of_a_star_speaks_for_those_that_can_await_nobody_else():
    assert find_pace_setter(in_star()).peer == "eve"
    assert find_pace_setter(in_star(leaf=4)) is None  # they have further neighbours, for which they may wait
    assert find_pace_setter(in_star(waiting=0.9)) is None
    assert find_pace_setter(in_star(STAR | {"ada": ["dan", "eve"]})) is None
    assert find_pace_setter(in_star(STAR | {"ada": []})) is None


def test_the_centre_of_a_star_has_no_leaf_named_alone():
    assert "models between it and ada are late" in find_pace_setter(in_star()).sentence


def records(awaited, *, training=0.1, waiting=9.0):
    """Return three rounds of peers that await neighbours."""
    facts = {"scores": {}, "training_loss": None, "distance": 0.0, "bytes_out": 0, "bytes_in": 0, "received": 2}
    facts |= {"seconds_training": training, "seconds_waiting": waiting}
    return {
        peer: [Record(peer=peer, round=round, awaited=list(late), **facts) for round in range(3)]
        for peer, late in awaited.items()
    }


@pytest.mark.parametrize("awaited_twice", ["cy", "ada"])
def test_a_peer_for_which_all_wait_is_named_alone_though_it_waits_for_one_of_them(awaited_twice):
    others = sorted({"ada", "bob", "cy", "dan", "eve"} - {awaited_twice})
    waits = {awaited_twice: ["dan"]} | {peer: [awaited_twice] for peer in others}
    setter = find_pace_setter(records(waits))
    assert setter.peer == awaited_twice
    assert "check its link" in setter.sentence


RING = {"ada": "bob", "bob": "ada", "cy": "bob", "dan": "cy", "eve": "ada"}


def test_a_peer_that_trains_for_long_is_not_blamed_for_its_link():
    waits = {peer: ["ada"] for peer in RING} | {"ada": []}
    long = {peer: each * 4 for peer, each in records(waits, waiting=6.0, training=3.0).items()}
    long["ada"] = records(waits, waiting=0.0, training=8.5)["ada"] * 4
    assert find_pace_setter(long) is None  # less than three times as long: no news
    long["ada"] = records(waits, waiting=0.0, training=9.5)["ada"] * 4
    setter = find_pace_setter(long)
    assert setter.peer == "ada"
    assert setter.sentence.startswith("trains for 9.5 s a round and the others for 3 s, so all wait for it")


def test_two_peers_that_await_each_other_are_named_with_the_link_between_them():
    waits = {peer: [name] for peer, name in RING.items()}
    setter = find_pace_setter(records(waits))
    assert setter.peer == "ada"
    assert "models between it and bob are late; check the link between them" in setter.sentence


def test_one_lying_peer_has_no_other_named_alone():
    idle = records({"ada": [], "bob": [], "mallory": []}, waiting=0.2)
    idle["mallory"] = records({"mallory": ["ada"]}, waiting=1e6)["mallory"]
    assert find_pace_setter(idle) is None
    setter = find_pace_setter(records({"ada": [], "bob": ["mallory"], "cy": ["mallory"], "mallory": ["ada"]}))
    assert setter.peer == "ada"
    assert "models between it and mallory are late" in setter.sentence
    trains = {"ada": 2.0, "bob": 1.0, "mallory": 0.0}
    apart = {peer: records({peer: []}, training=each, waiting=0.9)[peer] * 4 for peer, each in trains.items()}
    apart["mallory"] = records({"mallory": []}, training=0.0, waiting=1e6)["mallory"] * 4
    assert find_pace_setter(apart) is None


def test_peers_that_nobody_knows_or_that_few_await_are_not_named():
    assert find_pace_setter(records({peer: ["mallory"] for peer in RING})) is None
    assert find_pace_setter(records({peer: ["ada"] if peer == "bob" else [] for peer in RING})) is None
    assert find_pace_setter(records({peer: [name] for peer, name in RING.items()}, waiting=0.9)) is None
    short = {peer: each[:2] for peer, each in records({peer: ["ada"] for peer in RING}).items()}
    assert find_pace_setter(short) is None


def test_a_wait_in_one_round_of_three_is_no_pace():
    once = {
        peer: [msgspec.structs.replace(each, awaited=each.awaited if each.round == 1 else []) for each in rounds]
        for peer, rounds in records({peer: [name] for peer, name in RING.items()}).items()
    }
    assert find_pace_setter(once) is None


def test_only_neighbours_that_differ_from_the_others_are_late():
    assert late_senders({"ada": 9.0, "bob": 0.0, "cy": 4.0}) == ["ada", "cy"]
    assert late_senders({"ada": 9.0}) == []
    assert late_senders({}) == []
