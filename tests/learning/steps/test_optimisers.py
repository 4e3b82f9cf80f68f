"""Every elementwise optimiser of torch, on rows that differ in what they have done."""

import math
import re

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from p2pfl.core.errors import ModelError
from p2pfl.data import Dataset, Federation, batches
from p2pfl.learning import TorchLearner
from p2pfl.learning.steps.optimisers import PlainUpdate, Recipe, elementwise_optimisers

PEERS = ("ada", "bob", "cyd", "dee")
SIZES = (9, 4, 12, 6)

RECIPES = [
    ("sgd", {}),
    ("sgd", {"weight_decay": 0.1}),
    ("sgd", {"maximize": True}),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9, "dampening": 0.3}),
    ("sgd", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.01}),
    ("adam", {"amsgrad": True}),
    ("rmsprop", {"momentum": 0.5, "centered": True}),
    ("asgd", {"t0": 5}),
    *((name, {}) for name in elementwise_optimisers() if name != "sgd"),
]


def federation():
    random = torch.Generator().manual_seed(1)
    data = Dataset(torch.randn(31, 5, generator=random), torch.randint(3, (31,), generator=random), 3)
    parts = np.split(np.arange(31), np.cumsum(SIZES)[:-1])
    train = dict(zip(PEERS, parts, strict=True))
    return Federation(data, train, {}, {})


def model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def learner_of(name, options, **more):
    return TorchLearner(
        model(), federation(), seed=3, batch=4, optimizer=name, rate=0.01, options=options, device="cpu",
        dtype=torch.float64, **more,
    )  # fmt: skip


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize(("name", "options"), RECIPES)
def test_a_stack_is_a_loop_of_models_each_with_its_own_torch_optimiser(name, options):
    learner, data = learner_of(name, options), federation()
    models = [model().double() for _ in PEERS]
    optimisers = [elementwise_optimisers()[name](m.parameters(), lr=0.01, **options) for m in models]
    rows, memory = learner.start(PEERS), None
    for round, awake in enumerate([(1, 1, 0, 1), (0, 1, 1, 1), (0, 0, 0, 0), (1, 1, 1, 1), (1, 0, 1, 0)]):
        active = torch.tensor(awake, dtype=torch.bool)
        fitted = learner.fit(rows, peers=PEERS, round=round, memory=memory, active=active)
        rows, memory = fitted.rows, fitted.memory
        for i, peer in enumerate(PEERS):
            if not awake[i]:
                continue
            steps = batches(SIZES[i], seed=3, peer=peer, round=round, batch=4, epochs=1, steps=None)
            for chosen in steps:
                index = torch.from_numpy(data.train[peer][chosen])
                optimisers[i].zero_grad()
                outputs = models[i](data.dataset.features[index].double())
                F.cross_entropy(outputs, data.dataset.targets[index]).backward()
                optimisers[i].step()
    expected = torch.stack([torch.cat([p.detach().flatten() for p in m.parameters()]) for m in models])
    torch.testing.assert_close(rows, expected, rtol=0, atol=1e-10)


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize(("name", "options"), RECIPES)
def test_idle_rows_and_their_memory_do_not_move_a_bit(name, options):
    learner = learner_of(name, options)
    first = learner.fit(learner.start(PEERS), peers=PEERS, round=0)
    active = torch.tensor([True, False, True, False])
    second = learner.fit(first.rows, peers=PEERS, round=1, memory=first.memory, active=active)
    assert set(second.memory) == set(first.memory)
    for before, after in [(first.rows, second.rows), *((first.memory[n], second.memory[n]) for n in first.memory)]:
        assert torch.equal(before[~active], after[~active])
        assert not torch.equal(before[active], after[active]) or name == "asgd"
    assert second.report.steps.tolist() == [3, 0, 3, 0]


@pytest.mark.parametrize("name", ["adam", "asgd", "nadam"])
def test_memory_in_pieces_is_memory_in_one(name):
    learner = learner_of(name, {})
    rows, memory = learner.start(PEERS), None
    alone = dict.fromkeys(PEERS, (rows[:1], None))
    for round in range(3):
        fitted = learner.fit(rows, peers=PEERS, round=round, memory=memory)
        rows, memory = fitted.rows, fitted.memory
        for peer, (row, own) in alone.items():
            piece = learner.fit(row, peers=[peer], round=round, memory=own)
            alone[peer] = (piece.rows, piece.memory)
    for i, peer in enumerate(PEERS):
        torch.testing.assert_close(rows[i : i + 1], alone[peer][0], rtol=0, atol=1e-10)
        for key, value in alone[peer][1].items():
            torch.testing.assert_close(memory[key][i : i + 1], value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_plain_update_is_torch_sgd_bit_for_bit(decay, dtype):
    random = torch.Generator().manual_seed(0)
    mine = [torch.randn(7, size, dtype=dtype, generator=random) for size in (1, 33)]
    theirs = [part.clone() for part in mine]
    update = PlainUpdate({"lr": 0.3, "weight_decay": decay})
    optimiser = optim.SGD(theirs, lr=0.3, weight_decay=decay)
    for _ in range(5):
        gradients = [torch.randn(part.shape, dtype=dtype, generator=random) for part in mine]
        update.step(mine, gradients)
        for part, gradient in zip(theirs, gradients, strict=True):
            part.grad = gradient
        optimiser.step()
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_class_of_torch_is_as_good_as_its_name():
    assert Recipe(optim.AdamW).kind is Recipe("AdamW").kind is optim.AdamW


def test_schedules_may_move_momentum_too():
    recipe = Recipe("sgd", 0.1, {"momentum": 0.9}, "OneCycleLR", {"max_lr": 1.0, "total_steps": 10})
    assert recipe.settings(0)["momentum"] != recipe.settings(3)["momentum"]


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        (("lbfgs",), "learning.optimizer"),
        ((optim.LBFGS,), "learning.optimizer"),
        (("sgd", -1.0), "Invalid learning rate"),
        (("sgd", math.inf), "learning.rate is inf, not a finite number; change it"),
        (("sgd", 0.1, {"momentum": math.nan}), "learning.options.momentum is nan, not a finite number; change it"),
        (("sgd", 0.1, {"moment": 1}), "'moment'"),
        (("adam", 0.1, {"betas": [0.9]}), "IndexError"),
        (("sgd", 0.1, {}, "LRScheduler"), "depends on the round alone"),
        (("sgd", 0.1, {}, "warnings"), "depends on the round alone"),
        (("sgd", 0.1, {}, "ReduceLROnPlateau"), "depends on the round alone"),
        (("sgd", 0.1, {}, "Nonsense"), "depends on the round alone"),
        (("sgd", 0.1, {}, "StepLR", {}), "'step_size'"),
        (
            ("sgd", 0.1, {}, "ExponentialLR", {"gamma": math.inf}),
            "learning.schedule.options.gamma is inf, not a finite number; change it",
        ),
    ],
)
def test_recipes_that_cannot_work_are_refused_in_one_sentence(recipe, sentence):
    with pytest.raises(ModelError, match=sentence):
        Recipe(*recipe)


@pytest.mark.parametrize(
    ("schedule", "options", "said"),
    [
        (
            "OneCycleLR",
            {"max_lr": 1.0, "total_steps": 3},
            (
                re.escape(
                    "learning.schedule OneCycleLR fails in round 5 (ValueError: Tried to step 4 times. The "
                    "specified number of total steps is 3); fix learning.schedule.options"
                )
            ),
        ),
        (
            "ExponentialLR",
            {"gamma": 1e300},
            (
                "learning.schedule ExponentialLR sets the rate to inf in round 3, which is negative or not finite; fix "
                "learning.schedule.options"
            ),
        ),
        (
            "ExponentialLR",
            {"gamma": -0.5},
            (
                "learning.schedule ExponentialLR sets the rate to -0.05 in round 2, which is negative or not "
                "finite; fix learning.schedule.options"
            ),
        ),
    ],
)
def test_a_schedule_that_ends_before_the_last_round_is_refused_before_the_first(schedule, options, said):
    recipe = Recipe("sgd", 0.1, {}, schedule, options)
    recipe.check(1)
    with pytest.raises(ModelError, match=said):
        recipe.check(10)


def test_arguments_that_torch_looks_at_only_in_a_step_are_refused():
    with pytest.raises(ModelError, match="capturable"):
        learner_of("adam", {"capturable": True})
    with pytest.raises(ModelError, match="overflow"):
        Recipe("sgd", 1e200).attempt(torch.float32)
    Recipe("sgd", 1e200).attempt(torch.float64)


def test_plain_descent_has_the_settings_that_torch_reads_out_of_its_class():
    recipe = Recipe("sgd", rate=0.3)
    assert recipe.settings(4) == recipe._read(recipe._make_optimiser())
