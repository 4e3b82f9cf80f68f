"""``W @ Y`` of all rows at once."""

import numpy as np
import pytest
import scipy.sparse
import torch

from p2pfl.core import rows as module
from p2pfl.simulation.mixing import product
from p2pfl.topology import complete, metropolis, random_regular

ROWS = torch.from_numpy(np.random.default_rng(4).normal(size=(5, 7)))


def test_where_all_weigh_all_alike_all_rows_are_the_same_average_to_the_last_bit():
    shares = np.array([0.1, 0.3, 0.2, 0.15, 0.25])
    matrix = scipy.sparse.csr_array(np.tile(shares, (5, 1)))
    mixed = product(matrix, ROWS)
    assert torch.equal(mixed, mixed[:1].repeat(5, 1))
    torch.testing.assert_close(mixed[0], torch.from_numpy(shares) @ ROWS, rtol=0, atol=1e-15)


@pytest.mark.parametrize("peers", [10, 50, 99, 100, 200])
def test_on_a_complete_graph_of_any_size_there_is_one_average(peers):
    values = torch.from_numpy(np.random.default_rng(7).normal(size=(peers, 3)))
    mixed = product(metropolis(complete(peers)).matrix, values)
    assert torch.equal(mixed, mixed[:1].repeat(peers, 1))
    torch.testing.assert_close(mixed[0], values.mean(0), rtol=0, atol=1e-14)


def test_full_weights_that_differ_between_peers_are_the_dense_product():
    dense = np.random.default_rng(5).uniform(0.1, 1, size=(5, 5))
    mixed = product(scipy.sparse.csr_array(dense), ROWS)
    torch.testing.assert_close(mixed, torch.from_numpy(dense) @ ROWS, rtol=0, atol=1e-14)
    shuffled = scipy.sparse.csr_array(dense[:, ::-1].copy())
    shuffled.indices = np.ascontiguousarray(shuffled.indices.reshape(5, 5)[:, ::-1].ravel())
    shuffled.data = np.ascontiguousarray(shuffled.data.reshape(5, 5)[:, ::-1].ravel())
    shuffled.has_sorted_indices = False
    torch.testing.assert_close(
        product(shuffled, ROWS), torch.from_numpy(dense[:, ::-1].copy()) @ ROWS, rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("block", [1, 50, 2**18])
def test_blocks_of_receivers_are_mixed_as_all_are_bit_for_bit(monkeypatch, block):
    matrix = metropolis(random_regular(30, degree=4, seed=0)).matrix
    values = torch.from_numpy(np.random.default_rng(6).normal(size=(30, 17))).float()
    monkeypatch.setattr(module, "NUMBERS_PER_BLOCK", block)
    each = [product(matrix[[row]], values) for row in range(30)]
    assert torch.equal(product(matrix, values), torch.cat(each))
