"""Split networks: equal to one torch model of all columns, resumed from rows alone, protected labels, refusals."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from p2pfl.core.errors import DataError, ExperimentError, LearningError, ModelError
from p2pfl.experiment import plan, read
from p2pfl.learning.steps.optimisers import Recipe
from p2pfl.plugins.audit.label_attacks import play_leaks
from p2pfl.plugins.vertical.split_network import SplitNetwork
from split_parties import Joined, dealt, learner, play
from vertical_experiments import changed
from vertical_roles import two_tables

RANDOM = np.random.default_rng(5)
TABLES = {peer: RANDOM.normal(size=(120, width)) for peer, width in (("ada", 3), ("bob", 2), ("eve", 4))}
TARGET = (sum(table[:, 0] for table in TABLES.values()) > 0).astype(np.int64)
SHOWN = SplitNetwork(labels="shown", width=4, hidden=(8,))
STEPS = {"batch": 16, "steps": 20, "dtype": torch.float64}


class Gated(nn.Module):
    """Bottom of a user's own, with a dropout and a normalisation."""

    def __init__(self, columns, width):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(columns, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2))
        self.outer = nn.Linear(8, width)

    def forward(self, columns):
        return self.outer(self.inner(columns))


class Narrow(nn.Module):
    """Bottom of the wrong width."""

    def __init__(self, columns):
        super().__init__()
        self.layer = nn.Linear(columns, 1)

    def forward(self, columns):
        return self.layer(columns)


@pytest.mark.parametrize("recipe", [Recipe("sgd", 0.1, {"momentum": 0.9}), Recipe("adam", 0.01)], ids=["sgd", "adam"])
@pytest.mark.parametrize("names", [("ada", "bob"), ("ada", "bob", "eve")], ids=["two", "three"])
@pytest.mark.slow
def test_twenty_steps_are_those_of_one_torch_model_of_all_columns(names, recipe):
    learning = learner(dealt({peer: TABLES[peer] for peer in names}, TARGET), SHOWN, recipe=recipe, **STEPS)
    networks = {peer: learning._training(peer).network for peer in names}
    rows = play(learning)
    before = {peer: learning.tensors(row, peer=peer) for peer, row in zip(learning.peers, rows, strict=True)}
    table = learning.table(rows[0], before)
    columns = {peer: torch.from_numpy(table.standardised(peer).train) for peer in names}
    joined, targets = Joined(networks), torch.from_numpy(table.targets())
    optimiser = recipe.kind(joined.parameters(), **recipe.settings(0))
    for batch in learning.steps.batches(120, round=0):
        optimiser.zero_grad()
        cross_entropy(joined({peer: each[batch] for peer, each in columns.items()}), targets[batch]).backward()
        optimiser.step()
    for peer, row in zip(learning.peers, rows, strict=True):
        if peer in names:
            learned = learning.tensors(row, peer=peer)
            for name, tensor in networks[peer].state_dict().items():
                assert learned[f"network.{name}"] == pytest.approx(tensor.numpy(), abs=1e-6), name


@pytest.mark.slow
def test_the_same_steps_in_one_round_and_in_four_resumed_from_rows_end_alike():
    model = SplitNetwork(labels="shown", width=4, bottom=f"{__name__}:Gated", absent=0.3)
    parties = dealt(TABLES, TARGET)
    rows = play(learner(parties, model, recipe=Recipe("adam", 0.01), batch=16, steps=5), rounds=4)
    again = None
    for round in range(4):  # a learner of a new process, whose source draws other keys
        fresh = learner(parties, model, recipe=Recipe("adam", 0.01), batch=16, steps=5, source=7 + 11 * bool(round))
        again = play(fresh, rows=again, start=round)
    assert np.array_equal(rows, again, equal_nan=True)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_network_on_an_accelerator_ends_as_one_on_the_cpu():
    model = SplitNetwork(labels="shown", width=4, bottom=f"{__name__}:Gated", absent=0.3)
    cpu, cuda = (
        play(learner(dealt(TABLES, TARGET), model, recipe=Recipe("adam", 0.01), device=torch.device(name), **STEPS))
        for name in ("cpu", "cuda")
    )
    assert np.asarray(cuda) == pytest.approx(np.asarray(cpu), abs=1e-6, nan_ok=True)


@pytest.mark.slow
def test_a_round_that_is_played_again_ends_alike():
    learning = learner(dealt(TABLES, TARGET), SHOWN, batch=16, epochs=1)
    first = play(learning)
    again = [play(learning, rows=first, start=1) for _ in range(2)]
    assert np.array_equal(*again, equal_nan=True)


@pytest.mark.slow
def test_the_label_holder_receives_sums_and_the_others_receive_gradients_and_no_label():
    views = {}
    learning = learner(dealt(TABLES, TARGET), SHOWN, batch=120)
    play(learning, heard=lambda peer, values: views.setdefault(peer, []).append(values))
    assert [len(each) for each in views["bob"][-1:]] == [120 * 4]  # one sum of two embeddings
    for peer in ("ada", "eve"):
        slopes = views[peer][-1].view(np.float64)
        assert slopes.shape == (120 * 4,)
        assert np.abs(slopes).max() < 1


@pytest.mark.slow
def test_a_party_that_is_absent_from_a_step_sends_and_receives_nothing():
    model = SplitNetwork(labels="shown", width=4, absent=0.5)
    learning, messages = learner(dealt(TABLES, TARGET), model, batch=16, steps=40), []
    play(learning, heard=lambda peer, values: messages.append((peer, len(values))))
    present = learning.steps.present("ada", 40, round=0)
    assert 10 < present.sum() < 30
    assert sum(peer == "ada" and size in {16 * 4, 8 * 4} for peer, size in messages) == present.sum()
    assert (present != learning.steps.present("eve", 40, round=0)).any()


@pytest.mark.slow
def test_labels_that_are_protected_are_changed_once_and_kept():
    model = SplitNetwork(label_epsilon=1.0, width=4)
    learning = learner(dealt(TABLES, TARGET), model)
    first = play(learning)
    labels = learning.tensors(first[1], peer="bob")["labels"]
    assert 0.1 < (labels != TARGET).mean() < 0.45
    later = play(learner(dealt(TABLES, TARGET), model, source=99), rows=first, start=1)
    assert (learning.tensors(later[1], peer="bob")["labels"] == labels).all()


@pytest.mark.slow
def test_numbers_are_scaled_and_scored_in_their_unit():
    target = 1000 + 50 * sum(table[:, 0] for table in TABLES.values())
    model = SplitNetwork(task="regression", labels="shown", width=4)
    learning = learner(dealt(TABLES, target, classes=None), model, recipe=Recipe("adam", 0.02), test=0.25, rounds=10)
    rows = play(learning, rounds=10)
    scores = learning.evaluate(rows, peers=learning.peers)
    assert scores["r2"][1] > 0.6
    assert scores["loss"][1] < 50**2
    alone = learning.baselines(dict(zip(learning.peers, rows, strict=True)))
    assert alone.alone["bob"]["r2"] < alone.pooled["r2"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "show the labels to the other parties"),
        ({"labels": "shown", "label_epsilon": 1.0}, "set either"),
        ({"labels": "shown", "width": 0}, "width = 0"),
        ({"labels": "shown", "absent": 1.0}, "absent = 1.0"),
        ({"task": "regression", "label_epsilon": 1.0}, "protects classes, not numbers"),
        ({"label_epsilon": -1.0}, "set it to a positive number"),
        ({"labels": "shown", "bottom": "cnn"}, 'model.options.bottom is "cnn"'),
        ({"labels": "shown", "depth": 3}, "has no option depth"),
    ],
)
def test_options_that_make_no_network_are_one_sentence(options, sentence):
    experiment = changed(data={"name": "breast_cancer"}) | {"model": {"name": "split_network", "options": options}}
    with pytest.raises((ExperimentError, ModelError), match=sentence):
        plan(read(experiment))


@pytest.mark.slow
def test_data_that_do_not_fit_are_one_sentence():
    with pytest.raises(DataError, match=r'bob has numbers as targets; set model\.options\.task to "regression"'):
        learner(dealt(TABLES, TARGET.astype(float)), SHOWN)
    with pytest.raises(DataError, match="ada has fewer than 2 encoded columns"):
        learner(dealt(TABLES | {"ada": TABLES["ada"][:, :1]}, TARGET), SHOWN)
    with pytest.raises(ModelError, match="all parties must return 4 numbers for each"):
        play(learner(dealt(TABLES, TARGET), SplitNetwork(labels="shown", width=4, bottom=f"{__name__}:Narrow")))
    with pytest.raises(LearningError, match=r"set a lower learning\.rate"):
        play(learner(dealt(TABLES, TARGET), SHOWN, recipe=Recipe("sgd", 1e9)), rounds=3)


def test_a_network_has_no_shares_of_explained_variance():
    with pytest.raises(ModelError, match="the value of columns is their share of R²"):
        learner(dealt(TABLES, TARGET), SHOWN).shares({peer: {} for peer in TABLES})


def test_a_network_of_people_who_have_all_columns_says_which_data_it_takes():
    with pytest.raises(ModelError, match=r'set data\.name = "vertical"'):
        plan(read({"model": {"name": "split_network"}, "privacy": {"mode": "pairwise"}}))


@pytest.mark.slow
def test_labels_are_guessed_from_gradients_of_credit_no_better_than_epsilon_allows(data_dir):
    parts, labels = two_tables(data_dir, "default_credit_hetero")
    parties = dealt({peer: part[:6000] for peer, part in parts.items()}, labels[:6000].astype(np.int64))
    settings = {"recipe": Recipe("adam", 1e-3), "test": 1 / 3, "batch": 128}
    shown = play_leaks(learner(parties, SplitNetwork(labels="shown"), **settings), "ada", rounds=3).aucs
    assert min(shown)[0] > 0.98
    for epsilon in (1.0, 2.0):
        aucs = play_leaks(learner(parties, SplitNetwork(label_epsilon=epsilon), **settings), "ada", rounds=3).aucs
        bound = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert all(auc <= bound + 3 * error for auc, error in aucs), (epsilon, aucs)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_split_network_of_credit_with_protected_labels_keeps_its_auc(data_dir):
    parts, labels = two_tables(data_dir, "default_credit_hetero")
    parties = dealt(parts, labels.astype(np.int64))
    model = SplitNetwork(label_epsilon=1.0)
    learning = learner(parties, model, recipe=Recipe("adam", 1e-3), test=1 / 3, batch=512)
    scores = learning.evaluate(play(learning, rounds=10), peers=learning.peers)
    assert scores["auc"][1] >= 0.715
