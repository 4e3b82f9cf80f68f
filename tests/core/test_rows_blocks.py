"""Functions of many rows work in blocks, with the results of the whole stack, bit for bit."""

import pytest
import torch

from p2pfl.core import rows as module
from p2pfl.core.rows import alike, blockwise, distances, mean, norms, repeated, to_device


@pytest.fixture
def stack(monkeypatch):
    """Return 23 rows of 7 numbers, of which three make a block."""
    monkeypatch.setattr(module, "NUMBERS_PER_BLOCK", 21)
    return torch.randn(23, 7, generator=torch.Generator().manual_seed(1))


def test_norms_and_distances_of_blocks_are_those_of_each_row(stack):
    other = stack.flip(0)
    factor = torch.linspace(0.5, 2, 23, dtype=torch.float64).unsqueeze(-1)
    assert torch.equal(norms(stack), torch.cat([norms(row.unsqueeze(0)) for row in stack]))
    pairs = [(stack[i : i + 1], other[i : i + 1], factor[i : i + 1]) for i in range(23)]
    assert torch.equal(distances(stack, other, block=21), torch.cat([distances(a, b) for a, b, _ in pairs]))
    found = distances(stack, other, factor=factor, block=21)
    assert torch.equal(found, torch.cat([distances(a, b, factor=f) for a, b, f in pairs]))


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize("shape", [(23, 7), (300, 10_007), (1, 9), (5, 40_000)])
def test_the_mean_of_columns_is_that_of_the_whole_stack(shape):
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(3))
    assert torch.equal(mean(rows), rows.mean(0))


def long_rows(*, scale=1.0):
    """Return two stacks of 3 rows of 10,007 numbers."""
    generator = torch.Generator().manual_seed(2)
    return [scale * torch.randn(3, 10_007, generator=generator) for _ in range(2)]


def test_distances_of_long_rows_are_those_in_double_precision_to_float_rounding():
    a, b = long_rows()
    wanted = (a - b).double().square().sum(dim=-1, keepdim=True).sqrt()
    torch.testing.assert_close(distances(a, b), wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(distances(a, b, block=5000), wanted, rtol=1e-6, atol=0)
    assert torch.equal(distances(a, b), torch.cat([distances(a[i : i + 1], b[i : i + 1]) for i in range(3)]))
    assert not distances(a, a).any()


def test_distances_of_long_rows_are_finite_where_the_squares_of_their_numbers_overflow():
    a, b = long_rows(scale=1e30)
    wanted = (a - b).double().square().sum(dim=-1, keepdim=True).sqrt()
    torch.testing.assert_close(distances(a, b), wanted, rtol=1e-6, atol=0)
    a[1, 9_999] = torch.inf
    assert distances(a, b).isinf().flatten().tolist() == [False, True, False]


def test_a_function_of_blocks_is_that_of_the_stack_in_memory_of_its_own(stack):
    factor = torch.linspace(0.5, 2, 23, dtype=torch.float64).unsqueeze(-1)
    heights = []

    def function(rows, factor):
        heights.append(len(rows))
        return (rows * factor).to(rows.dtype)

    found = blockwise(function, stack, factor)
    assert sorted(heights) == [2] + [3] * 7
    assert found.dtype == stack.dtype
    assert torch.equal(found, (stack * factor).to(stack.dtype))


@pytest.mark.parametrize("place", [0, 11, 22])
def test_one_number_that_differs_makes_rows_differ(stack, place):
    same = stack[:1].repeat(23, 1)
    assert alike(same)
    same[place, 6] += 1
    assert not alike(same)


def test_rows_that_are_one_in_memory_are_one_on_another_device_too():
    moved = to_device(torch.ones(1, 7).expand(23, 7), torch.device("meta"))
    assert moved.shape == (23, 7)
    assert repeated(moved)
    assert to_device(torch.tensor(1.0), torch.device("meta")).shape == ()
