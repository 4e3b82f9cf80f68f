"""The board trains a perceptron as p2pfl does, with the same batches."""

import struct

import numpy as np
import pytest
import torch

from p2pfl.core.draws import keys, subkeys
from p2pfl.data import batches
from p2pfl.data.sample_orders import permutations
from p2pfl.experiment import plan, read

pytestmark = pytest.mark.slow  # the compiler, with sanitizers, takes seconds

FEW = {"topology": {"peers": 8}, "data": {"name": "digits"}, "model": {"hidden": [32]}, "learning": {"device": "cpu"}}
PEER = "peer2"


def request(resolved, row, *, round, flash):
    """Return what asks the board to train a row, and its number of samples."""
    learner, part = resolved.learner, resolved.federation.train[PEER]
    learning, samples = resolved.experiment.learning, len(part)
    batch = learner.batch or samples
    steps = learner.steps or learner.epochs * -(-samples // min(batch, samples))
    key = flash.batch_key(resolved.experiment.seed, PEER)
    head = struct.pack("<IIIIQf", samples, min(batch, samples), steps, round, key, learning.rate)
    features = learner.features[part].numpy().astype("<f4").tobytes()
    return head + row.numpy().tobytes() + features + learner.targets[part].numpy().astype("<u2").tobytes()


@pytest.mark.parametrize("samples", [1, 2, 3, 17, 143, 256])
def test_orders_of_samples_are_those_of_python(check, samples):
    key = subkeys(keys(3, "batches", (PEER,), 5), 1)
    answer = check("o", struct.pack("<QI", int(key[0]) % 2**64, samples))
    assert np.frombuffer(answer, "<u2").tolist() == permutations(torch.from_numpy(key), samples)[0].tolist()


def test_key_in_the_header_leads_to_the_batches_of_python(check, flash):
    epoch = keys(3, "batches", (PEER,), 0)
    assert int(subkeys(np.array([flash.batch_key(3, PEER)], np.uint64).view(np.int64), 0)[0]) == int(epoch[0])
    first = check("o", struct.pack("<QI", int(subkeys(epoch, 0)[0]) % 2**64, 30))
    drawn = np.concatenate(batches(30, seed=3, peer=PEER, round=0, batch=7, epochs=1, steps=None))
    assert np.frombuffer(first, "<u2").tolist() == drawn.tolist()


@pytest.mark.parametrize(
    "changes",
    [
        ["learning.batch=16"],
        ["learning.batch=all", "learning.epochs=3"],
        ["learning.batch=50", "learning.steps=7", "learning.rate=0.5"],
        ["learning.batch=1", "learning.steps=20"],
    ],
)
def test_board_trains_as_p2pfl_does(check, flash, changes):
    """Only the order of sums in float32 differs: a few units in the last place, after up to 20 steps."""
    resolved = plan(read(FEW, changes=changes), only=[PEER])
    row = resolved.learner.start((PEER,))
    for round in (0, 4):
        fitted = resolved.learner.fit(row.clone(), peers=(PEER,), round=round).rows  # [1, P]
        answer = check("t", request(resolved, row, round=round, flash=flash))
        board = torch.frombuffer(bytearray(answer), dtype=torch.float32)
        assert float((board - fitted[0]).abs().max()) < 2e-6
        assert float((fitted - row).abs().max()) > 1e-3  # it has trained
