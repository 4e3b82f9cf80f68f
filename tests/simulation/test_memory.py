"""Copies of all models that a simulation holds at a time."""

import gc

import pytest
import torch

from p2pfl.experiment import plan, read
from p2pfl.learning.torch_learner import TorchLearner
from p2pfl.simulation import simulate, simulation_checkpoint
from p2pfl.simulation.asynchronous import Flight
from p2pfl.simulation.evaluation_size import Evaluator
from p2pfl.simulation.mixing import Mixer

PEERS, HIDDEN = 300, 128


@pytest.fixture(autouse=True)
def _only_new_objects():
    """Let stacks() look at what a test makes, and not at all that the tests before it have left."""
    gc.freeze()


def stacks(size):
    """Return the number of different memories of at least so many bytes that tensors use."""
    tensors = (each for each in gc.get_objects() if type(each) is torch.Tensor)
    memories = (each.untyped_storage() for each in tensors)
    return len({each.data_ptr() for each in memories if each.nbytes() >= size})


def planned(learning, *, rounds, **more):
    """Return the plan of an experiment whose models take most of the memory."""
    table = {
        "rounds": rounds,
        "topology": {"peers": PEERS, "kind": "random_regular", "degree": 4},
        "data": {"name": "digits"},
        "model": {"name": "mlp", "hidden": [HIDDEN]},
        "learning": learning,
    }
    return plan(read(table | more))


@pytest.mark.slow
@pytest.mark.sampled(fast=0)
@pytest.mark.parametrize(
    ("order", "directory"), [("parallel", False), ("adapt_then_combine", False), ("parallel", True)]
)
def test_dpsgd_holds_three_copies_of_all_models_at_most(monkeypatch, tmp_path, directory, order):
    monkeypatch.setattr(simulation_checkpoint, "HELD", 0)
    made = planned(
        {"algorithm": "dpsgd", "steps": 2, "batch": 8, "algorithm_options": {"order": order}},
        rounds=4,
        gossip={"steps": 1},
    )
    size = PEERS * made.learner.layout.size * 4
    assert made.federation.dataset.features.nbytes < size
    found = []

    def simulated():
        return simulate(made, baselines=False, folder=tmp_path / "run" if directory else None)

    assert most(simulated, size, found, monkeypatch) <= 3
    assert len(found) >= 2 * 4 * 3


def most(simulated, size, found, monkeypatch):
    """Return the largest number of copies around training, mixing and evaluation."""
    already = stacks(size)

    def counted(kind, name):
        function = getattr(kind, name)

        def called(self, *given, **named):
            found.append(stacks(size))
            answer = function(self, *given, **named)
            found.append(stacks(size))
            return answer

        monkeypatch.setattr(kind, name, called)

    counted(TorchLearner, "fit")
    counted(Mixer, "__call__")
    counted(Evaluator, "full")
    simulated()
    return max(found) - already


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
@pytest.mark.parametrize("steps", [2, 12], ids=["one by one", "at once"])
def test_gossip_steps_hold_no_models_from_before_the_first(monkeypatch, steps, weighted):
    """The state, which the average of a peer without weight would need, and the models around a step."""
    monkeypatch.setattr(simulation_checkpoint, "HELD", 0)
    made = planned({"algorithm": "fedavg", "batch": 8, "weighted": weighted}, rounds=3, gossip={"steps": steps})
    size = PEERS * made.learner.layout.size * 4
    assert most(lambda: simulate(made, baselines=False), size, [], monkeypatch) <= 4


@pytest.mark.slow
@pytest.mark.sampled(fast=0)
@pytest.mark.parametrize(("delay", "copies"), [(0.0, 3), (1.0, 5)], ids=["on time", "late"])
def test_peers_that_do_not_wait_hold_three_copies_and_two_of_the_models_on_their_way(monkeypatch, delay, copies):
    made = planned({"algorithm": "gossip_learning", "steps": 2, "batch": 8}, rounds=6, simulation={"delay": delay})
    size, found = PEERS * made.learner.layout.size * 4, []
    receive = Flight.receive

    def counted(self, *given, **more):
        models = receive(self, *given, **more)
        found.append(stacks(size))
        return models

    monkeypatch.setattr(Flight, "receive", counted)
    assert most(lambda: simulate(made, baselines=False), size, found, monkeypatch) <= copies
