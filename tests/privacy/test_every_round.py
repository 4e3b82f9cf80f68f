"""Private noise of many rounds: no two releases of any peer have any in common."""

import numpy as np
import pytest
import torch

from p2pfl.identity import SecretSource, SeededSource
from p2pfl.neighbourhood import settled
from p2pfl.privacy import Settings, private
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import metropolis, ring

ROUNDS = 14
SIZE = 400


@pytest.mark.parametrize("source", [SecretSource(), SeededSource(3)], ids=["secret", "seeded"])
def test_the_noise_of_any_two_releases_of_a_dozen_rounds_is_independent(source):
    weights = [metropolis(ring(3))]
    rows, zeros = [], torch.zeros(3, SIZE, dtype=torch.float64)
    for round in range(ROUNDS):
        net = StackedNeighbourhood(weights, round=round, seed=0)
        hidden = private(net, settings=Settings(noise=1.0), masks=None, source=source, round=round)
        rows += [settled(hidden.release(zeros, since=zeros)).rows.numpy() for _ in range(2)]
    noise = np.concatenate(rows) * 2.0**-20  # [M, P]
    alike = np.abs(np.corrcoef(noise)) - np.eye(len(noise))
    assert alike.max() < 6 / SIZE**0.5  # of 3500 pairs one is above that in 100,000 runs
    assert np.abs(noise.std(axis=1) - 1).max() < 6 / (2 * SIZE) ** 0.5
