"""The best model of a peer is kept beside the last one."""

import math

import pytest
import torch
from safetensors import safe_open

import p2pfl
from p2pfl.network.peer.storage.best import MAX_JUDGING_SAMPLES, BestModel, thin_out
from p2pfl.network.peer.storage.checkpoint import Best, CheckpointStore
from p2pfl.results.notices.kinds import BestModelDamaged
from swarms import SMALL

PLAN = {"data": {"name": "wine", "validation": 0.25}, "model": {"name": "linear"}, "topology": {"peers": 4}}


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path, "peer0")


@pytest.fixture
def plan():
    return p2pfl.plan(p2pfl.read(PLAN), only=["peer0"])


def rows(plan, value):
    return torch.full((1, plan.learner.layout.size), value)


def kept(store):
    with safe_open(store.place(), framework="pt") as file:
        tensors = torch.cat([file.get_tensor(name).flatten() for name in file.keys()])  # noqa: SIM118 (no mapping)
        return file.metadata(), float(tensors.mean())


def test_the_model_of_the_smallest_validation_loss_stays(plan, store):
    best = BestModel("peer0", store)
    for round, loss in enumerate([0.9, 0.4, 0.6, 0.4, math.nan]):
        best.consider(plan, rows(plan, float(round)), round=round, validation=loss)
    about, value = kept(store)
    assert about == {"peer": "peer0", "round": "1", "loss": "0.4", "part": "validation"}
    assert value == 1.0
    assert best.best == Best(1, 0.4, "validation")


def test_a_later_incarnation_goes_on_from_the_best_model_of_the_one_before(plan, store):
    BestModel("peer0", store).consider(plan, rows(plan, 1.0), round=5, validation=0.4)
    again = BestModel("peer0", store)
    again.consider(plan, rows(plan, 2.0), round=7, validation=0.5)
    assert kept(store)[1] == 1.0
    again.consider(plan, rows(plan, 3.0), round=8, validation=0.3)
    assert kept(store)[1] == 3.0


def test_training_samples_judge_where_there_is_no_validation_part_and_never_test_samples(plan, store):
    best = BestModel("peer0", store)
    best.consider(plan, rows(plan, 0.0), round=0, validation=None)
    assert best.best is not None
    assert best.best.part == "train"
    expected = plan.learner.evaluate(rows(plan, 0.0), peers=("peer0",), part="train")["loss"][0]
    assert best.best.loss == pytest.approx(float(expected))


def test_a_damaged_file_is_reported_and_replaced(plan, store):
    (store.folder / "peer0.best.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0 no json")
    best = BestModel("peer0", store)
    assert best.best is None
    assert isinstance(store.damaged[0], BestModelDamaged)
    best.consider(plan, rows(plan, 1.0), round=0, validation=9.0)
    assert kept(store)[1] == 1.0


def test_few_samples_of_many_judge_evenly_spaced():
    assert len(thin_out(torch.arange(10 * MAX_JUDGING_SAMPLES + 3).numpy())) <= MAX_JUDGING_SAMPLES
    assert thin_out(torch.arange(7).numpy()).tolist() == list(range(7))
    assert thin_out(torch.arange(0).numpy()).tolist() == []


def test_a_learner_that_only_its_owner_can_score_keeps_no_best_model(store):
    learner = p2pfl.ExternalLearner(lambda row, **_: row, start=torch.zeros(3), samples={"peer0": 1})
    plan = p2pfl.plan(p2pfl.read(SMALL), only=["peer0"])
    own = type(plan)(**{**vars(plan), "learner": learner})
    best = BestModel("peer0", store)
    best.consider(own, torch.zeros(1, 3), round=0, validation=None)
    assert best.best is None
