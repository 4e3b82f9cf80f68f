"""Data of one peer as tensors: arrays, Datasets of torch, pictures."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from p2pfl.core.errors import DataError
from p2pfl.data import Dataset as Samples
from p2pfl.data import gather
from p2pfl.data.samples import tensors


class Listed(Dataset):
    """A map-style Dataset of given samples."""

    def __init__(self, *samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        return self.samples[number]


def test_whole_numbers_stay_whole_and_fractions_are_single():
    features, targets = tensors((np.arange(6, dtype=np.int16).reshape(3, 2), np.ones(3)), giver="it gives")
    assert (features.dtype, targets.dtype) == (torch.int64, torch.float32)
    features, targets = tensors((np.ones((3, 2)), np.array([True, False, True])), giver="it gives")
    assert (features.dtype, targets.tolist()) == (torch.float32, [1, 0, 1])


def test_a_dataset_is_read_once_sample_by_sample():
    samples = [(torch.full((1, 2, 3), float(i)), i % 2) for i in range(4)]
    features, targets = tensors(Listed(*samples), giver="it gives")
    assert torch.equal(features, torch.stack([x for x, _ in samples]))
    assert targets.tolist() == [0, 1, 0, 1]


def test_a_copy_is_taken():
    values = torch.zeros(3, 2)
    features, _ = tensors((values, torch.zeros(3)), giver="it gives")
    values += 1
    assert not features.any()


def test_pictures_become_channels_first_and_masks_whole_numbers():
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    mask = np.array([[0, 1, 2, 2], [0, 0, 1, 1]], dtype=np.uint8)
    features, targets = tensors(Listed((Image.fromarray(pixels), Image.fromarray(mask))), giver="it gives")
    assert features.shape == (1, 3, 2, 4)
    torch.testing.assert_close(features[0, 2, 1, 3], torch.tensor(23 / 255))
    assert targets.tolist() == [mask.tolist()]
    grey, _ = tensors(Listed((Image.fromarray(mask), 1)), giver="it gives")
    assert grey.shape == (1, 1, 2, 4)


def test_peers_may_have_datasets_of_torch():
    own = {peer: TensorDataset(torch.arange(20).view(10, 2), torch.arange(10) % 2) for peer in ("ada", "bob")}
    found = gather(own, seed=0)
    assert found.dataset.features.dtype == torch.int64
    assert (found.dataset.shape, found.dataset.classes) == ((2,), 2)


def test_targets_may_have_places():
    data = Samples(torch.zeros(3, 1, 2, 2), torch.tensor([[[0, 1], [2, 2]]] * 3), classes=3)
    assert data.counts(np.array([0, 2])).tolist() == [2, 2, 4]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (DataLoader(TensorDataset(torch.zeros(2))), "it gives a DataLoader; give its dataset instead"),
        (torch.zeros(3, 2), "it gives a Tensor; return \\(features, targets\\)"),
        (Listed({"x": 1}), "it gives a Dataset whose sample 0 is a dict; have it return pairs"),
        (
            Listed((torch.zeros(2), 0), (torch.zeros(3), 0)),
            r"features of shape \(2,\) in sample 0 and \(3,\) in sample 1; give it a transform",
        ),
        (Listed(("text", 0)), "sample 0 is no pair of numbers"),
    ],
)
def test_other_data_are_refused_in_one_sentence(given, sentence):
    with pytest.raises(DataError, match=sentence):
        tensors(given, giver="it gives")


def test_peers_with_whole_numbers_and_with_fractions_do_not_mix():
    own = {"ada": (torch.zeros(4, 2), torch.arange(4) % 2), "bob": (torch.zeros(4, 2).long(), torch.arange(4) % 2)}
    with pytest.raises(DataError, match="different shapes or types"):
        gather(own, seed=0)
