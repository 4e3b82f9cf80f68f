"""Positions that a user gives: what is refused in one sentence before a run starts."""

import dataclasses
import sys

import numpy as np
import pytest
import torch

import p2pfl
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data import Dataset, Federation, check_positions

GRAPH = p2pfl.topology.ring(3)


def parts_of(**changed):
    train = {peer: np.arange(4 * place, 4 * place + 4) for place, peer in enumerate(GRAPH.peers)}
    parts = {
        "train": train,
        "validation": dict.fromkeys(train, np.arange(0)),
        "test": dict.fromkeys(train, np.arange(12, 16)),
    }
    for name, change in changed.items():
        parts[name] = parts[name] | change
    return parts


def federation(**changed):
    return Federation(Dataset(torch.eye(16), torch.arange(16) % 2, classes=2), **parts_of(**changed))


def learner(given, **settings):
    return p2pfl.TorchLearner(torch.nn.Linear(16, 2), given, device="cpu", **settings)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"train": {"peer1": np.array([4, 16])}}, 'train part of "peer1" contains position 16.*0 to 15'),
        ({"test": {"peer2": np.array([-1])}}, 'test part of "peer2" contains position -1.*0 to 15'),
        ({"train": {"peer1": np.array([4.0])}}, 'train part of "peer1" is a 1-dimensional array of float64'),
        ({"validation": {"peer0": [14]}}, 'validation part of "peer0" is a list'),
        ({"validation": {"eve": np.array([14])}}, 'the validation part.*differ in "eve"'),
        ({"train": {"peer1": np.array([3, 4])}}, 'sample 3 for "peer0" and for "peer1"'),
        ({"train": {"peer1": np.array([5, 4, 5])}}, '"peer1" contains sample 5 twice'),
        ({"test": {"peer1": np.array([6, 12])}}, 'test part of "peer1" contains sample 6, which is in a training part'),
        ({"validation": {"peer0": np.array([4])}}, 'validation part of "peer0" contains sample 4'),
    ],
)
def test_positions_that_fit_no_run_are_refused_before_it_starts(changed, reason):
    with pytest.raises(DataError, match=reason):
        p2pfl.simulate(p2pfl.FedAvg(), learner(federation(**changed)), GRAPH, rounds=1)


def test_disjoint_positions_in_any_order_train():
    given = federation(train={"peer0": np.array([3, 0, 2])}, validation={"peer0": np.array([1])})
    check_positions(given)
    assert p2pfl.simulate(p2pfl.FedAvg(), learner(given), GRAPH, rounds=1).summary


def test_statistics_may_hold_no_samples_out():
    train = parts_of()["train"]
    check_positions(dataclasses.replace(federation(), test=train), apart=False)


def test_arrays_are_no_tensors_of_a_data_set():
    with pytest.raises(DataError, match=r"features are of type ndarray; give a tensor"):
        Dataset(np.eye(4), np.arange(4), classes=4)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_norm": "1"}, "learning.max_norm is '1', which is no number"),
        ({"metrics": ["accuracy"]}, "metrics are of type list; give them by name"),
        ({"schedule_by": "epoch"}, 'learning.schedule.by is \'epoch\'; set it to "round" or "step"'),
        ({"warmup": "2"}, "learning.schedule.warmup is '2'"),
    ],
)
def test_settings_of_a_wrong_type_are_refused(settings, reason):
    with pytest.raises(ModelError, match=reason):
        learner(federation(), **settings)


def test_the_advice_on_names_holds_for_peers_named_by_numbers():
    data = {number: (torch.eye(4), torch.arange(4) % 2) for number in range(3)}
    made = p2pfl.TorchLearner(torch.nn.Linear(4, 2), data, device="cpu")
    with pytest.raises(p2pfl.errors.ExperimentError, match=r"topology\.named\(sorted\(map\(str, data\)\)\)"):
        p2pfl.simulate(p2pfl.FedAvg(), made, GRAPH, rounds=1)
    assert p2pfl.simulate(p2pfl.FedAvg(), made, GRAPH.named(sorted(map(str, data))), rounds=1).summary


def test_a_function_of_the_user_is_called_by_its_name():
    def crops(features, *, generator):  # noqa: ARG001 - a protocol of two names
        return features[:, :1]

    with pytest.raises(ModelError, match=r"^crops returns"):
        learner(federation(), augment=crops)


class Noisy:
    """Samples that a random transform changes."""

    def __len__(self):
        return 10

    def __getitem__(self, number):
        return torch.rand(3), number % 2


def test_frozen_transforms_are_one_warning_for_all_peers():
    with pytest.warns(UserWarning, match=r"the samples of a Noisy differ .*learning\.augment") as warned:
        p2pfl.data.gather({"ada": Noisy(), "bob": Noisy(), "eve": Noisy()}, seed=0)
    assert len({str(each.message) for each in warned}) == 1  # which Python shows once


def test_frozen_transforms_of_a_function_are_one_warning(monkeypatch):
    module = type(sys)("users_noise")
    module.load = lambda *, peer, peers, seed: Noisy()  # noqa: ARG005, PLW0108 - a protocol of three names
    monkeypatch.setitem(sys.modules, "users_noise", module)
    with pytest.warns(UserWarning, match="the samples of a Noisy differ") as warned:
        p2pfl.data.federate("users_noise:load", peers=["ada", "bob"], seed=0)
    assert len({str(each.message) for each in warned}) == 1  # which Python shows once
