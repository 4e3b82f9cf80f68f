"""Scores of whole sets, and the targets and features that they need: labels, masks of pictures, tokens."""

import math

import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score, roc_auc_score
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from hidden_models import HiddenModel
from owning import Pixels, Words, labelled, pictures, words
from p2pfl.core.errors import ModelError
from p2pfl.experiment import read
from p2pfl.learning import TorchLearner
from p2pfl.learning.losses import accuracy, binary_cross_entropy, cross_entropy
from p2pfl.learning.set_scores import auc, macro_f1, mean_iou
from p2pfl.simulation import simulate

PEERS = ("ada", "bob")


def own(source):
    return {peer: source(peer=peer, peers=PEERS, seed=1) for peer in PEERS}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def scored(score, outputs, targets, cut=7):
    return score.score([score.kept(outputs[:cut], targets[:cut]), score.kept(outputs[cut:], targets[cut:])])


def test_scores_of_classes_are_those_of_scikit_learn():
    outputs, targets = torch.randn(40, 3, generator=generator()), torch.arange(40) % 3
    said = outputs.argmax(1)
    assert scored(macro_f1, outputs, targets) == pytest.approx(f1_score(targets, said, average="macro"))
    assert scored(mean_iou, outputs, targets) == pytest.approx(jaccard_score(targets, said, average="macro"))
    expected = roc_auc_score(targets, outputs.double().softmax(1), multi_class="ovr")
    assert scored(auc, outputs, targets) == pytest.approx(expected)


def test_scores_of_labels_are_those_of_scikit_learn():
    outputs = torch.randn(40, 4, generator=generator())
    targets = torch.randint(2, (40, 4), generator=generator(1))
    assert scored(macro_f1, outputs, targets) == pytest.approx(f1_score(targets, outputs > 0, average="macro"))
    assert scored(auc, outputs, targets) == pytest.approx(roc_auc_score(targets, outputs, average="macro"))


def test_the_intersection_over_union_is_taken_over_all_pixels_of_all_pictures():
    outputs = torch.randn(10, 3, 4, 5, generator=generator())
    targets = torch.randint(3, (10, 4, 5), generator=generator(1))
    said = outputs.argmax(1)
    expected = jaccard_score(targets.flatten(), said.flatten(), average="macro")
    assert scored(mean_iou, outputs, targets) == pytest.approx(expected)


def test_what_neither_occurs_nor_is_predicted_does_not_count():
    outputs = F.one_hot(torch.tensor([0, 1, 1]), 4).float()
    assert scored(macro_f1, outputs, torch.tensor([0, 1, 1]), cut=1) == 1.0
    labels = torch.tensor([[1, 0], [0, 0]])
    assert scored(auc, torch.randn(2, 2, generator=generator()) + 9 * labels, labels, cut=1) == 1.0
    assert math.isnan(scored(auc, torch.randn(3, 2), torch.zeros(3, 2), cut=1))


def test_a_class_for_each_pixel_trains_by_the_mean_loss_of_its_pixels():
    torch.manual_seed(1)
    learner = TorchLearner(Pixels(), own(pictures), seed=7, batch=4, rate=0.5, dtype=torch.float64, device="cpu")
    rows = learner.start(PEERS)
    start = learner.evaluate(rows, peers=PEERS)
    assert list(start) == ["loss", "accuracy", "iou"]
    model = Pixels().double()
    model.load_state_dict(learner.state_dict(rows[1]))
    test = learner.federation.test["bob"]
    outputs, targets = model(learner.features[test]).detach(), learner.targets[test]
    assert start["loss"][1].item() == pytest.approx(F.cross_entropy(outputs, targets).item())
    assert start["accuracy"][1].item() == pytest.approx((outputs.argmax(1) == targets).double().mean().item())
    assert start["iou"][1].item() == pytest.approx(mean_iou.score([mean_iou.kept(outputs, targets)]))
    for round in range(8):
        rows = learner.fit(rows, peers=PEERS, round=round).rows
    assert (learner.evaluate(rows, peers=PEERS)["iou"] > start["iou"]).all()


@pytest.mark.parametrize("kind", ["stack", "rows"])
def test_several_labels_of_a_sample_train_by_binary_cross_entropy(kind):
    model = nn.Sequential(nn.Linear(6, 2))
    learner = TorchLearner(
        HiddenModel(model),
        own(labelled),
        seed=7,
        batch=None,
        rate=0.5,
        loss=binary_cross_entropy,
        dtype=torch.float64,
        device="cpu",
    )
    peers = PEERS if kind == "stack" else ("ada",)
    rows = learner.start(peers)
    after = learner.fit(rows, peers=peers, round=0).rows
    part = learner.federation.train["ada"]
    copy = HiddenModel(nn.Sequential(nn.Linear(6, 2))).double()
    copy.load_state_dict(learner.state_dict(rows[0]))
    F.binary_cross_entropy_with_logits(copy(learner.features[part]), learner.targets[part]).backward()
    slope = torch.cat([parameter.grad.flatten() for parameter in copy.parameters()])
    torch.testing.assert_close(after[0], rows[0] - 0.5 * slope)
    assert list(learner.evaluate(rows, peers=peers)) == ["loss", "auc", "f1"]


def test_tokens_stay_whole_numbers_for_a_model_that_looks_them_up():
    learner = TorchLearner(Words(), own(words), seed=1, device="cpu")
    assert learner.features.dtype == torch.int64
    rows = learner.fit(learner.start(PEERS), peers=PEERS, round=0).rows
    assert not torch.equal(rows, learner.start(PEERS))


def test_a_model_that_computes_with_whole_numbers_receives_fractions():
    learner = TorchLearner(nn.Linear(5, 2), own(words), seed=1, device="cpu")
    assert learner.features.dtype == torch.float32
    assert learner.on(learner.federation).features.dtype == torch.float32


def test_the_error_of_whole_numbers_is_that_of_the_features_as_they_are():
    class Few(Words):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(3, 4)

    with pytest.raises(ModelError, match="index out of range"):
        TorchLearner(Few(), own(words), seed=1, device="cpu")


def widest(outputs, targets):
    return (outputs.max() - outputs.min()) * len(targets)


widest.whole = True


def test_a_function_of_the_user_may_score_a_whole_set():
    metrics = {"right": cross_entropy, "wide": widest, "area": auc}
    learner = TorchLearner(Words(), own(words), seed=1, metrics=metrics, device="cpu")
    found = learner.evaluate(learner.start(PEERS), peers=PEERS)
    assert list(found) == ["loss", "right", "wide", "area"]


def test_a_function_that_scores_nothing_is_refused_at_once():
    def wrong(outputs, targets):
        return outputs, targets

    wrong.whole = True
    with pytest.raises(ModelError, match=r"wrong returns no number for all 3 samples .*; fix the function"):
        TorchLearner(Words(), own(words), seed=1, metrics={"w": wrong}, device="cpu")


@pytest.mark.parametrize(
    ("model", "data", "options", "sentence"),
    [
        (nn.Conv2d(1, 2, 1), pictures, {}, r"\(2, 4, 4\) outputs per sample, not \(3, 4, 4\) scores.* at each place"),
        (
            nn.Linear(6, 3),
            labelled,
            {"loss": binary_cross_entropy},
            "not the 2 labels",
        ),
    ],
)
def test_outputs_that_do_not_fit_the_targets_are_refused(model, data, options, sentence):
    with pytest.raises(ModelError, match=sentence):
        TorchLearner(model, own(data), seed=1, device="cpu", **options)


def test_an_experiment_names_losses_and_scores():
    table = {
        "rounds": 1,
        "topology": {"kind": "complete", "peers": 2},
        "data": {"name": "breast_cancer"},
        "model": {"name": "linear"},
        "learning": {"metrics": {"f1": "macro_f1", "area": "auc"}, "consensus": True, "device": "cpu"},
        "privacy": {"mode": "none"},
    }
    run = simulate(read(table), baselines=False)
    assert list(run.metrics[-1].scores) == ["loss", "f1", "area"]
    assert set(run.summary["common"]) >= {"loss"}
    assert "f1" not in run.summary["common"]  # no mean over the peers


def test_scores_stand_in_the_order_in_which_they_were_chosen():
    data = {"ada": (torch.randn(40, 3, generator=generator()), torch.arange(40) % 2)}
    for names in (["auc", "accuracy"], ["accuracy", "auc"]):
        metrics = {name: {"auc": auc, "accuracy": accuracy}[name] for name in names}
        learner = TorchLearner(nn.Linear(3, 2), data, metrics=metrics, device="cpu")
        assert list(learner.evaluate(learner.start(["ada"]), peers=["ada"])) == ["loss", *names]
