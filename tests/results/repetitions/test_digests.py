"""Digests of the data of peers: equal for equal data, different for each change, and for nobody but the owner."""

import json

import numpy as np
import pytest
import torch

from p2pfl.data import Federation, no_data
from p2pfl.data.dataset import Dataset
from p2pfl.results.repetitions import digests as room
from p2pfl.results.repetitions.digests import digests
from p2pfl.simulation import simulate


def federation(features, targets=None):
    targets = torch.zeros(len(features), dtype=torch.int64) if targets is None else targets
    train = {"ada": np.array([0, 2]), "bob": np.array([1])}
    test = np.array([3])
    return Federation(Dataset(features, targets, 2), train, dict.fromkeys(train, test[:0]), dict.fromkeys(train, test))


FEATURES = torch.arange(8.0).reshape(4, 2)


def test_a_change_of_one_peers_data_changes_its_digest_alone():
    before = digests(federation(FEATURES))["peers"]
    changed = FEATURES.clone()
    changed[1, 0] += 2.0**-20
    after = digests(federation(changed))["peers"]
    assert after["ada"] == before["ada"]
    assert after["bob"]["train"] != before["bob"]["train"]
    assert after["bob"]["test"] == before["bob"]["test"] == before["ada"]["test"]
    assert digests(federation(FEATURES, torch.tensor([0, 0, 1, 0])))["peers"]["ada"]["train"] != before["ada"]["train"]
    assert digests(federation(FEATURES.reshape(4, 2, 1)))["peers"]["ada"]["train"] != before["ada"]["train"]


def test_a_digest_does_not_depend_on_the_size_of_blocks_and_a_shared_part_is_read_once(monkeypatch):
    before = digests(federation(FEATURES))
    monkeypatch.setattr(room, "BYTES_PER_BLOCK", 1)
    assert digests(federation(FEATURES)) == before
    read = []
    monkeypatch.setattr(room, "_digest", lambda _, samples: read.append(len(samples)) or "")
    digests(federation(FEATURES))
    assert sorted(read) == [0, 1, 1, 2]


def test_peers_without_data_have_no_digests():
    assert digests(no_data(["ada", "bob"])) == {}


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_directory_has_the_digests_in_a_file_for_its_owner_and_nowhere_else(tmp_path, seed):
    table = {"seed": seed, "rounds": 1, "topology": {"peers": 3}, "data": {"name": "wine"}}
    simulate(table, folder=tmp_path / "run", baselines=False)
    path = tmp_path / "run" / "data.json"
    assert path.stat().st_mode & 0o777 == 0o600
    found = json.loads(path.read_text())
    assert sorted(found["peers"]) == ["peer0", "peer1", "peer2"]
    one = found["peers"]["peer0"]["train"]
    others = [each for each in (tmp_path / "run").rglob("*") if each.is_file() and each != path]
    assert not [each for each in others if one.encode() in each.read_bytes()]
