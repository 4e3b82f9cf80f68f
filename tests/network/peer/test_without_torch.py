"""Peers in a process where torch cannot be imported, alone and beside peers with torch."""

import asyncio
import json

import numpy as np
import pytest
import safetensors.torch
import torch
from sklearn.datasets import load_wine

from p2pfl.experiment import read
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.transport.broker import embedded
from p2pfl.privacy.keys import SeededSource
from p2pfl.results import Run
from p2pfl.results.repetitions.repetition import repetition
from p2pfl.results.saved_models import model_file
from p2pfl.results.sent_rows import SentRow, keep_rows, read_row
from p2pfl.simulation import simulate
from swarms import SMALL, live
from torch_free_process import run_without_torch as run

pytestmark = pytest.mark.slow

LINEAR, PAIRWISE = ["model.name=linear", "model.hidden=[64]"], ["privacy.mode=pairwise"]
"""Model and masks."""


def split(found):
    """Return tensors by peer and name."""
    assert found
    return [(name.split("/", 1), value) for name, value in found.items()]


def largest_difference(found, models):
    return max(float((value - models[peer][key]).abs().max()) for (peer, key), value in split(found))


def test_peers_without_torch_end_where_the_simulation_with_torch_ends(tmp_path):
    cases = {
        "FedAvg": [],
        "linear, masks": [*LINEAR, *PAIRWISE],
        "masks, noise, clip": [*PAIRWISE, "privacy.noise=0.01", "privacy.clip=1.0"],
        "sums": ["privacy.mode=secagg", "topology.kind=complete", "gossip.steps=1"],
        "SCAFFOLD, scaled": ["learning.algorithm=scaffold", "data.scale=true"],
        "CHOCO": ["learning.algorithm=choco", "compression.name=top_k"],
        "coordinate-wise median": ["robustness.rule=median", "learning.weighted=false", "gossip.steps=1"],
        "few bits": ["compression.name=quantise"],
        "bfloat16": ["compression.name=bfloat16"],
        "warm-up, clipped gradients": ["learning.schedule.warmup=5", "learning.max_norm=0.3"],
    }
    _, found = run(tmp_path, [{"table": SMALL, "changes": changes} for changes in cases.values()])
    for (name, changes), tensors in zip(cases.items(), found, strict=True):
        models = simulate(read(SMALL, changes=changes), source=SeededSource(11), baselines=False).models
        limit = 1e-7 if "masks" not in name else 2.0**-20  # one step of the grid; the start is that of torch to 2e-8
        assert largest_difference(tensors, models) < limit, name


def test_models_from_totals_are_those_of_torch_bit_for_bit_without_it(tmp_path):
    cases = {
        "boosting": {},
        "random_boosting": {"bounds": {name: [-3.0, 3.0] for name in load_wine().feature_names}},
        "forest": {"n_estimators": 3},
        "glm": {},
        "pca": {"components": 2},
    }
    private = [*PAIRWISE, "privacy.noise=2.0"]
    jobs = []
    for name, options in cases.items():
        table = SMALL | {"rounds": 2, "model": {"name": name, "options": options}, "learning": {}, "gossip": {}}
        jobs.append({"table": table, "changes": private if name == "random_boosting" else PAIRWISE})
    _, found = run(tmp_path, jobs)
    for job, tensors in zip(jobs, found, strict=True):
        experiment = read(job["table"], changes=job["changes"])
        models = simulate(experiment, source=SeededSource(11), baselines=False).models
        assert {name.split("/")[0] for name in tensors} == {*models}
        assert all(np.array_equal(value, models[peer][key], equal_nan=True) for (peer, key), value in split(tensors))


async def test_a_peer_without_torch_learns_beside_peers_with_torch_under_masks(tmp_path):
    patient = ["transport.patience=200", "transport.gather=200"]
    changes = [*LINEAR, *PAIRWISE, *patient]
    experiment = read(SMALL, changes=changes)
    with embedded() as broker:
        job = {"table": SMALL, "changes": changes, "broker": broker.url, "names": ["peer0", "peer3"]}
        board = asyncio.create_task(asyncio.to_thread(run, tmp_path, [job]))
        transport = connect(experiment, urls=[broker.url], peer="others")
        names = ["peer1", "peer2", "peer4", "peer5"]
        ended = await live(experiment, transport, source=SeededSource(11), names=names)
        _, [found] = await board
    models = await asyncio.to_thread(lambda: simulate(experiment, source=SeededSource(11), baselines=False).models)
    assert {name.split("/")[0] for name in found} == {"peer0", "peer3"}
    assert largest_difference(found, models) < 2.0**-20
    for name, end in ended.items():
        for key, value in end.peer.plan.learner.state_dict(end.state.rows[0]).items():
            assert float((value - models[name][key]).abs().max()) < 2.0**-20


def test_sent_rows_and_repetitions_are_read_without_torch_as_with_it(tmp_path):
    folders = [tmp_path / name for name in ("before", "after")]
    sent = SentRow(torch.tensor([0.5, -0.0, float("nan")]), 2.0)
    for folder, changed in zip(folders, (0.0, 0.25), strict=True):
        simulate(read(SMALL, changes=["rounds=1"]), folder=folder, baselines=False)
        keep_rows(folder)
        sent.write(folder / "rows" / "peer0")
        path = folder / "peers" / "peer1.safetensors"
        model = safetensors.torch.load_file(path)
        model["1.bias"][0] = model["1.bias"][0] + changed
        path.write_bytes(model_file(model, {}))
    job = {"runs": [str(folder) for folder in folders], "peer": "peer0", "digest": sent.digest}
    [line, _], _ = run(tmp_path, [job])
    digest, row, table = json.loads(line)
    assert digest == sent.digest
    assert str(row) == str(read_row(folders, "peer0", sent.digest, size=100).row.tolist())
    expected = repetition(*(Run.load(folder) for folder in folders)).table
    assert table == json.loads(json.dumps(expected))
    [model] = table["models"]
    assert (model["what"], model["largest"], model["count"]) == ("peer1.safetensors", pytest.approx(0.25), 1)


def test_a_plan_that_needs_torch_is_refused_by_the_key_and_rooms_of_others_are_left_out(tmp_path):
    refused = {
        'model.name = "cnn"': ["model.name=cnn", "model.hidden=[]"],
        'learning.optimizer = "adam"': ["learning.optimizer=adam"],
        "learning.options.momentum": ["learning.options={momentum=0.9}"],
        "learning.example_noise": ["learning.example_noise=1.0", "learning.max_norm=1.0"],
    }
    table = SMALL | {"topology": {"kind": "ring", "peers": 6}}
    jobs = [{"table": table, "changes": changes, "refused": True} for changes in refused.values()]
    jobs.append({"table": table, "changes": [*LINEAR, *PAIRWISE]})
    (*sentences, modules), _ = run(tmp_path, jobs)
    remedy = "needs torch, which is not installed here; run pip install torch, or leave it out"
    assert sentences == [f"{key} {remedy}" for key in refused]
    rooms = ("simulation", "plugins", "learning.torch_learner", "learning.modules", "results.models.predictor")
    absent = (
        *(f"p2pfl.{each}" for each in rooms),
        "scipy.sparse",
        "scipy.special",
        "scipy.linalg",
        "networkx",
        "sklearn",
    )
    loaded = json.loads(modules)
    assert "p2pfl.network.peer.peer" in loaded
    assert [name for name in loaded if name.startswith(absent)] == []
