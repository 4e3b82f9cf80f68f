"""Permutations of the samples of many peers at once."""

import itertools
import sys
from math import factorial

import numpy as np
import pytest
import torch
from scipy import stats

import cpu_device
from p2pfl.core.draws import keys, subkeys
from p2pfl.data import batches, orders
from p2pfl.data.sample_orders import permutations

CPU = torch.device("cpu")
UNLIKELY = 1e-3
"""Probability of a statistic below which draws do not count as uniform; the keys of these tests are fixed."""


def uneven(count=40):
    """Return sizes, epochs and names of peers, some without samples or permutations."""
    random = np.random.default_rng(0)
    return random.integers(0, 60, count), random.integers(0, 4, count), tuple(f"peer{i}" for i in range(count))


def epochs_of(drawn, row, size, count):
    """Return the permutations of one row."""
    begins = [drawn.base[row] + epoch * drawn.stride[row] for epoch in range(count)]
    return [drawn.flat[begin : begin + size].tolist() for begin in begins]


def numbered(drawn):
    """Return the lexicographic number of each permutation ``[K, n]``."""
    n = drawn.shape[1]
    smaller = (drawn[:, :, None] > drawn[:, None, :]) & np.triu(np.ones((n, n), bool), 1)  # [K, n, n]
    return smaller.sum(axis=2) @ np.array([factorial(n - 1 - i) for i in range(n)])  # [K]


def chance(cells, *, among):
    """Return the probability of counts of cells as uneven as these, or more, if all are equally likely."""
    return stats.chisquare(np.bincount(cells, minlength=among)).pvalue


def test_uneven_peers_at_once_have_the_batches_that_each_has_alone():
    sizes, epochs, peers = uneven()
    drawn = orders(sizes, epochs, seed=3, peers=peers, round=2, device=CPU)
    for row, (size, count) in enumerate(zip(sizes.tolist(), epochs.tolist(), strict=True)):
        alone = batches(size, seed=3, peer=peers[row], round=2, batch=max(1, size - 1), epochs=count, steps=None)
        several = range(count if size > 1 else 0)  # one sample is one batch, without a permutation
        expected = [np.concatenate(alone[2 * epoch : 2 * epoch + 2]).tolist() for epoch in several]
        assert epochs_of(drawn, row, size, len(several)) == expected


def test_a_row_without_permutations_keeps_the_order_of_its_samples():
    drawn = orders(np.array([3, 9]), np.array([1, 0]), seed=3, peers=("ada", "bob"), round=0, device=CPU)
    assert epochs_of(drawn, 1, 9, 2) == [list(range(9))] * 2


@pytest.mark.parametrize("block", [1, 7, 100, 2**20])
def test_the_size_of_blocks_changes_no_permutation(monkeypatch, block):
    sizes, epochs, peers = uneven()
    expected = orders(sizes, epochs, seed=3, peers=peers, round=2, device=CPU)
    monkeypatch.setattr(sys.modules["p2pfl.data.sample_orders"], "BLOCK", block)
    found = orders(sizes, epochs, seed=3, peers=peers, round=2, device=CPU)
    for row, (size, count) in enumerate(zip(sizes.tolist(), epochs.tolist(), strict=True)):
        assert epochs_of(found, row, size, count) == epochs_of(expected, row, size, count)


def test_another_device_draws_the_same_and_the_cpu_does_not_wait_for_it():
    sizes, epochs, peers = uneven()
    expected = orders(sizes, epochs, seed=3, peers=peers, round=2, device=CPU)
    with cpu_device.device() as device:
        found = orders(sizes, epochs, seed=3, peers=peers, round=2, device=cpu_device.DEVICE)
        assert not device.waits
        flat = found.flat.to("cpu")
    for row, (size, count) in enumerate(zip(sizes.tolist(), epochs.tolist(), strict=True)):
        begins = [found.base[row] + epoch * found.stride[row] for epoch in range(count)]
        assert [flat[begin : begin + size].tolist() for begin in begins] == epochs_of(expected, row, size, count)


def test_padding_of_very_uneven_rows_is_at_most_as_long_as_their_samples():
    sizes = np.sort(np.random.default_rng(1).pareto(1, 1000) * 45 + 45).astype(np.int64)
    drawn = orders(sizes, np.ones_like(sizes), seed=0, peers=tuple(map(str, sizes)), round=0, device=CPU)
    assert len(drawn.flat) <= sizes.max() + 2 * sizes.sum()


def test_a_permutation_sorts_hashes_of_the_key_and_the_position():
    each = torch.from_numpy(keys(7, "batches", tuple("abc")))
    hashed = [[subkeys(key, torch.tensor(place)).item() >> 32 for place in range(50)] for key in each]
    assert permutations(each, 50).tolist() == [sorted(range(50), key=row.__getitem__) for row in hashed]


def test_golden_permutations_do_not_change_between_versions():
    assert permutations(torch.tensor([0, -1, 2**63 - 1]), 6).tolist() == [
        [0, 3, 2, 4, 5, 1],
        [4, 5, 0, 1, 2, 3],
        [2, 1, 5, 3, 0, 4],
    ]


@pytest.mark.parametrize(
    "n", [2, 3, 4, pytest.param(5, marks=pytest.mark.slow), pytest.param(6, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("varying", ["peer", "round", "seed", "epoch"])
def test_all_permutations_of_few_samples_are_equally_likely(n, varying):
    count = 100 * factorial(n)
    if varying == "peer":
        each = keys(1, "batches", tuple(f"peer{i}" for i in range(count)), 0)
    elif varying == "epoch":
        each = subkeys(keys(1, "batches", ("ada",), 0), np.arange(count))
    else:
        each = np.concatenate(
            [
                keys(*((1, "batches", ("ada",), i) if varying == "round" else (i, "batches", ("ada",))))
                for i in range(count)
            ]
        )
    drawn = permutations(torch.from_numpy(each), n).numpy()
    assert chance(numbered(drawn), among=factorial(n)) > UNLIKELY


@pytest.mark.parametrize("lag", [1, 2, 17])
def test_permutations_of_different_epochs_are_independent(lag):
    each = subkeys(keys(1, "batches", ("ada",), 0), np.arange(60_000))
    drawn = numbered(permutations(torch.from_numpy(each), 4).numpy())
    assert chance(24 * drawn[:-lag] + drawn[lag:], among=576) > UNLIKELY


def test_permutations_of_neighbouring_rounds_and_peers_are_independent():
    peers = tuple(f"peer{i}" for i in range(20_000))
    drawn = [
        numbered(permutations(torch.from_numpy(subkeys(keys(1, "batches", peers, round), epoch)), 4).numpy())
        for round, epoch in itertools.product(range(2), repeat=2)
    ]
    for one, other in itertools.combinations(drawn, 2):
        assert chance(24 * one + other, among=576) > UNLIKELY
    assert chance(24 * drawn[0][:-1] + drawn[0][1:], among=576) > UNLIKELY


def test_every_sample_is_equally_likely_in_every_place_of_a_long_permutation():
    drawn = permutations(torch.from_numpy(keys(5, "batches", tuple(map(str, range(10_000))))), 40).numpy()
    cells = (np.arange(40) * 40 + drawn).ravel()
    counts = np.bincount(cells, minlength=1600)
    statistic = ((counts - 250) ** 2 / 250).sum() * 39 / 40  # rows and columns of the table have fixed sums
    assert stats.chi2(39 * 39).sf(statistic) > UNLIKELY
    assert stats.chi2(39 * 39).cdf(statistic) > UNLIKELY
