"""Splits, graphs and schedules by ``module:function``, and unknown names, which are refused before anything is made."""

import json
import re
import sys

import numpy as np
import pytest
import torch

import p2pfl
from p2pfl.cli import main
from p2pfl.core.errors import DataError, ExperimentError, InputError, TopologyError
from p2pfl.experiment import plan, read, resolving

OWN = """
import networkx as nx
import numpy as np
from p2pfl.topology import Schedule, Topology


def thirds(targets, *, peers, seed):
    order = np.random.default_rng(seed).permutation(len(targets))
    return np.array_split(order[: len(targets) // 2], len(peers))


def by_name(targets, *, peers):
    return {peer: range(5 * row, 5 * row + 5) for row, peer in enumerate(peers)}


def everything(targets, *, peers):
    return [range(len(targets))] * len(peers)


def twice(targets, *, peers):
    return [[2 * row, 2 * row] for row in range(len(peers))]


def beyond(targets, *, peers):
    return [[row, len(targets)] for row in range(len(peers))]


def empty(targets, *, peers):
    return [[]] * len(peers)


def too_few(targets):
    return [[0]]


def strangers(targets):
    return {"ada": [0]}


def fails(targets):
    raise ValueError("too cold")


def random_parts(targets, *, peers):
    return np.array_split(np.random.permutation(len(targets)), len(peers))


def random_rings(n):
    orders = [np.random.default_rng().permutation([f"p{number}" for number in range(n)]).tolist() for _ in range(40)]
    return Schedule(tuple(Topology(tuple(each), tuple(zip(each, each[1:] + each[:1]))) for each in orders))


def matchings(n, period=64, seed=0):
    names, random = tuple(f"p{number}" for number in range(n)), np.random.default_rng(seed)
    pairs = (random.permutation(n) for _ in range(period))
    return Schedule(tuple(Topology(names, tuple((names[a], names[b]) for a, b in zip(p[::2], p[1::2]))) for p in pairs))


def wheel(n):
    return nx.wheel_graph(n)


def smaller(n):
    return nx.path_graph(n - 1)


def hops(n, k):
    return nx.path_graph(n)


def no_graph(n):
    return n


def broken(n):
    raise ValueError("too cold")
"""

SMALL = {
    "rounds": 1,
    "topology": {"kind": "own_parts:matchings", "peers": 4, "options": {"period": 3}},
    "data": {"name": "wine", "split": "own_parts:thirds"},
    "learning": {"algorithm": "dpsgd"},
}


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("own_parts", None)


def test_a_split_and_a_schedule_of_the_user_are_those_of_the_plan():
    made = plan(read(SMALL))
    assert made.topology.period == 3
    assert made.topology.peers == ("p0", "p1", "p2", "p3")
    own = [made.federation.train[peer] for peer in made.topology.peers]
    assert [len(part) for part in own] == [18, 18, 18, 17]  # half of 142
    assert len(set(np.concatenate(own).tolist())) == 71
    for peer in made.topology.peers:
        alone = plan(read(SMALL), only=[peer])
        assert alone.federation.samples([peer]) == made.federation.samples([peer])
        assert alone.facts["topology"] == made.facts["topology"]


@pytest.mark.slow
async def test_live_peers_end_where_the_simulation_ends():
    table = SMALL | {"rounds": 2}
    simulated = p2pfl.simulate(table, baselines=False)
    live = await p2pfl.live(table, baselines=False)
    for peer, model in live.models.items():
        for name, value in model.items():
            torch.testing.assert_close(value, simulated.models[peer][name])


def test_a_split_by_name_and_a_networkx_graph_are_the_users():
    table = SMALL | {"topology": {"kind": "own_parts:wheel", "peers": 5}}
    made = plan(read(table, changes=["data.split=own_parts:by_name"]))
    assert made.topology.neighbours("0") == ("1", "2", "3", "4")
    assert made.federation.samples(made.topology.peers).tolist() == [5] * 5


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("everything", 'gives sample 0 to "p0" and to "p1"'),
        ("twice", 'gives "p0" a sample twice'),
        ("beyond", "the positions 0 to 142, and the training part has the positions 0 to 141"),
        ("empty", 'returns no positions for "p0"'),
        ("too_few", "returns 1 lists; return the positions of each of 4 peers"),
        ("strangers", 'differs in "ada"'),
        ("fails", "raised ValueError: too cold"),
        ("missing", "cannot be imported"),
        ("random_parts", "returns other positions when it is called again"),
    ],
)
def test_a_split_that_is_none_is_named(name, sentence):
    with pytest.raises(DataError, match=re.escape(sentence)):
        plan(read(SMALL, changes=[f"data.split=own_parts:{name}"]))


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("smaller", ExperimentError, "a graph of 3 peers, not of topology.peers = 4"),
        ("hops", ExperimentError, "needs k, which p2pfl does not pass"),
        ("no_graph", TopologyError, "of type int; pass a graph"),
        ("broken", ExperimentError, "raised ValueError: too cold"),
        ("missing", ExperimentError, "cannot be imported"),
        ("random_rings", ExperimentError, "makes another graph when it is called again"),
    ],
)
def test_a_graph_that_is_none_is_named(name, kind, sentence):
    with pytest.raises(kind, match=re.escape(sentence)):
        plan(read(SMALL, changes=[f"topology.kind=own_parts:{name}"]))


@pytest.mark.slow
def test_commands_take_both(tmp_path, capsys):
    changes = [f"--set={key}={value}" for key, value in (("rounds", 1), ("data.split", "own_parts:thirds"))]
    changes += ["--set=data.name=wine", "--set=topology.kind=own_parts:wheel", "--set=topology.peers=5"]
    assert main(["explain", "digits", *changes, "--json", "--trust-code"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert explained["data"]["split"] == "own_parts:thirds"
    assert explained["topology"]["kind"] == "own_parts:wheel"
    assert main(["topology", "own_parts:wheel", "--peers", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["edges"] == 8
    for command in ("simulate", "run"):
        assert (
            main([command, "digits", *changes, "--trust-code", "--runs", str(tmp_path / command), "--no-baselines"])
            == 0
        )
        (folder,) = (tmp_path / command).iterdir()
        assert p2pfl.Run.load(folder).experiment.topology.kind == "own_parts:wheel"


@pytest.mark.parametrize(
    "change",
    [
        "model.name=resnet",
        "learning.optimizer=sdg",
        pytest.param("learning.schedule=Nothing", marks=pytest.mark.slow),
        "learning.loss=mse",
        "learning.metrics.a=acuracy",
        "learning.algorithm_options.beta=1",
        "data.name=mnits",
        "data.split=idd",
        "topology.kind=rng",
    ],
)
def test_an_unknown_name_is_refused_before_data_are_read_and_graphs_made(monkeypatch, change):
    def reached(*_, **__):
        raise AssertionError("data or graph before names")

    for name in ("federate_data", "built", "load_graph"):
        monkeypatch.setattr(resolving, name, reached)
    with pytest.raises(InputError, match=re.escape(change.partition("=")[2] if "beta" not in change else "beta")):
        plan(read({"topology": {"peers": 4}}, changes=[change]))
