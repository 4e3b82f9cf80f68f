"""Simulated worlds whose peers take totals, and what their check allows."""

import pytest
import torch

from p2pfl.network.protocol.session.session_totals import Totals
from worlds.explore import outcome
from worlds.settings import Plans, setting
from worlds.totals import Adding, wrong

PEERS = "ada", "bob", "cyd"


@pytest.fixture(scope="module")
def plans():
    torch.set_num_threads(1)
    return Plans()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3345, 3371])
def test_histories_in_which_a_root_alone_completes_a_total_are_survived(seed, plans):
    assert setting(seed).totals
    assert not outcome(seed, plans=plans).failure


@pytest.mark.slow
def test_a_peer_that_leaves_before_its_children_have_the_total_is_found(monkeypatch, plans):
    monkeypatch.setattr(Totals, "unconfirmed", frozenset())
    assert "hold different totals" in outcome(3345, plans=plans).failure


def taken(algorithm, peer, among, round=0):
    total = sum(algorithm.own(each, round, 0) for each in among)
    algorithm.taken[round, 0][peer] = total.tolist()


def test_totals_that_differ_are_allowed_only_of_a_peer_that_neither_finishes_nor_goes_on():
    algorithm = Adding(PEERS, 1)
    taken(algorithm, "ada", PEERS)
    taken(algorithm, "bob", PEERS[1:])
    taken(algorithm, "cyd", PEERS[1:])
    assert not wrong(algorithm, {"bob", "cyd"})
    assert "ada, bob, cyd hold different totals 0 of round 0" in wrong(algorithm, {*PEERS})
    taken(algorithm, "ada", PEERS, round=1)
    assert "ada, bob, cyd hold different totals 0 of round 0" in wrong(algorithm, {"bob", "cyd"})


def test_every_total_that_a_peer_held_is_a_sum_in_which_it_takes_part():
    algorithm = Adding(PEERS, 1)
    taken(algorithm, "ada", PEERS[1:])
    assert "is not the sum over its participants" in wrong(algorithm, set())
