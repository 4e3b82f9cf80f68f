import numpy as np
import pytest
import torch
from torch import nn

from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner, straggles

PEERS = tuple(f"peer{number:02}" for number in range(40))
EPOCHS = 5


def learner(**settings):
    features = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    own = {peer: np.arange(number % 30, number % 30 + 10) for number, peer in enumerate(PEERS)}
    data = Dataset(features, torch.arange(40) % 2, classes=2)
    return TorchLearner(
        nn.Linear(3, 2), Federation(data, own, own, own), seed=3, batch=4, epochs=EPOCHS, device="cpu", **settings
    )


def fitted(found, *, round=0, peers=PEERS):
    return found.fit(found.start(peers), peers=peers, round=round)


def test_without_stragglers_nothing_changes():
    nobody, plain = learner(stragglers=0.0), learner()
    nobody.initial = plain.initial
    assert torch.equal(fitted(nobody).rows, fitted(plain).rows)


def test_stragglers_do_one_to_all_of_the_epochs_and_the_others_all():
    late = [straggles(peer, seed=3, round=1, share=0.5) for peer in PEERS]
    epochs = fitted(learner(stragglers=0.5), round=1).report.steps / 3  # steps an epoch
    assert set(epochs.tolist()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    assert all(done == EPOCHS for done, behind in zip(epochs.tolist(), late, strict=True) if not behind)
    assert len(set(epochs[torch.tensor(late)].tolist())) == EPOCHS
    assert 10 < sum(late) < 30


def test_where_steps_are_given_stragglers_do_fewer_of_these():
    found = fitted(learner(stragglers=1.0, steps=7)).report.steps
    assert (found.min(), found.max()) == (1, 7)


def test_a_peer_straggles_alike_alone_and_among_others():
    found = learner(stragglers=0.5)
    together = fitted(found, round=2).report.steps
    alone = [fitted(found, round=2, peers=(peer,)).report.steps.item() for peer in PEERS]
    assert together.tolist() == alone


def test_others_straggle_in_the_next_round():
    rounds = [[straggles(peer, seed=3, round=round, share=0.5) for peer in PEERS] for round in range(2)]
    assert rounds[0] != rounds[1]


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_as_many_straggle_as_the_share_says(share):
    late = [straggles(peer, seed=3, round=round, share=share) for peer in PEERS for round in range(50)]
    assert np.mean(late) == pytest.approx(share, abs=3 * np.sqrt(share * (1 - share) / len(late)))
