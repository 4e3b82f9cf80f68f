"""Gradients of rows, against autograd on the module itself."""

import pytest
import torch

from p2pfl.core.errors import ModelError
from p2pfl.data import batches, federate
from p2pfl.learning import ExternalLearner, TorchLearner, build

PEERS = ("ada", "bob", "cy")
SEED = 5


@pytest.fixture(scope="module")
def learner():
    federation = federate("wine", peers=PEERS, split="dirichlet", seed=SEED, alpha=1.0, options={})
    dataset = federation.dataset
    model = build("mlp", shape=dataset.shape, classes=dataset.classes, seed=SEED, options={"hidden": (8,)})
    return TorchLearner(model, federation, seed=SEED, rate=0.3, batch=8, dtype=torch.float64, device="cpu")


def slope(learner, row, index):
    parts = {name: part[0].clone().requires_grad_() for name, part in learner.layout.split(row.unsqueeze(0)).items()}
    outputs = torch.func.functional_call(learner.model, parts, learner.features[index])
    loss = torch.nn.functional.cross_entropy(outputs, learner.targets[index])
    return torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(parts.values()))])


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("peers", [PEERS, PEERS[:1]], ids=["stacked", "one row"])
def test_the_gradient_is_that_of_the_first_batch_or_of_all_samples(learner, whole, peers):
    rows = learner.start(peers) + torch.arange(len(peers)).unsqueeze(-1) / 10
    found = learner.gradient(rows, peers=peers, round=4, whole=whole)
    for row, peer, gradient in zip(rows, peers, found, strict=True):
        own = learner.federation.train[peer]
        batch = own[batches(len(own), seed=SEED, peer=peer, round=4, batch=8, epochs=1, steps=None)[0]]
        expected = slope(learner, row, torch.from_numpy(own if whole else batch))
        assert torch.allclose(gradient, expected, rtol=0, atol=1e-12)


def test_the_gradient_of_a_later_step_is_that_of_its_batch_and_an_epoch_follows_the_other(learner):
    rows = learner.start(PEERS)
    for step in (1, 40):  # the second is beyond the epoch of every peer
        found = learner.gradient(rows, peers=PEERS, round=4, step=step)
        for row, peer, gradient in zip(rows, PEERS, found, strict=True):
            own = learner.federation.train[peer]
            drawn = batches(len(own), seed=SEED, peer=peer, round=4, batch=8, epochs=1, steps=60)
            assert torch.allclose(gradient, slope(learner, row, torch.from_numpy(own[drawn[step]])), rtol=0, atol=1e-12)


def test_a_row_that_is_not_active_has_no_gradient_and_the_rows_stay_as_they_are(learner):
    rows = learner.start(PEERS)
    before = rows.clone()
    found = learner.gradient(rows, peers=PEERS, round=0, active=torch.tensor([True, False, True]))
    assert torch.equal(rows, before)
    assert found[0].any()
    assert not found[1].any()


def test_one_step_goes_along_the_gradient_at_the_rate_of_the_round(learner):
    rows = learner.start(PEERS)
    slope = learner.gradient(rows, peers=PEERS, round=2)
    learner.steps, steps = 1, learner.steps
    after = learner.fit(rows, peers=PEERS, round=2).rows
    learner.steps = steps
    assert torch.allclose(after, rows - learner.rate(2) * slope, rtol=0, atol=1e-14)


def test_a_training_loop_of_ones_own_has_no_gradient():
    own = ExternalLearner(lambda row, **_: row, start=torch.ones(2), samples={"ada": 1})
    with pytest.raises(
        ModelError,
        match=(
            "this algorithm needs gradients, but a training loop of your own does not expose them; use FedAvg, or a "
            "torch model"
        ),
    ):
        own.gradient(own.start(["ada"]), peers=["ada"], round=0)
    with pytest.raises(
        ModelError,
        match=(
            "this algorithm takes gradient steps, but a training loop of your own does not expose them; use FedAvg, "
            "or a torch model"
        ),
    ):
        own.rate(0)
