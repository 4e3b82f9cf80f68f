"""Swarms whose graph heals in simulated worlds: half of the peers die, and the others end together."""

from itertools import combinations

import numpy as np
import pytest
import torch

from p2pfl.network.protocol.session.presence import Presence
from p2pfl.network.virtual.network import Conditions, Restart
from worlds.faults import Death, History
from worlds.settings import Plans, Setting
from worlds.world import World

pytestmark = pytest.mark.slow

PLANS = Plans()
SETTLED = 1e-3
"""What averaging leaves of goals of up to 16, after rounds enough."""


def world(kind, *changes, deaths=(), rounds=18, steps=2, seed=1, heal=True, loss=0.0, takes=0.3, restarts=()):
    """A swarm that averages its goals, and what became of it."""
    given = (f"topology.kind={kind}", "topology.peers=8", f"topology.heal={str(heal).lower()}")
    line = ("transport.patience=8", "transport.chunk=4096", f"gossip.steps={steps}", f"rounds={rounds}")
    setting = Setting((*given, *line, "learning.algorithm=fedavg", *changes))
    plan = PLANS.of(setting, seed=seed)
    names = plan.topology.peers
    conditions = dict.fromkeys(names, Conditions(latency=0.03, jitter=0.01, loss=loss))
    trains = dict.fromkeys(names, takes)
    history = History(frozenset({"deaths"}), conditions, {}, trains, deaths=deaths, restarts=restarts)
    made = World(seed, setting, plan, history)
    return made, made.run()


def spread(made):
    """How far the rows of those who ended are from their mean, and how many these are."""
    rows = torch.stack([ended.state.rows[0] for ended in made.ended.values() if ended.state is not None])
    return float((rows - rows.mean(0)).abs().max()), len(rows)


def agreed(made, *, left):
    apart, count = spread(made)
    assert count == left
    assert apart < SETTLED


def killed(*numbers, event=250, silent=False):
    return tuple(Death(f"peer{number}", event + 7 * place, silent) for place, number in enumerate(numbers))


def conserved(made):
    """Rows are goals and flows, and what moved between two who ended is the same at both: nothing was made or lost."""
    goals, flows = made.plan.learner, {}
    for name, ended in made.ended.items():
        if ended.state is None:
            continue
        flows[name] = made.watch.flows(name)
        moved = sum((row for each in flows[name].values() for row in each.values()), np.zeros(1))
        assert np.abs(ended.state.rows[0].numpy() - goals.goal(name).numpy() - moved).max() < 1e-9
    for one, other in combinations(flows, 2):
        here, there = flows[one].get(other, {}), flows[other].get(one, {})
        assert here.keys() == there.keys()
        assert all(np.array_equal(here[each], -there[each]) for each in here)


def test_a_ring_that_loses_two_of_its_peers_stays_one_and_without_healing_is_two():
    deaths = killed(2, 6)
    made, outcome = world("ring", deaths=deaths)
    assert not outcome.failure
    agreed(made, left=6)
    parts, outcome = world("ring", deaths=deaths, heal=False)
    assert not outcome.failure
    apart, left = spread(parts)
    assert left == 6
    assert apart > 0.01
    conserved(made)


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("kind", ["ring", "circulant", "random_regular", "exponential", "one_peer_exponential"])
def test_half_of_the_peers_die_and_the_others_agree(kind):
    made, outcome = world(kind, deaths=killed(1, 2, 5, 6, event=300))
    assert not outcome.failure
    agreed(made, left=4)
    if all(weights.symmetric for weights in made.plan.weights):
        conserved(made)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2))
def test_views_that_differ_while_words_are_lost_conserve_the_mean(seed):
    made, outcome = world("circulant", deaths=killed(1, 4, 5), loss=0.2, seed=seed)
    assert not outcome.failure
    assert made.transport.counts["lost"] > 50
    agreed(made, left=5)
    conserved(made)


def test_a_will_that_was_lost_is_found_on_the_board():
    """Only the first of each word is lost: what a listener is told again, it hears."""
    made, outcome = deaf()
    assert not outcome.failure
    agreed(made, left=6)


def test_without_the_board_a_will_that_was_lost_leaves_the_ring_open(monkeypatch):
    def blind(_self):
        """Look at nothing."""

    monkeypatch.setattr(Presence, "look", blind)
    made, _ = deaf()
    apart, _ = spread(made)
    assert apart > SETTLED


def deaf():
    """A ring in which no neighbour of one that dies, nor a neighbour of another, hears its will at first."""
    given = ("topology.kind=ring", "topology.peers=8", "topology.heal=true", "gossip.steps=2", "rounds=24")
    setting = Setting((*given, "transport.patience=8", "transport.chunk=4096", "learning.algorithm=fedavg"))
    plan = PLANS.of(setting, seed=1)
    names = plan.topology.peers
    conditions = dict.fromkeys(names, Conditions(latency=0.03))
    history = History(frozenset({"deaths"}), conditions, {}, dict.fromkeys(names, 0.5), deaths=killed(2, 6))
    made = World(1, setting, plan, history)
    deliver, dropped = made.transport.broker._deliver, set()

    def lossy(channel, message):
        dead = (
            channel.who in {"peer1", "peer5"}
            and made.watch.dead
            and message.topic.endswith(("peer2/state", "peer6/state"))
        )
        if dead and (channel.who, message.topic) not in dropped:
            dropped.add((channel.who, message.topic))
            return
        deliver(channel, message)

    made.transport.broker._deliver = lossy
    return made, made.run()


def test_a_broker_that_says_of_all_that_they_are_dead_is_not_believed_for_long():
    made, outcome = world("ring", deaths=killed(2), restarts=(Restart(8.0, 1.0, True, True),), rounds=24)
    assert not outcome.failure
    agreed(made, left=7)


def test_whose_power_goes_is_skipped_once_the_broker_has_noticed():
    made, outcome = world("ring", deaths=killed(2, 6, silent=True), rounds=30, takes=1.5)
    assert not outcome.failure
    agreed(made, left=6)


def test_masks_heal_not_but_their_ledger_settles_what_the_dead_owe():
    made, outcome = world(
        "ring", "privacy.mode=pairwise", "privacy.partners=1", deaths=killed(2, 6), rounds=3, steps=16
    )
    assert not outcome.failure
    apart, left = spread(made)
    assert left == 6
    assert apart < 0.1  # masks of 3 shrink with the rest
