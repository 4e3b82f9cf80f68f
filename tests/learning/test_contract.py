"""The contract of learners, held against ours; p2pfl.testing has the checks."""

from dataclasses import replace

import pytest
import torch

from p2pfl.experiment import plan, read
from p2pfl.learning import ExternalLearner
from p2pfl.testing import ContractError, check_learner

TINY = {
    "rounds": 2,
    "topology": {"kind": "ring", "peers": 4},
    "data": {"name": "synthetic", "options": {"features": 5, "classes": 3}},
    "model": {"name": "linear"},
}
PEERS = ["ada", "bob", "cyd"]


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("changes", [[], ["model.name=mlp", "model.hidden=[4]"], ["learning.optimizer=adam"]])
def test_the_torch_learner_keeps_the_contract(changes):
    made = plan(read(TINY, changes=changes))
    check_learner(made.learner, made.topology.peers)


def learner_of(function):
    return ExternalLearner(function, start=torch.ones(4), samples=dict.fromkeys(PEERS, 2))


def test_a_loop_of_the_users_keeps_the_contract():
    check_learner(learner_of(lambda row, *, peer, round: row + len(peer) + round), PEERS)


def test_a_loop_that_draws_without_a_seed_breaks_a_promise_that_the_error_names():
    learner = learner_of(lambda row, *, peer, round: row + torch.rand(4))  # noqa: ARG005
    with pytest.raises(ContractError, match="training is reproducible"):
        check_learner(learner, PEERS)


def test_a_loop_that_counts_its_calls_breaks_a_promise_that_the_error_names():
    calls = iter(range(1000))

    def train(row, *, peer, round):
        return row + len(peer) + round if round == 3 else row + next(calls)

    with pytest.raises(ContractError, match="broken promise: a peer trains alone as it trains among others"):
        check_learner(learner_of(train), PEERS)


class InPlace(ExternalLearner):
    """Learner that trains in the memory of the rows, and puts back what was there."""

    def fit(self, rows, **arguments):
        before, fitted = rows.clone(), super().fit(rows, **arguments)
        for number, row in enumerate(fitted.rows):
            rows[number] = row
        trained = rows.clone()
        for number, row in enumerate(before):
            rows[number] = row
        return replace(fitted, rows=trained)


def test_a_learner_that_writes_into_rows_that_share_memory_breaks_a_promise_that_the_error_names():
    def train(row, *, peer, round):
        return row + ord(peer[0]) + round

    learner = InPlace(train, start=torch.ones(4), samples=dict.fromkeys(PEERS, 2))
    with pytest.raises(ContractError, match="rows that share memory are trained as others"):
        check_learner(learner, PEERS)
