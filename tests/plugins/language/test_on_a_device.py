"""A learner whose modules are on an accelerator keeps rows and states of optimisers there.

The device is one made of the CPU (``cpu_device.py``) for all but the modules, and CUDA where there is some.
"""

from importlib.util import find_spec

import pytest
import torch

import cpu_device
from p2pfl.algorithms import start
from p2pfl.learning import home
from p2pfl.plugins.language import TrainerLearner
from p2pfl.simulation.round_records import move_state
from tiny_llama import make_trainer, tiny_llama

MISSING = [name for name in ("transformers", "peft", "accelerate") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("language"),  # one process imports transformers
    pytest.mark.skipif(bool(MISSING), reason="transformers, peft and accelerate are not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
PEERS = ("ada", "bob")
CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"))


def learner_of(folder, *, device="cpu", adapters="factors"):
    model = tiny_llama(dtype=torch.bfloat16)
    settings = {"use_cpu": device != "cuda", "bf16": True}
    trainers = {peer: make_trainer(model, peer, folder, **settings) for peer in PEERS}
    return TrainerLearner(trainers, rounds=2, seed=5, adapters=adapters)


def two_rounds(learner):
    """Return the result of two rounds of all peers, whose state is where a simulation keeps it."""
    state = move_state(start(learner, PEERS), home(learner))
    first = learner.fit(state.rows, peers=PEERS, round=0, memory=state.memory)
    return learner.fit(first.rows, peers=PEERS, round=1, memory=first.memory)


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("adapters", ["factors", "alternate", "product"])
def test_rows_stay_on_a_device_and_end_as_on_the_cpu(tmp_path, adapters):
    wanted = two_rounds(learner_of(tmp_path, adapters=adapters))
    learner = learner_of(tmp_path, adapters=adapters)
    with cpu_device.device():
        learner.home = cpu_device.DEVICE
        found = two_rounds(learner)
        assert found.rows.device == cpu_device.DEVICE
        rows, memory = found.rows.cpu(), {name: value.cpu() for name, value in found.memory.items()}
        scores = learner.evaluate(found.rows, peers=PEERS)
    assert torch.equal(rows, wanted.rows)
    assert memory.keys() == wanted.memory.keys()
    assert all(torch.equal(memory[name], value) for name, value in wanted.memory.items())
    assert scores["loss"].isfinite().all()


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("adapters", ["factors", "alternate", "product"])
def test_cuda_ends_near_the_cpu(tmp_path, device, adapters):
    wanted = two_rounds(learner_of(tmp_path, adapters=adapters))
    found = two_rounds(learner_of(tmp_path, adapters=adapters, device=device))
    assert found.rows.device.type == device
    moments = [name for name, value in found.memory.items() if value.shape[1] == found.rows.shape[1]]
    assert adapters != "factors" or len(moments) == 2
    assert all(found.memory[name].device.type == device for name in moments)
    far = (found.rows.cpu() - wanted.rows).norm() / wanted.rows.norm()
    assert far < 0.05  # the model computes in bfloat16


def test_no_trainer_keeps_the_state_of_its_optimiser_after_a_round(tmp_path):
    """Peers would keep it beside that of the next round, on the card of all."""
    learner = learner_of(tmp_path)
    fitted = learner.fit(learner.start(PEERS), peers=PEERS, round=0)
    kept = [each for trainer in learner.trainers.values() for each in trainer.accelerator._optimizers]
    assert len(kept) == len(PEERS)
    assert not any(each.optimizer.state for each in kept)
    assert fitted.memory["exp_avg"].any(dim=1).all()
