"""Neighbourhoods that mix by a rule, and those in which some lie."""

import numpy as np
import pytest
import torch
from golden import GOLDEN, scattered

from p2pfl.algorithms.robust import (
    Attack,
    ClippedGossip,
    Krum,
    Median,
    SelfCentredClipping,
    TrimmedMean,
    add_attack,
    robust,
)
from p2pfl.core.draws import draw
from p2pfl.core.errors import RunError
from p2pfl.core.neighbourhood import Public, Released, run_without_loop
from p2pfl.simulation import Faults, StackedNeighbourhood
from p2pfl.topology import complete, metropolis, ring, small_world

ROWS = scattered(9)
BYZANTINE = frozenset({"peer3", "peer7"})


def stack(topology=None, *, faults=None):
    return StackedNeighbourhood(
        [metropolis(complete(9) if topology is None else topology)], round=0, seed=3, faults=faults
    )


def exchanged(net, rows=ROWS, *, since=None):
    """Rows after a release and an exchange."""

    async def both():
        released = await net.release(rows, since=Public(torch.zeros_like(rows) if since is None else since))
        return await net.mix(released)

    return run_without_loop(both()).values


def attacking(name, **settings):
    return Attack(name, BYZANTINE, 9, **settings)


def test_without_attackers_clipped_gossip_is_the_neighbourhood_itself():
    net = stack()
    assert robust(net, ClippedGossip(0)) is net
    assert robust(net, None) is net


@pytest.mark.parametrize("rule", [TrimmedMean(0), SelfCentredClipping(1e9), ClippedGossip(8)])
def test_where_nothing_is_cut_off_a_rule_is_the_plain_average(rule):
    rows = ROWS if rule != ClippedGossip(8) else ROWS[:1].expand(9, -1).clone()
    assert torch.allclose(exchanged(robust(stack(), rule), rows), exchanged(stack(), rows), atol=1e-14)


def test_each_peer_makes_one_row_of_those_that_it_hears_its_own_first():
    topology = small_world(9, degree=4, rewire=0.5, seed=3)
    found = exchanged(robust(stack(topology), ClippedGossip(1)))
    for index, peer in enumerate(topology.peers):
        weights = metropolis(topology).row(peer)
        names = [peer, *sorted(set(weights) - {peer})]
        rows = torch.stack([ROWS[topology.peers.index(name)] for name in names])
        share = torch.tensor([weights[name] for name in names], dtype=torch.float64)
        assert torch.allclose(found[index], ClippedGossip(1)(rows, share), atol=1e-14)


def test_who_hears_too_few_keeps_its_own_row():
    lost = Faults(loss=0.999999)
    assert torch.equal(exchanged(robust(stack(faults=lost), Median(1))), ROWS)
    assert torch.equal(exchanged(robust(stack(ring(9)), Krum(1))), ROWS)  # three rows, five are needed


def test_rows_with_masses_are_refused():
    net = robust(stack(), Median(1))
    released = Released(ROWS, torch.ones(9, 1, dtype=torch.float64))
    with pytest.raises(
        RunError,
        match=(
            "a robust rule does not accept sample weights, which a Byzantine peer could inflate; set "
            r'learning\.weighted = false, or robustness\.rule = "none"'
        ),
    ):
        run_without_loop(net.mix(released))


def test_how_far_rows_moved_is_told_as_it_is_of_a_plain_average():
    net = stack()
    mixed = exchanged(robust(net, Median(1), observer=net))
    assert net.distance.tolist() == pytest.approx((mixed - ROWS).norm(dim=-1).tolist())


def test_where_nobody_lies_the_neighbourhood_is_itself():
    net = stack()
    assert add_attack(net, None, round=0) is net
    assert add_attack(net, Attack("sign_flip", frozenset(), 9), round=0) is net
    assert add_attack(net, attacking("label_flip"), round=0) is net


@pytest.mark.parametrize(
    ("name", "scale", "expected"), [("alie", 1.5, "alie"), ("ipm", 0.5, "ipm"), ("sign_flip", 1.0, "sign flip")]
)
def test_a_lie_is_that_of_byzfl(name, scale, expected):
    honest = ROWS if name != "sign_flip" else ROWS[:1]
    rows = torch.cat([honest, ROWS[:1]])  # the last one attacks
    names = [f"peer{index}" for index in range(len(rows))]
    attack = Attack(name, frozenset(names[-1:]), len(rows), scale)
    sent = attack.corrupted(rows, since=torch.zeros_like(rows), peers=names, round=0, step=0)
    assert sent[-1].tolist() == pytest.approx(GOLDEN[expected], abs=2e-6)
    assert torch.equal(sent[:-1], rows[:-1])


def test_lies_turn_round_the_update_and_not_the_row():
    since = scattered(9) + 5.0
    names = complete(9).peers
    for name, factor in (("sign_flip", -1.0), ("scaled", 10.0)):
        sent = attacking(name).corrupted(since + ROWS, since=since, peers=names, round=0, step=0)
        assert torch.allclose(sent[3], since[3] + factor * ROWS[3])
        assert torch.equal(sent[4], since[4] + ROWS[4])
    sent = attacking("ipm", scale=0.5).corrupted(since + ROWS, since=since, peers=names, round=0, step=0)
    honest = [0, 1, 2, 4, 5, 6, 8]
    assert torch.allclose(sent[7], since[honest].mean(0) - 0.5 * ROWS[honest].mean(0))


def test_random_lies_are_drawn_by_key_afresh_for_each_peer_round_and_exchange():
    attack, names = attacking("random", seed=5), complete(9).peers
    since = torch.zeros_like(ROWS)
    first = attack.corrupted(ROWS, since=since, peers=names, round=2, step=1)
    assert torch.equal(first[3], torch.from_numpy(draw(5, "lie 1", "peer3", 2).standard_normal(4)))
    alone = attack.corrupted(ROWS[3:4], since=since[3:4], peers=("peer3",), round=2, step=1)
    assert torch.equal(alone[0], first[3])
    others = [attack.corrupted(ROWS, since=since, peers=names, round=r, step=s)[3] for r, s in ((2, 2), (3, 1))]
    assert not any(torch.equal(each, first[3]) for each in (*others, first[7]))


def test_a_malicious_peer_is_true_to_itself_and_lies_to_all_others():
    net = add_attack(stack(), attacking("sign_flip"), round=0)
    found = exchanged(net)
    told = ROWS.clone()
    told[[3, 7]] *= -1
    for index in range(9):
        heard = told.clone()
        heard[index] = ROWS[index]
        assert torch.allclose(found[index], heard.mean(0), atol=1e-14)


def test_a_rule_hears_what_the_average_hears():
    net = robust(add_attack(stack(), attacking("scaled", scale=1e6), round=0), TrimmedMean(2))
    found = exchanged(net)
    honest = [0, 1, 2, 4, 5, 6, 8]
    assert (found <= ROWS[honest].amax(0) + 1e-12)[honest].all()
    assert (found >= ROWS[honest].amin(0) - 1e-12)[honest].all()


def test_dissensus_leaves_every_honest_peer_where_it_was_as_its_paper_says():
    topology = small_world(9, degree=4, rewire=0.5, seed=3)
    found = exchanged(add_attack(stack(topology), attacking("dissensus"), round=0))
    met = [
        i for i, peer in enumerate(topology.peers) if peer not in BYZANTINE and BYZANTINE & {*topology.receivers(peer)}
    ]
    assert len(met) > 3
    assert torch.allclose(found[met], ROWS[met], atol=1e-13)
    away = exchanged(add_attack(stack(topology), attacking("dissensus", scale=2.0), round=0))
    spread = [float(rows[met].std(0).norm()) for rows in (exchanged(stack(topology)), found, away)]
    assert spread == sorted(spread)


def test_what_is_heard_before_rows_are_released_is_true():
    net = add_attack(stack(), attacking("sign_flip"), round=0)
    heard = run_without_loop(net.receive(Released(ROWS)))
    assert torch.equal(heard.rows, ROWS)


def test_attackers_that_know_each_other_lie_by_the_deviations_that_their_paper_allows():
    names, honest = complete(9).peers, [0, 1, 2, 4, 5, 6, 8]
    sent = attacking("alie").corrupted(ROWS, since=torch.zeros_like(ROWS), peers=names, round=0, step=0)
    # N = 9, m = 2: s = floor(5.5) - 2 = 3, and the standard normal is below 0.18 in (7 - 3) / 7 of all cases
    expected = ROWS[honest].numpy().mean(0) - 0.18001237 * np.std(ROWS[honest].numpy(), axis=0, ddof=1)
    assert sent[3].tolist() == pytest.approx(expected.tolist(), abs=1e-7)
