"""Blocks of rows train and are evaluated in several threads, with the results of one thread, bit for bit."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from p2pfl.core.process import one_thread
from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner, evaluation
from p2pfl.learning.steps import training
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.torch_func import StackedEngine
from p2pfl.learning.steps.training import divide_rows

PEERS = tuple(f"peer{i:02}" for i in range(16))
KERNELS = nn.Sequential(nn.Conv2d(1, 2, 2, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(24, 3))
STACKED = nn.Sequential(nn.Flatten(), nn.LayerNorm(6), nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 3))


def federation(*, shared):
    """Return peers that hold 1 to 16 samples, and test samples of their own or in common."""
    torch.manual_seed(3)
    data = Dataset(torch.randn(60, 1, 2, 3), torch.randint(3, (60,)), 3)
    train = {peer: np.arange(i + 1) for i, peer in enumerate(PEERS)}
    test = dict.fromkeys(PEERS, np.arange(40)) if shared else {peer: np.arange(i % 7) for i, peer in enumerate(PEERS)}
    return Federation(data, train, dict.fromkeys(PEERS, np.arange(0)), test)


def learner(model, *, optimizer="sgd", shared=True, **more):
    torch.manual_seed(4)
    made = TorchLearner(
        model, federation(shared=shared), seed=7, batch=3, epochs=1, optimizer=optimizer, device="cpu", **more
    )
    small = replace(made.footprint, block=8 * made.footprint.row)
    made.footprint = small
    if not isinstance(made.engine, type(made.plain)):
        made.engine.footprint = small
    return made


@pytest.fixture
def workers(monkeypatch):
    """Return a function that sets the number of cores, and the threads in which blocks were taken."""
    seen = set()

    def set_to(count):
        for module in (training, evaluation):
            monkeypatch.setattr(module, "cores", lambda: count)
        seen.clear()
        return seen

    block = training._Block.__init__

    def noted(self, *given):
        seen.add(threading.current_thread().name)
        block(self, *given)

    monkeypatch.setattr(training._Block, "__init__", noted)
    return set_to


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "engine", "optimizer"),
    [(KERNELS, Kernels, "sgd"), (STACKED, StackedEngine, "adam")],
    ids=["kernels", "vmap with adam"],
)
def test_any_number_of_threads_trains_the_same_models(workers, model, engine, optimizer):
    made = learner(model, optimizer=optimizer, rate=0.01)
    assert type(made.engine) is engine
    found = []
    for count in (1, 3):
        workers(count)
        rows, memory = made.start(PEERS), None
        for round in range(2):
            fitted = made.fit(rows, peers=PEERS, round=round, memory=memory)
            rows, memory = fitted.rows, fitted.memory
        found.append({"rows": rows, "loss": fitted.report.loss, **memory})
    assert not torch.equal(found[0]["rows"], made.start(PEERS))
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        assert all(torch.equal(value, found[0][name]) for name, value in other.items())


@pytest.mark.sampled(fast=0)
@pytest.mark.parametrize("model", [KERNELS, STACKED], ids=["kernels", "vmap"])
def test_models_that_fill_a_block_train_by_torch_each_in_a_thread(workers, model):
    stacked, alone = learner(model, optimizer="adam", rate=0.01), learner(model, optimizer="adam", rate=0.01)
    alone.engine.footprint = replace(alone.footprint, block=1)
    found = []
    for made, count in ((stacked, 1), (alone, 1), (alone, 3)):
        seen = workers(count)
        rows = made.start(PEERS)
        memory = {}
        for round in range(2):
            fitted = made.fit(rows, peers=PEERS, round=round, memory=memory)
            rows, memory = fitted.rows, fitted.memory
        found.append((rows, fitted.report.loss))
    assert seen <= {"MainThread", "p2pfl_0", "p2pfl_1"}
    for expected, one, several in zip(*found, strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-6)
        assert torch.equal(one, several)


def test_a_model_that_fills_a_block_is_not_compared_with_itself(monkeypatch):
    made = learner(KERNELS)
    made.engine.footprint = replace(made.footprint, block=1)
    monkeypatch.setattr(Kernels, "gradient", lambda *_: pytest.fail("the kernels compute a gradient"))
    assert made.fit(made.start(PEERS), peers=PEERS, round=0).report.steps.tolist() == [-(-n // 3) for n in range(1, 17)]


def test_threads_of_plain_torch_share_constants_and_not_the_parameters():
    made = learner(STACKED, frozen=["2"])
    first, second = made.plain.copies(2)
    both = list(zip(first.model.named_parameters(), second.model.parameters(), strict=True))
    assert {name for (name, one), other in both if one is other} == {"2.weight", "2.bias"}
    assert first.dropouts.keys() == second.dropouts.keys()
    assert all(first.dropouts[name] is not second.dropouts[name] for name in first.dropouts)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("shared", [True, False], ids=["common test data", "own test data"])
@pytest.mark.parametrize("model", [KERNELS, STACKED], ids=["kernels", "vmap"])
def test_any_number_of_threads_finds_the_same_scores_and_gradients(workers, model, shared):
    made = learner(model, shared=shared)
    rows = made.start(PEERS) + torch.randn(len(PEERS), 1) / 10
    found = []
    for count in (1, 3):
        workers(count)
        found.append([made.gradient(rows, peers=PEERS, round=0, step=1), *made.evaluate(rows, peers=PEERS).values()])
    assert all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(*found, strict=True))


def test_blocks_are_spread_over_threads_and_a_single_one_stays_in_the_calling_thread(workers):
    made = learner(KERNELS)
    seen = workers(3)
    made.fit(made.start(PEERS), peers=PEERS, round=0)
    assert seen <= {"MainThread", "p2pfl_0", "p2pfl_1"}
    seen.clear()
    made.engine.footprint = replace(made.engine.footprint, block=2**30)
    made.fit(made.start(PEERS), peers=PEERS, round=0)
    assert seen == {"MainThread"}


def one_after_the_other(made):
    """Let all rows pass through one model, as those of a module that ``vmap`` cannot trace."""
    made.engine, made.plain.threadable = made.plain, False


def test_a_model_that_holds_one_row_at_a_time_trains_in_one_thread(workers):
    made = learner(STACKED)
    one_after_the_other(made)
    seen = workers(3)
    made.fit(made.start(PEERS), peers=PEERS, round=0)
    assert seen == {"MainThread"}


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(("least", "inner"), [(1, 4), (2**30, 1)], ids=["long steps", "short steps"])
@pytest.mark.parametrize("engine", ["engine", "plain"])
def test_long_steps_take_the_cores_that_blocks_leave_free(workers, monkeypatch, engine, least, inner):
    made, seen = learner(STACKED), set()
    if engine == "plain":
        one_after_the_other(made)
    made.footprint = made.engine.footprint = replace(made.footprint, block=2**30)  # all rows are one block
    workers(4)
    monkeypatch.setattr(training, "MIN_SHARED_PRODUCTS", least)
    step = made.engine.gradient

    def noted(*given):
        seen.add(torch.get_num_threads())
        return step(*given)

    monkeypatch.setattr(made.engine, "gradient", noted)
    with one_thread():
        made.fit(made.start(PEERS), peers=PEERS, round=0)
    assert seen == {inner}


def test_blocks_share_the_cores_for_long_steps(monkeypatch):
    monkeypatch.setattr(training, "cores", lambda: 16)
    assert [training.intra_op(2**31, workers=workers) for workers in (1, 3, 8, 16)] == [16, 5, 2, 1]


def test_threads_share_frozen_weights():
    made = learner(STACKED, frozen=["2"])
    first, second = made.engine.copies(2)
    assert first.model is not second.model
    assert all(one is other for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True))


def test_a_row_that_diverges_in_a_thread_is_named(workers):
    made = learner(KERNELS)
    workers(3)
    rows = made.start(PEERS)
    rows[7] = float("inf")
    with pytest.raises(Exception, match="training of peer07 diverged in round 0"):
        made.fit(rows, peers=PEERS, round=0)


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=200), st.integers(1, 300))
def test_blocks_are_consecutive_bounded_and_hold_every_row_once(counts, most):
    bounds = divide_rows(np.array(sorted(counts, reverse=True)), most=most)
    assert [row for low, high in bounds for row in range(low, high)] == list(range(len(counts)))
    assert all(0 < high - low <= most for low, high in bounds)


def test_rows_with_many_steps_do_not_share_a_block_with_all_others():
    counts = np.array([1000] * 100 + [10] * 5000)
    bounds = divide_rows(counts, most=300)
    assert bounds[:2] == [(0, 38), (38, 76)]  # a quarter of all steps each
    assert len(bounds) <= 20


def test_few_rows_that_take_half_of_the_steps_are_a_block_of_their_own_if_there_are_many_others():
    counts = np.array([800] * 10 + [8] * 990)
    assert divide_rows(counts, most=900) == [(0, 10), (10, 508), (508, 1000)]
    assert divide_rows(counts[:100], most=900) == [(0, 100)]


@pytest.mark.parametrize(("count", "sizes"), [(100, [100]), (256, [128, 128]), (1000, [250] * 4), (4000, [895] * 4)])
def test_rows_of_equal_length_make_blocks_that_keep_threads_busy(count, sizes):
    found = [high - low for low, high in divide_rows(np.full(count, 20), most=895)]
    assert found[: len(sizes)] == sizes


def test_few_rows_are_one_block():
    assert divide_rows(np.full(30, 5000), most=390) == [(0, 30)]
