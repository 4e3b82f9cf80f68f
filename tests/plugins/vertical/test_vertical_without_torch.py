"""Peers with different columns of the same people where torch cannot be imported, alone and beside peers with torch."""

import asyncio
import json

import numpy as np
import pytest

from p2pfl.experiment import read
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.transport.broker import embedded
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from swarms import live
from torch_free_process import run_without_torch
from vertical_experiments import LINEAR, PARTIES, changed

pytestmark = pytest.mark.slow

BREASTS = {"name": "breast_cancer"}
LOGISTIC = {"family": "binomial", "ridge": 1.0}
MAPS = {"ada": "fourier:8", "bob": "spline:5", "eve": "nystroem:6"}
KERNEL = {"family": "binomial", "consent": "distances"}
SPLIT = changed(data=BREASTS, model={"name": "split_network", "options": {"label_epsilon": 2.0}})


def boosting(data, **options):
    model = {"name": "boosting", "options": {"max_depth": 3, **options}}
    return changed(data=data, model=model) | {"rounds": 2}


CASES = {
    "linear": LINEAR,
    "lasso": changed(model={"name": "lasso", "options": {}}),
    "pca": changed(model={"name": "pca", "options": {}}),
    "logistic, changed labels": changed(
        data=BREASTS, model={"options": {**LOGISTIC, "ridge": 50.0, "label_epsilon": 4.0}}
    ),
    "three kinds of functions": changed(model={"options": {"family": "gaussian", "ridge": 1.0, "maps": MAPS}}),
    "kernel": changed(data=BREASTS, model={"name": "kernel", "options": KERNEL}),
    "boosting": boosting({}, loss="squared_error"),
    "boosting of classes": boosting({"name": "wine"}, loss="log_loss", classes=3),
}


def check(found, models, *, names=None):
    """Compare tensors by ``peer/name`` with the models of a simulation, to rounding."""
    peers = {name.partition("/")[0] for name in found}
    assert peers == {*(names or models)}
    for name, value in found.items():
        peer, _, key = name.partition("/")
        np.testing.assert_allclose(value.numpy(), models[peer][key].numpy(), rtol=1e-9, atol=1e-12, err_msg=name)


def test_parts_of_peers_without_torch_are_those_of_the_simulation_with_torch(tmp_path):
    _, found = run_without_torch(tmp_path, [{"table": table, "changes": []} for table in CASES.values()])
    for (name, table), tensors in zip(CASES.items(), found, strict=True):
        models = simulate(read(table), source=SeededSource(11), baselines=False).models
        assert {key.split("/")[0] for key in tensors} == {*PARTIES, "cleo"}, name
        check(tensors, models)


async def test_parties_without_torch_fit_with_parties_that_have_it(tmp_path):
    table = changed(data=BREASTS, model={"options": LOGISTIC}, transport={"patience": 200, "gather": 200})
    experiment = read(table)
    with embedded() as broker:
        job = {"table": table, "changes": [], "broker": broker.url, "names": ["ada", "cleo"]}
        boards = asyncio.create_task(asyncio.to_thread(run_without_torch, tmp_path, [job]))
        transport = connect(experiment, urls=[broker.url], peer="others")
        ended = await live(experiment, transport, source=SeededSource(11), names=["bob", "eve"])
        _, [found] = await boards
    models = await asyncio.to_thread(lambda: simulate(experiment, source=SeededSource(11), baselines=False).models)
    check(found, models, names=["ada", "cleo"])
    for name, end in ended.items():
        saved = end.peer.plan.saved(end.state.rows[0], peer=name)
        check({f"{name}/{key}": value for key, value in saved.items()}, models, names=[name])


def test_split_networks_are_refused_by_the_key_before_anything_connects(tmp_path):
    jobs = [{"table": SPLIT, "changes": [], "refused": True}, {"table": LINEAR, "changes": []}]
    (sentence, modules), _ = run_without_torch(tmp_path, jobs)
    remedy = "needs torch, which is not installed here; run pip install torch, or leave it out"
    assert sentence == f'model.name = "split_network" {remedy}'
    assert not [
        name for name in json.loads(modules) if name.startswith(("p2pfl.simulation", "p2pfl.plugins.vertical.split"))
    ]
