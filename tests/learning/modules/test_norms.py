"""Batch normalisation: constant, replaced by group normalisation, or each peer's own."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from norming import Normed
from p2pfl.core.errors import ModelError
from p2pfl.data import batches
from p2pfl.learning import TorchLearner
from p2pfl.learning.modules.norms import FrozenNorm, groups, replace_norms

SIZES = {"ada": 9, "bob": 8, "cleo": 5}
PEERS = tuple(SIZES)


def owned(seed=0):
    random = torch.Generator().manual_seed(seed)
    drawn = ((torch.randn(n, 6, generator=random), torch.randint(3, (n,), generator=random)) for n in SIZES.values())
    return dict(zip(PEERS, drawn, strict=True))


def model(seed=3):
    torch.manual_seed(seed)
    made = Normed(6, 3)
    with torch.no_grad():
        made.norm.running_mean.uniform_(-1, 1)
        made.norm.running_var.uniform_(0.5, 2)
        made.norm.weight.uniform_(0.5, 2)
    return made


def learner_of(made, **options):
    usual = {"seed": 7, "batch": 4, "epochs": 2, "dtype": torch.float64, "device": "cpu"}
    return TorchLearner(made, owned(), **{**usual, **options})


def trained(made, learner, peer, *, kind=torch.optim.SGD, **options):
    """The state dict after a training loop as anybody would write it."""
    made = copy.deepcopy(made).double()
    optimiser = kind([parameter for parameter in made.parameters() if parameter.requires_grad], **options)
    part, data = learner.federation.train[peer], learner.federation.dataset
    for chosen in batches(len(part), seed=7, peer=peer, round=0, batch=4, epochs=2, steps=None):
        index = torch.from_numpy(part[chosen])
        optimiser.zero_grad()
        F.cross_entropy(made(data.features[index].double()), data.targets[index]).backward()
        optimiser.step()
    return made.state_dict()


def same(found, expected, atol=1e-12):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name.endswith("num_batches_tracked"):
            continue  # counts nothing: the momentum is a constant
        torch.testing.assert_close(found[name], value, rtol=0, atol=atol, msg=name)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
        (torch.optim.AdamW, {"weight_decay": 0.1}),
    ],
)
def test_a_local_layer_trains_as_torch_trains_it_statistics_included(kind, options):
    made = model()
    name = {torch.optim.SGD: "sgd", torch.optim.AdamW: "adamw"}[kind]
    learner = learner_of(made, norm="local", optimizer=name, options=options, rate=0.1)
    rows = learner.fit(learner.start(PEERS), peers=PEERS, round=0).rows
    for index, peer in enumerate(PEERS):
        expected = trained(made, learner, peer, kind=kind, lr=0.1, **options)
        same(learner.state_dict(rows[index]), expected)


def test_a_row_holds_the_running_statistics_of_local_layers_and_says_that_they_stay():
    learner = learner_of(model(), norm="local")
    assert learner.layout.names[-2:] == ("norm.running_mean", "norm.running_var")
    assert learner.layout.local == ("norm.weight", "norm.bias", "norm.running_mean", "norm.running_var")
    assert learner.trained.names == learner.layout.names[:-2]
    same(learner.state_dict(learner.start(PEERS)[0]), model().double().state_dict())


def test_the_score_of_a_peer_is_that_of_its_own_statistics():
    learner = learner_of(model(), norm="local")
    rows = learner.fit(learner.start(PEERS), peers=PEERS, round=0).rows
    together = learner.evaluate(rows, peers=PEERS, part="train")["loss"]
    for index, peer in enumerate(PEERS):
        own = model().double().eval()
        own.load_state_dict(learner.state_dict(rows[index]))
        part, data = learner.federation.train[peer], learner.federation.dataset
        expected = F.cross_entropy(own(data.features[part].double()), data.targets[part])
        assert together[index].item() == pytest.approx(expected.item(), abs=1e-12)


def test_gradients_of_running_statistics_are_zero_and_the_rows_stay():
    learner = learner_of(model(), norm="local")
    rows = learner.start(PEERS)
    before = rows.clone()
    slope = learner.gradient(rows, peers=PEERS, round=0)
    assert torch.equal(rows, before)
    assert not slope[:, learner.trained.size :].any()
    assert slope[:, : learner.trained.size].any()
    same(learner.state_dict(learner.start(PEERS)[0]), model().double().state_dict())


def test_a_batch_of_one_sample_is_normalised_by_the_running_statistics():
    made = model()
    learner = learner_of(made, norm="local", batch=1, steps=1, epochs=1, rate=0.1)
    row = learner.fit(learner.start(["ada"]), peers=["ada"], round=0).rows[0]
    found, start = learner.state_dict(row), made.double().state_dict()
    assert torch.equal(found["norm.running_mean"], start["norm.running_mean"])
    assert not torch.equal(found["body.weight"], start["body.weight"])


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(
    "options", [{"norm": "frozen"}, {"frozen": ["norm"]}, {"frozen": ["norm"], "norm": "local"}], ids=str
)
@pytest.mark.parametrize("peers", [PEERS, ("ada",)], ids=str)
def test_a_frozen_layer_is_a_constant(options, peers):
    learner = learner_of(model(), rate=0.1, **options)
    assert [name for name in learner.layout.names if "norm" in name] == []
    rows = learner.fit(learner.start(peers), peers=peers, round=0).rows
    for index, peer in enumerate(peers):
        found, start = learner.state_dict(rows[index]), model().double().state_dict()
        for name in ("weight", "bias", "running_mean", "running_var"):
            assert torch.equal(found[f"norm.{name}"], start[f"norm.{name}"])
        made = model().double()
        made.norm = FrozenNorm(made.norm)
        same(found, trained(made, learner, peer, lr=0.1))


def test_frozen_normalisation_is_that_of_torch_in_evaluation():
    layer = model().norm.eval()
    x = torch.randn(4, 5)
    torch.testing.assert_close(FrozenNorm(layer).train()(x), layer(x))


def test_group_normalisation_takes_the_place_and_the_parameters():
    made = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 2))
    nn.init.uniform_(made[1].weight)
    weight = made[1].weight.clone()
    assert replace_norms(made, "group") == ()
    assert (made[1].num_groups, made[1].num_channels) == (4, 8)
    assert torch.equal(made[1].weight, weight)
    data = {peer: (torch.randn(6, 3, 6, 6), torch.tensor([0, 1] * 3)) for peer in PEERS}
    learner = TorchLearner(made, data, seed=0, device="cpu")
    rows = learner.fit(learner.start(PEERS), peers=PEERS, round=0).rows
    assert rows.isfinite().all()


@pytest.mark.parametrize("channels", [1, 2, 6, 7, 24, 64, 96, 1000])
def test_groups_divide_the_channels_and_have_two_where_they_can(channels):
    count = groups(channels)
    assert channels % count == 0
    assert count == 1 or channels // count >= 2
    assert count <= 32


def test_a_layer_in_two_places_stays_one_layer():
    shared = nn.BatchNorm1d(6)
    made = nn.Sequential(shared, nn.Linear(6, 6), shared, nn.Linear(6, 3))
    learner = learner_of(made, norm="local")
    assert sum("running_mean" in name for name in learner.layout.names) == 1
    state = learner.state_dict(learner.start(["ada"])[0])
    assert {"0.running_mean", "2.running_mean"} <= state.keys()


def test_unkeyed_random_numbers_are_refused_beside_local_layers():
    class Careless(Normed):
        def forward(self, x):
            return F.dropout(super().forward(x), 0.5, training=self.training)

    with pytest.raises(ModelError, match=r"torch's global generator; use torch\.nn\.Dropout"):
        learner_of(Careless(6), norm="local")


@pytest.mark.parametrize(
    ("made", "options", "sentence"),
    [
        (
            Normed(6),
            {},
            r"BatchNorm1d 'norm' is batch normalisation, .*; set model\.norm to \"frozen\" .*\"group\" .* or \"local\"",
        ),
        (nn.Linear(6, 3), {"norm": "frozen"}, 'model.norm is "frozen", but the model has no batch normalisation'),
        (
            nn.Sequential(nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3)),
            {"norm": "local"},
            "BatchNorm1d '0' has no running statistics to keep",
        ),
        (
            nn.Sequential(nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 3)),
            {"norm": "local"},
            "BatchNorm1d '0' has no momentum",
        ),
        (
            nn.Sequential(type("Mine", (nn.BatchNorm1d,), {"__module__": "mine"})(6), nn.Linear(6, 3)),
            {"norm": "frozen"},
            "Mine '0' is a class of its own",
        ),
    ],
)
def test_what_cannot_be_normalised_is_refused_in_one_sentence(made, options, sentence):
    with pytest.raises(ModelError, match=sentence):
        learner_of(made, **options)
