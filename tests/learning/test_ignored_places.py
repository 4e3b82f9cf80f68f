"""Places without a class, such as padded tokens, count in no loss, gradient or score."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from p2pfl.core.errors import DataError
from p2pfl.data import Dataset
from p2pfl.learning import TorchLearner
from p2pfl.learning.losses import accuracy, cross_entropy, mean
from p2pfl.learning.set_scores import mean_iou

CLASSES, LENGTH = 5, 6


class Tagger(nn.Module):
    """Scores of each place of a sentence, classes second."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.words, self.tags = nn.Embedding(9, 4), nn.Linear(4, CLASSES)

    def forward(self, tokens):
        return self.tags(self.words(tokens)).movedim(-1, 1)


def sentences(seed, count=6):
    own = torch.Generator().manual_seed(seed)
    targets = torch.randint(CLASSES, (count, LENGTH), generator=own)
    lengths = torch.randint(1, LENGTH + 1, (count, 1), generator=own)
    return torch.randint(9, (count, LENGTH), generator=own), targets.where(torch.arange(LENGTH) < lengths, -100)


def test_the_loss_of_a_sample_is_the_mean_over_its_places_with_a_class():
    outputs, (_, targets) = torch.randn(6, CLASSES, LENGTH), sentences(0)
    for loss, value in (
        (cross_entropy, lambda o, t: F.cross_entropy(o.t(), t)),
        (accuracy, lambda o, t: (o.argmax(0) == t).float().mean()),
    ):
        each = [value(o[:, t >= 0], t[t >= 0]) for o, t in zip(outputs, targets, strict=True)]
        torch.testing.assert_close(loss(outputs, targets).float(), torch.stack(each))
        torch.testing.assert_close(mean(loss, outputs, targets).float(), torch.stack(each).mean())


def test_a_sample_without_any_class_has_no_loss_and_no_gradient():
    outputs = torch.randn(2, CLASSES, LENGTH, requires_grad=True)
    targets = torch.stack([torch.full((LENGTH,), -100), torch.zeros(LENGTH, dtype=torch.int64)])
    mean(cross_entropy, outputs, targets).backward()
    assert cross_entropy(outputs, targets)[0] == 0
    assert not outputs.grad[0].any()
    assert outputs.grad[1].any()


def test_all_engines_take_the_step_of_plain_torch():
    data = {name: sentences(seed, count) for seed, (name, count) in enumerate({"ada": 6, "bob": 9}.items())}
    learner = TorchLearner(Tagger(), data, rate=0.5, batch="all", dtype=torch.float64)
    peers = ["ada", "bob"]
    rows = learner.fit(learner.start(peers), peers=peers, round=0).rows
    for number, peer in enumerate(peers):
        alone = learner.fit(learner.start([peer]), peers=[peer], round=0).rows
        torch.testing.assert_close(rows[number], alone[0], atol=1e-12, rtol=0)
        model, part = Tagger().double(), torch.from_numpy(learner.federation.train[peer])
        tokens, targets = learner.features[part], learner.targets[part]
        losses = [
            F.cross_entropy(model(sentence[None])[0].t()[tags >= 0], tags[tags >= 0])
            for sentence, tags in zip(tokens, targets, strict=True)
        ]
        torch.stack(losses).mean().backward()
        oracle = torch.cat([(value - 0.5 * value.grad).flatten() for value in model.parameters()])
        torch.testing.assert_close(rows[number], oracle.detach(), atol=1e-12, rtol=0)


def test_other_scores_leave_such_places_out():
    outputs, (_, targets) = torch.randn(6, CLASSES, LENGTH), sentences(0)
    counted = targets >= 0
    flat = mean_iou.score([mean_iou.kept(outputs.movedim(1, -1)[counted], targets[counted])])
    assert mean_iou.score([mean_iou.kept(outputs, targets)]) == pytest.approx(flat)
    data = Dataset(torch.zeros(6, LENGTH), targets, CLASSES)
    assert data.counts(np.arange(6)).sum() == counted.sum()


def test_a_single_class_cannot_be_left_out():
    with pytest.raises(DataError, match="the classes run from -100 to 1"):
        Dataset(torch.zeros(2, 1), torch.tensor([1, -100]), 2)
