"""Clipping by norm, and rates that change at each step, as in a training loop of torch."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from hidden_models import BranchingModel, HiddenModel
from p2pfl.core.errors import ModelError
from p2pfl.data import Dataset, Federation, batches
from p2pfl.learning import TorchLearner
from p2pfl.learning.steps.optimisers import Recipe, elementwise_optimisers
from p2pfl.learning.steps.perceptrons import Perceptrons
from p2pfl.learning.steps.training import clip

PEERS = ("ada", "bob", "cyd", "dee")
SIZES = (9, 4, 12, 6)
BATCH = 4


def federation(sizes=SIZES):
    random = torch.Generator().manual_seed(1)
    count = sum(sizes)
    data = Dataset(torch.randn(count, 5, generator=random), torch.randint(3, (count,), generator=random), 3)
    parts = np.split(np.arange(count), np.cumsum(sizes)[:-1])
    return Federation(data, dict(zip(PEERS, parts, strict=True)), {}, {})


def mlp():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def learner_of(model, **more):
    usual = {"seed": 3, "batch": BATCH, "rate": 0.5, "device": "cpu", "dtype": torch.float64, "epochs": 2}
    return TorchLearner(model, federation(), **(usual | more))


def loop(model, *, peer, kind=optim.SGD, rate=0.5, rounds=2, max_norm=None, factor=None, norms=None, **options):
    """A training loop as anybody would write it."""
    model = copy.deepcopy(model).double()
    optimiser = kind(model.parameters(), lr=rate, **options)
    data, time = federation(), 0
    for round in range(rounds):
        chosen = batches(len(data.train[peer]), seed=3, peer=peer, round=round, batch=BATCH, epochs=2, steps=None)
        for positions in chosen:
            index = torch.from_numpy(data.train[peer][positions])
            optimiser.zero_grad()
            F.cross_entropy(model(data.dataset.features[index].double()), data.dataset.targets[index]).backward()
            if max_norm is not None:
                norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
                norms.append(float(norm))
            if factor is not None:
                optimiser.param_groups[0]["lr"] = rate * factor(time)
            optimiser.step()
            time += 1
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def trained(learner, peers=PEERS, rounds=2):
    rows, memory = learner.start(peers), None
    for round in range(rounds):
        fitted = learner.fit(rows, peers=peers, round=round, memory=memory)
        rows, memory = fitted.rows, fitted.memory
    return rows


ENGINES = {
    "kernels": (mlp, "Kernels"),
    "perceptrons": (mlp, "Kernels"),
    "vmap": (lambda: HiddenModel(mlp()), "StackedEngine"),
    "plain": (lambda: BranchingModel(mlp()), "PlainEngine"),
}


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_each_model_of_a_stack_is_clipped_as_by_torch(name, kind):
    made, engine = ENGINES[name]
    learner = learner_of(made(), max_norm=0.9, optimizer=kind, rate=0.05)
    assert type(learner.engine).__name__ == engine
    if name == "kernels":
        learner.perceptrons = None
    assert isinstance(learner.perceptrons, Perceptrons) == (name == "perceptrons")
    rows, norms = trained(learner), []
    for i, peer in enumerate(PEERS):
        expected = loop(made(), peer=peer, kind=elementwise_optimisers()[kind], rate=0.05, max_norm=0.9, norms=norms)
        torch.testing.assert_close(rows[i], expected, rtol=0, atol=1e-12)
        alone = trained(learner, [peer])
        torch.testing.assert_close(alone[0], expected, rtol=0, atol=1e-12)
    assert min(norms) < 0.9 < max(norms)  # some gradients are clipped, others are not


def test_a_bound_that_no_gradient_reaches_changes_no_bit():
    rows = trained(learner_of(mlp(), max_norm=1e9))
    assert torch.equal(rows, trained(learner_of(mlp())))


def test_whole_models_that_share_samples_are_clipped_too():
    data = federation()
    shared = Federation(data.dataset, dict.fromkeys(PEERS, np.arange(20)), {}, {})
    usual = {"seed": 3, "batch": None, "rate": 0.5, "device": "cpu", "dtype": torch.float64, "max_norm": 0.1}
    learner = TorchLearner(mlp(), shared, **usual)
    rows = learner.fit(learner.start(PEERS), peers=PEERS, round=0).rows
    torch.testing.assert_close(
        (rows - learner.start(PEERS)).norm(dim=1), torch.full((4,), 0.05).double(), rtol=1e-4, atol=0
    )


def test_corrections_of_an_algorithm_come_after_the_bound():
    learner = learner_of(mlp(), max_norm=1e-9, steps=1)
    start = learner.start(PEERS)
    moved = learner.fit(start, peers=PEERS, round=0, correction=lambda rows, _: torch.ones_like(rows)).rows - start
    torch.testing.assert_close(moved, torch.full_like(moved, -0.5), rtol=0, atol=1e-8)


def test_gradients_that_an_algorithm_asks_for_are_clipped():
    learner = learner_of(mlp(), max_norm=0.01)
    found = learner.gradient(learner.start(PEERS), peers=PEERS, round=0)
    torch.testing.assert_close(found.norm(dim=1), torch.full((4,), 0.01).double(), rtol=1e-3, atol=0)


def test_a_gradient_that_is_not_finite_stays_so():
    assert clip([torch.tensor([[math.inf]]), torch.tensor([[1.0]])], max_norm=1.0)[0].isnan().all()


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("options", [{"optimizer": "sgd"}, {"optimizer": "adam"}])
def test_warm_up_goes_on_over_rounds_and_counts_the_steps_of_each_peer(name, options):
    made, _ = ENGINES[name]
    rows = trained(learner_of(made(), warmup=7, rate=0.1, **options))
    for i, peer in enumerate(PEERS):
        kind = elementwise_optimisers()[options["optimizer"]]
        expected = loop(made(), peer=peer, kind=kind, rate=0.1, factor=lambda time: min(1.0, (time + 1) / 7))
        torch.testing.assert_close(rows[i], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_schedule_of_torch_by_step_is_stepped_after_each_step(kind):
    schedule = {"schedule": "CosineAnnealingLR", "schedule_options": {"T_max": 12}, "schedule_by": "step"}
    rows = trained(learner_of(mlp(), optimizer=kind, rate=0.1, **schedule))
    for i, peer in enumerate(PEERS):
        cosine = lambda time: (1 + math.cos(math.pi * time / 12)) / 2  # noqa: E731
        expected = loop(mlp(), peer=peer, kind=elementwise_optimisers()[kind], rate=0.1, factor=cosine)
        torch.testing.assert_close(rows[i], expected, rtol=0, atol=1e-10)


def halving(round, step, steps, base=0.5):
    return base ** (round + step / steps)


def test_a_function_of_the_user_is_a_schedule_by_step_or_by_round():
    by_step = trained(learner_of(mlp(), rate=0.1, schedule=halving, schedule_by="step", schedule_options={"base": 0.8}))
    for i, (peer, size) in enumerate(zip(PEERS, SIZES, strict=True)):
        steps = 2 * -(-size // BATCH)
        expected = loop(mlp(), peer=peer, rate=0.1, factor=lambda time, steps=steps: 0.8 ** (time / steps))
        torch.testing.assert_close(by_step[i], expected, rtol=0, atol=1e-12)
    by_round = trained(learner_of(mlp(), rate=0.1, schedule=lambda round: 1 / (1 + round)))
    expected = loop(mlp(), peer="ada", rate=0.1, factor=lambda time: 1.0 if time < 6 else 0.5)
    torch.testing.assert_close(by_round[0], expected, rtol=0, atol=1e-12)


def test_an_idle_or_slow_peer_is_as_far_in_a_schedule_as_the_others():
    learner = learner_of(mlp(), warmup=12)
    start, active = learner.start(PEERS), torch.tensor([True, False, True, True])
    fitted = learner.fit(start, peers=PEERS, round=1, active=active)
    alone = learner.fit(start[2:3], peers=["cyd"], round=1)
    torch.testing.assert_close(fitted.rows[2], alone.rows[0], rtol=0, atol=1e-12)
    assert torch.equal(fitted.rows[1], start[1])


def test_the_model_on_all_data_is_as_far_in_a_schedule_as_a_peer():
    learner = learner_of(mlp(), warmup=100)
    pooled = learner.pooled(federation().pooled(), peers=4, rounds=5)
    assert pooled.clock == 4  # two epochs of eight samples, the mean of the peers, in batches of four


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"max_norm": 0.0}, "learning.max_norm is 0.0; set it to a number above 0, or leave it out"),
        ({"max_norm": math.nan}, "learning.max_norm is nan"),
        ({"warmup": -1}, "learning.schedule.warmup is -1; set it to a whole number of steps from 0 on"),
        ({"schedule": lambda round: -1.0 - round}, "returns -1.0 in round 0, step 0; return a factor"),
        ({"schedule": lambda round, step: round + step}, 'has the parameter step; set learning.schedule.by to "step"'),
        ({"schedule": 3}, "learning.schedule is an int; give a function"),
        ({"schedule": lambda epoch: epoch}, "does not accept its arguments (missing a required argument: 'epoch')"),
        ({"schedule": lambda round: 1 / round}, "fails in round 0, step 0 (ZeroDivisionError: division by zero)"),
        ({"schedule": "math:nothing"}, 'learning.schedule: "math:nothing" cannot be imported'),
    ],
)
def test_what_is_wrong_with_a_schedule_is_said_before_anything_starts(given, sentence):
    with pytest.raises(ModelError) as caught:
        learner_of(mlp(), **given)
    assert sentence in str(caught.value)


def test_a_schedule_is_checked_to_its_last_round_and_step():
    with pytest.raises(ModelError, match="in round 3, step 0; return a factor"):
        Recipe(schedule=lambda round: 3.0 - round if round < 3 else -1.0).check(5)
    options = {"max_lr": 1.0, "total_steps": 10}
    recipe = Recipe(schedule="OneCycleLR", schedule_options=options, schedule_by="step")
    recipe.check(5, steps=2)
    with pytest.raises(ModelError, match="fails in step 12"):
        recipe.check(6, steps=2)


def test_an_algorithm_that_needs_one_rate_in_a_round_gets_a_sentence():
    with pytest.raises(ModelError, match="this algorithm needs one learning rate in a round"):
        learner_of(mlp(), warmup=3).rate(0)
