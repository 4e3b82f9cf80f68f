from itertools import pairwise

import pytest
import torch
from stacks import SEED, play, quadratics, stack

from p2pfl import topology
from p2pfl.algorithms import DPSGD, Averaging, FedAvg, Gossip, StopCondition, change, maximum
from p2pfl.core.neighbourhood import run_without_loop

PATH = topology.path(4)
ALGORITHM = FedAvg(Averaging(PATH.peers, SEED, Gossip(), weighted=False))
LEARNER = quadratics([2.0, 0.5, 1.0, 3.0], [4.0, -3.0, 1.0, -6.0], rate=0.05, steps=5)
THRESHOLD = 0.01


def test_learning_ends_in_the_first_round_in_which_no_row_moves_further_than_asked():
    states = play(ALGORITHM, LEARNER, PATH, rounds=100, stop=StopCondition(THRESHOLD, topology.diameter(PATH)))
    moves = [float(change(*pair).max()) for pair in pairwise(states)]
    assert len(moves) < 100
    assert moves[-1] < THRESHOLD <= min(moves[:-1])


def test_every_peer_for_itself_would_stop_in_that_same_round():
    states = play(ALGORITHM, LEARNER, PATH, rounds=40)
    own = [change(*pair) for pair in pairwise(states)]
    told = [run_without_loop(maximum(stack(PATH), moved, steps=topology.diameter(PATH))) for moved in own]

    def last_rounds(moves):
        return set((torch.cat(moves, dim=1) < THRESHOLD).int().argmax(dim=1).tolist())

    assert len(last_rounds(told)) == 1
    assert len(last_rounds(own)) > 1  # unless told, they would have parted


def test_a_rule_that_is_never_met_changes_nothing():
    plain = play(ALGORITHM, LEARNER, PATH, rounds=5)
    ruled = play(ALGORITHM, LEARNER, PATH, rounds=5, stop=StopCondition(1e-300, 3))
    assert len(plain) == len(ruled)
    assert all(torch.equal(one.rows, other.rows) for one, other in zip(plain, ruled, strict=True))


@pytest.mark.parametrize("rounds", [0, 1])
def test_no_more_rounds_are_played_than_asked(rounds):
    assert len(play(ALGORITHM, LEARNER, PATH, rounds=rounds, stop=StopCondition(1e9, 3))) == rounds + 1


def test_an_algorithm_whose_first_release_is_the_model_with_which_all_begin_does_not_stop_there():
    states = play(DPSGD(), LEARNER, PATH, rounds=5, stop=StopCondition(1e-6, 3))
    assert float(change(*states[:2]).max()) < 1e-6
    assert len(states) == 6
