import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import DataError
from p2pfl.data import batches

KEY = {"seed": 7, "peer": "ada", "round": 3}
GOLDEN = [[6, 4, 5], [3, 0, 2], [1]]


@given(samples=st.integers(1, 40), batch=st.none() | st.integers(1, 50), epochs=st.integers(0, 4))
def test_every_epoch_visits_every_sample_once(samples, batch, epochs):
    steps = batches(samples, **KEY, batch=batch, epochs=epochs, steps=None)
    size = min(batch or samples, samples)
    each = -(-samples // size)
    assert len(steps) == epochs * each
    for epoch in range(epochs):
        own = steps[epoch * each : (epoch + 1) * each]
        assert sorted(np.concatenate(own).tolist()) == list(range(samples))
        assert [len(step) for step in own[:-1]] == [size] * (each - 1)


@given(
    samples=st.integers(0, 40),
    batch=st.none() | st.integers(1, 50),
    epochs=st.integers(0, 3),
    steps=st.integers(0, 30),
)
def test_steps_cut_or_continue_the_same_sequence(samples, batch, epochs, steps):
    found = batches(samples, **KEY, batch=batch, epochs=epochs, steps=steps)
    long = batches(samples, **KEY, batch=batch, epochs=31, steps=None)
    assert len(found) == (steps if samples else 0)
    assert all(np.array_equal(a, b) for a, b in zip(found, long, strict=False))


def test_order_depends_on_seed_peer_and_round_and_on_nothing_else():
    def order(**key):
        return batches(50, **{**KEY, **key}, batch=7, epochs=1, steps=None)[0].tolist()

    assert order() == order()
    assert len({tuple(order(**key)) for key in ({}, {"seed": 8}, {"peer": "bob"}, {"round": 4})}) == 4


def test_golden_batches_do_not_change_between_versions():
    assert [step.tolist() for step in batches(7, **KEY, batch=3, epochs=1, steps=None)] == GOLDEN


def test_all_samples_at_once_keep_their_order():
    assert [step.tolist() for step in batches(4, **KEY, batch=None, epochs=2, steps=None)] == [[0, 1, 2, 3]] * 2


def test_a_batch_of_nothing_is_an_error():
    with pytest.raises(
        DataError, match="a batch must have at least 1 sample, but it has 0; leave `batch` out to take all samples"
    ):
        batches(4, **KEY, batch=0, epochs=1, steps=None)
