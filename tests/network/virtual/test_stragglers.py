"""Peers that hang, and peers that are slow, in virtual time: what the others lose by them."""

import re
from functools import cache

import pytest
import torch

from p2pfl.experiment import read
from p2pfl.experiment.schema import TrainingTimes
from p2pfl.network.virtual.forecast import Network, One, forecast
from swarms import SMALL
from worlds.explore import outcome as explored
from worlds.faults import History, Pause
from worlds.network import Conditions
from worlds.settings import Plans, Setting
from worlds.world import World, line_of

pytestmark = pytest.mark.slow

AVERAGING = ("learning.algorithm=fedavg", "topology.kind=complete", "topology.peers=4", "gossip.steps=2")
PATIENCE, HANG, HUNG = 60.0, 12.0, 20.0


@cache
def played(*changes, hung=0.0, slow=1.0, rounds=40):
    """A world of pure averaging in rounds of a second, in which peer3 hangs once, or takes a multiple of that."""
    setting = Setting((*AVERAGING, f"transport.patience={PATIENCE}", f"rounds={rounds}", *changes))
    plan = Plans().of(setting, seed=1)
    names = plan.topology.peers
    takes = dict.fromkeys(names, 1.0) | {"peer3": slow}
    pauses = (Pause("peer3", HANG, hung),) if hung else ()
    conditions = dict.fromkeys(names, Conditions(latency=0.02))
    world = World(1, setting, plan, History(frozenset({"pauses"}), conditions, {}, takes, pauses))
    outcome = world.run()
    return world, outcome


def learned(world, name):
    """When a peer had played its last round."""
    (line,) = [line for line in map(line_of, world.entries) if re.search(rf" done {name} ", line)]
    return float(line.split()[0])


def test_a_peer_that_hangs_is_given_up_when_phi_says_so_and_trusted_again_when_it_is_heard():
    usual, _ = played()
    world, outcome = played(hung=HUNG)
    assert outcome.failure == ""  # also: the mean of the rows is that of the goals, or it is said that it may not be
    lost = learned(world, "peer0") - learned(usual, "peer0")
    assert 8.0 < lost < 13.0  # phi reaches 8 after 9.4 s, and is looked at each second; patience is 60 s
    for name in ("peer0", "peer1", "peer2"):
        missed = world.ended[name].missed
        assert 10 < missed < 2 * (HUNG + 2)  # of 2 x 40: it is heard again, in the rounds in which they are
    assert usual.ended["peer0"].missed == 0


@pytest.mark.parametrize("graph", ["complete", "one_peer_exponential"])
def test_peers_that_train_longer_than_phi_would_wait_are_not_suspected(graph):
    """In a schedule also not by those who do not listen in the exchange in which they are."""
    world, outcome = played(f"topology.kind={graph}", slow=25.0, rounds=4)
    assert outcome.failure == ""
    assert all(ended.missed == 0 for ended in world.ended.values())


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize(("at", "wakes"), [(10.0, 38.0), (10.0, 36.0), (14.0, 36.0), (16.4, 33.6), (22.0, 42.5)])
def test_a_peer_that_hung_and_neighbours_that_wait_for_a_slow_one_do_not_wait_for_each_other(at, wakes):
    """On a ring of four, both neighbours of peer3 wait for peer1; they are up to two rounds ahead when it wakes."""
    setting = Setting(
        (
            "learning.algorithm=fedavg",
            "topology.kind=ring",
            "topology.peers=4",
            "gossip.steps=1",
            "rounds=10",
            "transport.patience=60",
        )
    )
    plan = Plans().of(setting, seed=1)
    names = plan.topology.peers
    conditions, takes = dict.fromkeys(names, Conditions(latency=0.02)), dict.fromkeys(names, 1.0) | {"peer1": 8.0}
    pauses = (Pause("peer3", at, wakes - at),)
    world = World(1, setting, plan, History(frozenset({"pauses"}), conditions, {}, takes, pauses))
    assert world.run().failure == ""
    assert max(learned(world, name) for name in names) < 10 * 8.0 + HANG


@cache
def forecasted(hurry):
    changes = [*AVERAGING, "rounds=40", "learning.weighted=false", f"transport.hurry={hurry}"]
    over = Network(
        link=Conditions(latency=0.05), training=TrainingTimes(seconds=1.0), peers={"peer3": One(seconds=10.0)}
    )
    return forecast(read(SMALL, changes=changes), over, baselines=False)


@pytest.mark.nightly
def test_a_straggler_ten_times_slower_does_not_slow_the_others():
    a_round, settled = 1.0 + 2 * 0.1, 25.0  # training and two exchanges; three rounds are needed to see who is slow
    assert forecasted(1.0).summary["wall_s"] > 40 * 10.0
    assert forecasted(0.5).summary["wall_s"] < 40 * a_round + settled + 10.0  # and at the end one waits for the slow
    waited = [r.seconds_waiting for r in forecasted(0.5).metrics if r.peer != "peer3" and r.round > 3]
    assert sum(waited) / len(waited) < 0.4


def test_a_straggler_plays_rounds_of_which_the_others_hear_in_time():
    records = forecasted(0.5).metrics
    its = [r.round for r in records if r.peer == "peer3"]
    assert its[0] == 0
    assert its[-1] == 39
    assert 5 <= len(its) <= 10
    together = [r for r in records if r.round in its[3:-1]]
    assert len(together) == 4 * len(its[3:-1])
    assert all(r.missed == [] for r in together)


def test_rows_that_come_late_still_count():
    """With each peer at its goal after round 0, the mean is exact only if the straggler's own goal is in it."""
    world, outcome = played("transport.hurry=0.5", slow=10.0, rounds=30)
    assert outcome.failure == ""
    assert sum(ended.missed for ended in world.ended.values()) > 30
    rows = torch.stack([world.ended[name].state.rows[0] for name in world.plan.topology.peers])
    goals = torch.stack([world.plan.learner.goal(name) for name in world.plan.topology.peers])
    assert torch.allclose(rows.mean(0), goals.mean(0), rtol=0, atol=1e-9)


def test_who_came_after_the_last_release_and_masked_with_us_is_paid():
    assert explored(387, plans=Plans()).failure == ""


def test_a_swarm_of_equals_that_hurries_misses_nothing():
    world, outcome = played("transport.hurry=0.5", rounds=20)
    assert outcome.failure == ""
    assert all(ended.missed == 0 for ended in world.ended.values())
