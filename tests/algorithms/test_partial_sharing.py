"""Partial sharing: a share of the places each round."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stacks import SEED, classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import Averaging, FedAvg, Gossip, PartialSharing
from p2pfl.core.sparse_codecs import choose_positions
from p2pfl.simulation import simulate

RING = topology.ring(5)
W = topology.metropolis(RING).matrix.toarray()


def averaging(steps=1, **settings):
    return Averaging(RING.peers, SEED, Gossip(steps), **settings)


def test_the_drawn_places_are_mixed_and_all_others_left_as_they_were_trained():
    learner, _ = classifier(wine(RING.peers), batch=8)
    algorithm = PartialSharing(averaging(2, weighted=False), seed=SEED, share=0.25)
    states = play(algorithm, learner, RING, rounds=4)
    x = states[0].rows.clone()
    for round in range(4):
        x = learner.fit(x, peers=RING.peers, round=round).rows.clone()
        for _ in range(2):
            mixed = x.clone()
            for place in choose_positions(x.shape[1], share=0.25, seed=SEED, round=round):
                for i in range(5):
                    mixed[i, place] = sum(W[i, j] * x[j, place] for j in range(5))
            x = mixed
        assert (states[round + 1].rows - x).abs().max() < 1e-12


@pytest.mark.parametrize("settings", [{"weighted": False}, {"mean_samples": 20.0}, {"fraction": 0.6}], ids=str)
def test_with_a_share_of_one_it_is_fedavg_to_the_last_bit(settings):
    learner, _ = classifier(wine(RING.peers), batch=8)
    plain = play(FedAvg(averaging(**settings)), learner, RING, rounds=3)[-1].rows
    partial = play(PartialSharing(averaging(**settings), SEED, share=1.0), learner, RING, rounds=3)[-1].rows
    assert torch.equal(partial, plain)


@given(st.integers(1, 2000), st.floats(0.001, 1.0), st.integers(0, 10**6))
def test_places_are_as_many_as_the_share_says_and_each_occurs_once(length, share, turn):
    places = choose_positions(length, share=share, seed=SEED, round=turn)
    assert len(places) == max(1, round(share * length))
    assert len(set(places.tolist())) == len(places)
    assert (places >= 0).all()
    assert (places < length).all()


def test_in_a_while_every_place_is_shared():
    seen = {int(place) for t in range(60) for place in choose_positions(100, share=0.1, seed=SEED, round=t)}
    assert len(seen) > 95


def test_under_masks_it_learns_what_it_learns_without_and_sends_as_many_bytes_less():
    table = {
        "rounds": 5,
        "seed": 3,
        "topology": {"kind": "complete", "peers": 5},
        "data": {"name": "wine"},
        "model": {"name": "linear"},
        "learning": {"algorithm": "partial", "algorithm_options": {"share": 0.5}, "dtype": "float64", "device": "cpu"},
    }
    bare = simulate(table, baselines=False)
    masked = simulate(table | {"privacy": {"mode": "pairwise"}}, baselines=False)
    for name, model in bare.models.items():
        for key, value in model.items():
            assert (masked.models[name][key] - value).abs().max() < 1e-4
    assert masked.summary["privacy"]["mode"] == "pairwise"
