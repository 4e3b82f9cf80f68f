"""TorchLearner: the same mathematics alone, stacked, by kernels and by vmap."""

import copy
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from hidden_models import BranchingModel, HiddenModel
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.data import Dataset, Federation, batches, gather
from p2pfl.data.federation import PARTS
from p2pfl.learning import TorchLearner

PEERS = tuple(f"peer{i}" for i in range(6))


def swarm(shape=(6,), *, classes=3, sizes=(5, 16, 1, 23, 0, 8), seed=0):
    """Peers with different numbers of random samples, and a test set that all share."""
    random = torch.Generator().manual_seed(seed)
    count = 40
    features = torch.randn(count, *shape, generator=random)
    targets = torch.randint(classes, (count,), generator=random) if classes else torch.randn(count, generator=random)
    rng = np.random.default_rng(seed)
    train = {peer: np.sort(rng.permutation(count)[:size]) for peer, size in zip(PEERS, sizes, strict=True)}
    held = np.arange(30, count)
    none = np.arange(0)
    return Federation(
        Dataset(features, targets, classes or None), train, dict.fromkeys(PEERS, none), dict.fromkeys(PEERS, held)
    )


class Hollow(HiddenModel):
    """Has a parameter without numbers."""

    def __init__(self, inner):
        super().__init__(inner)
        self.hollow = nn.Parameter(torch.empty(0))


def mlp(outputs=3, *, dropout=0.0):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Dropout(dropout), nn.Linear(5, outputs))


def noisy(learner, scale=0.1):
    """Different rows for different peers."""
    random = torch.Generator().manual_seed(5)
    rows = learner.start(PEERS)
    return rows + scale * torch.randn(rows.shape, generator=random, dtype=rows.dtype)


def learner_of(model, federation=None, **options):
    defaults = {"seed": 7, "batch": 4, "epochs": 2, "dtype": torch.float64, "device": "cpu"}
    return TorchLearner(model, federation or swarm(), **{**defaults, **options})


def loop(model, federation, row, learner, *, peer, round=0, kind=torch.optim.SGD, batch=4, epochs=2, **options):
    """A training loop as anybody would write it."""
    model = copy.deepcopy(model).to(row.dtype)
    model.load_state_dict(learner.state_dict(row))
    optimiser = kind(model.parameters(), **options)
    part = federation.train[peer]
    features, targets = federation.dataset.features.to(row.dtype), federation.dataset.targets
    for chosen in batches(len(part), seed=7, peer=peer, round=round, batch=batch, epochs=epochs, steps=None):
        index = torch.from_numpy(part[chosen])
        optimiser.zero_grad()
        F.cross_entropy(model(features[index]), targets[index]).backward()
        optimiser.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_row_is_a_hand_written_loop_bit_for_bit(dtype):
    federation, model = swarm(), mlp()
    learner = learner_of(model, federation, dtype=dtype, rate=0.1)
    row = learner.start(["peer3"])
    fitted = learner.fit(row, peers=["peer3"], round=0)
    assert torch.equal(fitted.rows[0], loop(model, federation, row[0], learner, peer="peer3", lr=0.1))
    assert fitted.report.steps.tolist() == [12]


@pytest.mark.parametrize("wrap", [nn.Sequential, HiddenModel, BranchingModel])
def test_a_stack_of_rows_is_a_loop_over_peers_of_different_sizes(wrap):
    federation, model = swarm(), wrap(mlp())
    learner = learner_of(model, federation, rate=0.1)
    rows = noisy(learner)
    fitted = learner.fit(rows, peers=PEERS, round=2)
    for i, peer in enumerate(PEERS):
        expected = loop(model, federation, rows[i], learner, peer=peer, round=2, lr=0.1)
        torch.testing.assert_close(fitted.rows[i], expected, rtol=0, atol=1e-12)
    assert fitted.report.steps.tolist() == [4, 8, 2, 12, 0, 4]
    assert fitted.report.loss[4] == 0


class Recurrent(nn.Module):
    """What vmap can train but not score."""

    def __init__(self):
        super().__init__()
        self.recurrent, self.head = nn.LSTM(6, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.recurrent(x.unsqueeze(1))[0][:, -1])


def test_a_recurrent_model_is_trained_and_scored_alone_and_in_a_stack():
    learner = learner_of(Recurrent(), swarm(), rate=0.1)
    rows = noisy(learner)
    fitted = learner.fit(rows, peers=PEERS, round=0)
    scores = learner.evaluate(fitted.rows, peers=PEERS)
    for i, peer in enumerate(PEERS):
        alone = learner.fit(rows[i : i + 1], peers=[peer], round=0)
        torch.testing.assert_close(fitted.rows[i], alone.rows[0], rtol=0, atol=1e-12)
        single = learner.evaluate(fitted.rows[i : i + 1], peers=[peer])
        torch.testing.assert_close(scores["loss"][i], single["loss"][0], rtol=0, atol=1e-12)


def test_the_three_paths_are_chosen_by_the_model():
    kinds = [type(learner_of(wrap(mlp())).engine).__name__ for wrap in (nn.Sequential, HiddenModel, BranchingModel)]
    assert kinds == ["Kernels", "StackedEngine", "PlainEngine"]


@pytest.mark.parametrize("wrap", [nn.Sequential, HiddenModel])
def test_regression_is_a_loop_over_peers(wrap):
    federation = swarm(classes=0)
    learner = learner_of(wrap(mlp(1)), federation, rate=0.05, batch=None, epochs=1)
    rows = noisy(learner)
    stacked = learner.fit(rows, peers=PEERS, round=0)
    for i, peer in enumerate(PEERS):
        alone = learner.fit(rows[i : i + 1], peers=[peer], round=0)
        torch.testing.assert_close(stacked.rows[i], alone.rows[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(stacked.report.loss[i], alone.report.loss[0], rtol=0, atol=1e-12)
    scores = learner.evaluate(rows, peers=PEERS)
    targets = federation.dataset.targets[30:].double()
    torch.testing.assert_close(scores["r2"], 1 - scores["loss"] / targets.var(correction=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("wrap", [nn.Sequential, HiddenModel])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_rate_of_zero_returns_the_rows_bit_for_bit(wrap, optimizer):
    learner = learner_of(wrap(mlp(dropout=0.5)), rate=0.0, optimizer=optimizer)
    rows = noisy(learner)
    assert torch.equal(learner.fit(rows, peers=PEERS, round=0).rows, rows)


def test_training_leaves_the_rows_it_was_given_alone():
    learner = learner_of(mlp(), rate=0.5)
    for rows, peers in ((noisy(learner), PEERS), (learner.start(["peer0"]), ["peer0"])):
        before = rows.clone()
        learner.fit(rows, peers=peers, round=0)
        assert torch.equal(rows, before)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("wrap", [nn.Sequential, HiddenModel])
def test_dropout_is_the_same_alone_and_in_a_stack(wrap):
    learner = learner_of(wrap(mlp(dropout=0.4)), rate=0.1)
    rows = noisy(learner)
    stacked = learner.fit(rows, peers=PEERS, round=1).rows
    for i, peer in enumerate(PEERS):
        alone = learner.fit(rows[i : i + 1], peers=[peer], round=1).rows[0]
        torch.testing.assert_close(stacked[i], alone, rtol=0, atol=1e-12)
    without = learner_of(wrap(mlp()), rate=0.1).fit(rows, peers=PEERS, round=1).rows
    assert not torch.allclose(stacked[0], without[0])


@pytest.mark.slow
@given(mask=st.lists(st.booleans(), min_size=6, max_size=6))
def test_a_row_does_not_depend_on_which_others_are_trained(mask):
    learner = learner_of(mlp(), rate=0.1, optimizer="sgd", options={"momentum": 0.9})
    rows = noisy(learner)
    everyone = learner.fit(rows, peers=PEERS, round=0)
    some = learner.fit(rows, peers=PEERS, round=0, active=torch.tensor(mask))
    for i, active in enumerate(mask):
        if active:
            torch.testing.assert_close(some.rows[i], everyone.rows[i], rtol=0, atol=1e-12)
        else:
            assert torch.equal(some.rows[i], rows[i])


def test_a_correction_is_added_to_every_gradient():
    federation, model = swarm(), mlp()
    learner = learner_of(model, federation, rate=0.1, epochs=1, batch=None)
    rows = noisy(learner)
    pull = torch.randn(rows.shape, dtype=rows.dtype, generator=torch.Generator().manual_seed(1))
    plain = learner.fit(rows, peers=PEERS, round=0).rows
    corrected = learner.fit(rows, peers=PEERS, round=0, correction=lambda _, index: pull[index]).rows
    difference = plain - 0.1 * pull
    difference[4] = rows[4]  # it has no samples and takes no step
    torch.testing.assert_close(corrected, difference, rtol=0, atol=1e-12)


def test_a_correction_of_zero_changes_nothing():
    learner = learner_of(mlp(), rate=0.1)
    rows = noisy(learner)
    plain = learner.fit(rows, peers=PEERS, round=0).rows
    assert torch.equal(learner.fit(rows, peers=PEERS, round=0, correction=lambda r, _: torch.zeros_like(r)).rows, plain)


def test_frozen_parameters_are_no_part_of_a_row_and_do_not_move():
    model = mlp()
    learner = learner_of(model, frozen=["0"], rate=0.5)
    assert learner.layout.names == ("3.weight", "3.bias")
    fitted = learner.fit(learner.start(PEERS), peers=PEERS, round=0)
    state = learner.state_dict(fitted.rows[0])
    assert torch.equal(state["0.weight"], model.state_dict()["0.weight"].double())
    assert not torch.equal(state["3.weight"], model.state_dict()["3.weight"].double())


class Tied(nn.Module):
    """Shares one weight between two layers, and has a scale with no axes."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.register_buffer("shift", torch.tensor(0.1))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.last(self.scale * torch.tanh(self.second(torch.tanh(self.first(x)))) + self.shift)


def test_tied_scalar_and_unused_parameters_and_buffers_learn_as_in_a_loop():
    torch.manual_seed(0)
    federation, model = swarm(), Tied()
    learner = learner_of(model, federation, rate=0.1)
    rows = learner.start(PEERS)
    stacked = learner.fit(rows, peers=PEERS, round=0).rows
    for i, peer in enumerate(PEERS[:3]):
        expected = loop(model, federation, rows[i], learner, peer=peer, lr=0.1)
        torch.testing.assert_close(stacked[i], expected, rtol=0, atol=1e-12)
    state = learner.state_dict(stacked[0])
    assert set(state) == set(model.state_dict())
    assert torch.equal(state["first.weight"], state["second.weight"])


def test_evaluation_is_a_mean_over_samples_however_the_test_parts_are_shared():
    federation, model = swarm(), mlp()
    private = {peer: federation.test[peer][: 3 + i] for i, peer in enumerate(PEERS)}
    for tests in (federation.test, private):
        for wrap in (nn.Sequential, HiddenModel, BranchingModel):
            learner = learner_of(wrap(model), Federation(federation.dataset, federation.train, {}, tests))
            rows = noisy(learner)
            scores = learner.evaluate(rows, peers=PEERS)
            for i, peer in enumerate(PEERS):
                whole = wrap(copy.deepcopy(model)).double()
                whole.load_state_dict(learner.state_dict(rows[i]))
                index = torch.from_numpy(tests[peer])
                outputs = whole(federation.dataset.features[index].double())
                targets = federation.dataset.targets[index]
                torch.testing.assert_close(scores["loss"][i], F.cross_entropy(outputs, targets).detach())
                assert scores["accuracy"][i] == pytest.approx((outputs.argmax(1) == targets).double().mean().item())


def test_a_part_without_samples_scores_nan():
    learner = learner_of(mlp())
    assert all(
        math.isnan(score) for score in learner.evaluate(learner.start(PEERS), peers=PEERS, part="validation")["loss"]
    )


def test_a_loss_and_metrics_of_ones_own_are_per_sample():
    def hinge(outputs, targets):
        right = outputs.gather(-1, targets.unsqueeze(-1))
        return (1 + outputs - right).clamp_min(0).sum(-1)

    learner = learner_of(mlp(), loss=hinge, metrics={"sure": lambda o, _: (o.amax(-1) > 0.5).double()}, rate=0.1)
    rows = noisy(learner)
    stacked = learner.fit(rows, peers=PEERS, round=0).rows
    alone = learner.fit(rows[3:4], peers=PEERS[3:4], round=0).rows
    torch.testing.assert_close(stacked[3], alone[0], rtol=0, atol=1e-12)
    assert set(learner.evaluate(rows, peers=PEERS)) == {"loss", "sure"}


def test_a_pretrained_start_is_the_start(tmp_path):
    torch.manual_seed(11)
    other = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.0), nn.Linear(5, 3)).state_dict()
    save_file(other, tmp_path / "start.safetensors")
    for pretrained in (other, tmp_path / "start.safetensors"):
        learner = learner_of(mlp(), pretrained=pretrained, dtype=torch.float32)
        state = learner.state_dict(learner.start(["peer0"])[0])
        assert all(torch.equal(state[name], value) for name, value in other.items())


def test_the_schedule_sets_the_rate_by_the_round():
    options = {"step_size": 1, "gamma": 0.5}
    falling = learner_of(mlp(), rate=0.4, schedule="StepLR", schedule_options=options)
    constant = learner_of(mlp(), rate=0.1)
    rows = falling.start(PEERS)
    assert torch.equal(falling.fit(rows, peers=PEERS, round=2).rows, constant.fit(rows, peers=PEERS, round=2).rows)


def test_mixed_precision_learns_about_the_same():
    full, mixed = (learner_of(HiddenModel(mlp()), precision=p, dtype=torch.float32) for p in ("full", "mixed"))
    rows = full.start(PEERS)
    a, b = (learner.fit(rows, peers=PEERS, round=0).rows for learner in (full, mixed))
    alone = mixed.fit(rows[:1], peers=PEERS[:1], round=0).rows
    torch.testing.assert_close(a, b, rtol=0, atol=0.02)
    torch.testing.assert_close(alone[0], b[0], rtol=0, atol=0.02)
    assert not torch.equal(a, b)


def test_a_loss_that_is_not_a_number_names_peer_and_round():
    learner = learner_of(mlp(), rate=1e200)
    with pytest.raises(LearningError, match=r"training of peer0 diverged in round 3; set a smaller learning\.rate"):
        learner.fit(learner.start(PEERS), peers=PEERS, round=3)


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (nn.Sequential(nn.Linear(5, 3)), {}, "features of shape \\(6,\\)"),
        (
            nn.Sequential(nn.Linear(6, 2)),
            {},
            (
                r"the model returns \(2,\) outputs per sample, not \(3,\) scores, one for each class; match its last "
                r"layer to the data, or set both learning\.loss and learning\.metrics"
            ),
        ),
        (nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), {}, "GroupNorm"),
        (nn.Sequential(nn.Linear(6, 3), nn.AlphaDropout(0.1)), {}, "torch's global generator; use torch.nn.Dropout"),
        (nn.Sequential(nn.Linear(6, 3), nn.RReLU()), {}, "torch's global generator; use torch.nn.Dropout"),
        (mlp(), {"frozen": ["encoder"]}, "'encoder'"),
        (
            mlp(),
            {"frozen": ["*"]},
            "the model has no parameter to train; free some in model.frozen, or add a layer with parameters",
        ),
        (mlp(), {"pretrained": {"other": torch.zeros(1)}}, "other"),
        (
            mlp(),
            {"pretrained": {"0.weight": torch.zeros(1)}},
            (
                re.escape(
                    "model.pretrained does not fit the model (Error(s) in loading state_dict for Sequential: size "
                    "mismatch for 0.weight: copying a param with shape torch.Size([1]) from checkpoint, the shape "
                    "in current model is torch.Size([5, 6]).);"
                )
            ),
        ),
        (mlp(), {"device": "tpu"}, "learning.device"),
        (mlp(), {"precision": "mixed"}, "mixed precision"),
        (
            mlp(),
            {"loss": nn.CrossEntropyLoss()},
            (
                re.escape(
                    "torch.nn.modules.loss:CrossEntropyLoss returns shape (), not a tensor of one number per "
                    "sample, (3,); do not average over samples (reduction='none'), but over all else"
                )
            ),
        ),
        (mlp(), {"dtype": torch.float16}, "float32"),
        (mlp(1), {"loss": lambda outputs, targets: (outputs[:, 0] - targets).square()}, "set both learning.loss and"),
        (mlp(), {"loss": F.mse_loss, "metrics": {}}, "torch.nn.functional:mse_loss"),
        (mlp(), {"metrics": {"loss": lambda outputs, _: outputs[:, 0]}}, "rename it"),
        (
            nn.ModuleDict({"in": nn.Linear(6, 3)}),
            {},
            (
                re.escape(
                    "the model fails on 3 samples with features of shape (6,) (NotImplementedError: Module "
                    '[ModuleDict] is missing the required "forward" function); match its first layer to the data'
                )
            ),
        ),
        (Hollow(mlp()), {}, "'hollow' of shape \\(0,\\)"),
    ],
)
def test_what_cannot_learn_is_refused_in_one_sentence(model, options, sentence):
    with pytest.raises(ModelError, match=sentence):
        learner_of(model, **options)


def test_unkeyed_random_numbers_in_a_forward_are_refused():
    class Careless(HiddenModel):
        def forward(self, x):
            return F.dropout(self.inner(x), 0.5, training=self.training)

    with pytest.raises(ModelError, match=r"torch's global generator; use torch\.nn\.Dropout"):
        learner_of(Careless(mlp()))


def test_rows_of_another_model_are_refused():
    learner = learner_of(mlp())
    with pytest.raises(ModelError, match="rows"):
        learner.fit(torch.zeros(2, 3), peers=PEERS[:2], round=0)


def test_equal_rows_on_one_test_set_score_as_each_of_them_alone():
    learner = learner_of(mlp(), swarm(), rate=0.1)
    rows = noisy(learner)[:1].repeat(len(PEERS), 1)
    together = learner.evaluate(rows, peers=PEERS)
    alone = learner.evaluate(rows[:1], peers=PEERS[:1])
    assert set(together) == set(alone)
    for name, scores in together.items():
        assert torch.equal(scores, alone[name].repeat(len(PEERS)))


def test_the_seed_of_a_run_draws_test_parts_anew_from_data_that_are_read_once():
    samples = torch.randn(3, 20, 6)
    own = {f"peer{i}": (samples[i, : 20 - 7 * i], torch.arange(20 - 7 * i) % 3) for i in range(3)}
    first = TorchLearner(mlp(), own, device="cpu")
    samples.zero_()
    made, expected = first.adjusted(seed=9).federation, gather(own, seed=9)
    assert made.dataset is first.federation.dataset
    for part in PARTS:
        for peer, positions in getattr(expected, part).items():
            assert np.array_equal(getattr(made, part)[peer], positions)
    assert not np.array_equal(made.test["peer0"], first.federation.test["peer0"])
    assert first.on(swarm()).adjusted(seed=9).federation.peers == PEERS
    assert first.on(swarm()).adjusted(seed=9).seed == 9
