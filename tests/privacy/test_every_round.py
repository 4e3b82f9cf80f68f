"""Private noise of many rounds: no two releases of any peer have any in common."""

import numpy as np
import pytest
import torch

from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.privacy import Settings, private
from p2pfl.privacy.keys import SecretSource, SeededSource
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
        rows += [run_without_loop(hidden.release(zeros, since=Public(zeros))).rows.numpy() for _ in range(2)]
    noise = np.concatenate(rows) * 2.0**-20  # [M, P]
    alike = np.abs(np.corrcoef(noise)) - np.eye(len(noise))
    assert alike.max() < 6 / SIZE**0.5  # of 3500 pairs one is above that in 100,000 runs
    assert 30 < np.count_nonzero(np.abs(noise) > 3) < 200  # of 34,000 numbers 91 are expected: nothing is cut
    assert np.abs(noise.std(axis=1) - 1).max() < 6 / (2 * SIZE) ** 0.5


def test_who_sits_out_follows_from_the_secrets_alone_and_not_from_names_and_rounds():
    def coins(source):
        weights = [metropolis(ring(3))]
        zeros = torch.zeros(3, 1, dtype=torch.float64)
        settings = Settings(clip=1.0, noise=1e-3, participation=0.5)
        thrown = []
        for round in range(ROUNDS):
            net = StackedNeighbourhood(weights, round=round, seed=0)
            hidden = private(net, settings=settings, masks=None, source=source, round=round)
            thrown += [
                bool(row[0] > 2**19) for row in run_without_loop(hidden.release(zeros + 1, since=Public(zeros))).rows
            ]
        return np.array(thrown)  # [T * N]

    first, second = coins(SecretSource()), coins(SecretSource())
    assert 0 < (first == second).sum() < len(first)  # but for one pair of runs in 2^41
    assert np.array_equal(coins(SeededSource(3)), coins(SeededSource(3)))
