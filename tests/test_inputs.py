"""What users pass in place of the parts of a run: it works, or one sentence says what to pass."""

import re

import networkx as nx
import numpy as np
import pytest
import torch

import p2pfl
from p2pfl.core.errors import DataError, ExperimentError, ModelError, TopologyError
from p2pfl.data import gather
from p2pfl.learning import losses, metrics
from p2pfl.learning.set_scores import macro_f1

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(5))
Y = (X[:, 0] > 0).long()


def learner(peers=("a", "b", "c"), **how):
    torch.manual_seed(1)
    return p2pfl.TorchLearner(torch.nn.Linear(3, 2), dict.fromkeys(peers, (X, Y)), **{"rate": 0.1} | how)


def test_a_networkx_graph_is_a_topology():
    numbers = nx.cycle_graph(3)
    names = nx.relabel_nodes(numbers, dict(enumerate("abc")))
    for graph, peers in ((names, ("a", "b", "c")), (numbers, (0, 1, 2))):
        ring = p2pfl.topology.ring(3).named([str(peer) for peer in peers])
        runs = [
            p2pfl.simulate(p2pfl.FedAvg(), learner(peers), each, rounds=1, baselines=False) for each in (graph, ring)
        ]
        assert [*runs[0].models] == [str(peer) for peer in peers]
        for peer, model in runs[0].models.items():
            assert torch.equal(model["weight"], runs[1].models[peer]["weight"])


async def test_a_networkx_graph_is_a_topology_of_live_peers():
    graph = nx.path_graph(2)
    run = await p2pfl.live(p2pfl.FedAvg(), learner((0, 1)), graph, rounds=1, baselines=False)
    assert sorted(run.models) == ["0", "1"]


@pytest.mark.parametrize(
    ("algorithm", "trained", "graph", "refusal"),
    [
        (p2pfl.FedAvg(), None, [("a", "b")], (TopologyError, "of type list; pass a graph of p2pfl.topology")),
        (p2pfl.FedAvg, None, None, (ExperimentError, r"the class FedAvg; pass an object, FedAvg\(\)")),
        (p2pfl.FedAvg(), p2pfl.TorchLearner, None, (ExperimentError, "the class TorchLearner; pass an object")),
        (p2pfl.FedAvg(), torch.nn.Linear(3, 2), None, (ExperimentError, "a Linear; pass an object")),
    ],
)
def test_what_is_no_part_of_a_run_is_named(algorithm, trained, graph, refusal):
    kind, sentence = refusal
    with pytest.raises(kind, match=sentence):
        p2pfl.simulate(algorithm, trained or learner(), graph or p2pfl.topology.ring(3).named("abc"))


def test_peers_of_other_names_than_the_topology_are_named_with_both():
    peers = [f"peer{number}" for number in range(11)]
    with pytest.raises(ExperimentError, match=r"peers peer00, peer01.*data of peer0, peer1.*topology\.named"):
        p2pfl.simulate(p2pfl.FedAvg(), learner(peers), p2pfl.topology.ring(11))
    graph = p2pfl.topology.ring(11).named(sorted(peers))
    assert len(p2pfl.simulate(p2pfl.FedAvg(), learner(peers), graph, rounds=1, baselines=False).models) == 11


def test_peers_that_are_named_by_whole_numbers_have_these_as_text():
    assert gather({0: (X, Y), np.int64(1): (X, Y)}, seed=0).peers == ("0", "1")
    with pytest.raises(DataError, match="named by None"):
        gather({None: (X, Y)}, seed=0)


@pytest.mark.parametrize("rate", [np.float32(0.25), np.float64(0.25), torch.tensor(0.25), 0.25])
def test_a_rate_is_a_number_of_any_library(rate):
    assert type(learner(rate=rate).recipe.rate) is float
    assert learner(rate=rate).recipe.rate == 0.25


@pytest.mark.parametrize("rate", ["0.1", None, True, torch.ones(2), 1j])
def test_a_rate_that_is_no_number_is_named(rate):
    with pytest.raises(ModelError, match=re.escape(f"learning.rate is {rate!r}, which is no number")):
        learner(rate=rate)


def simulated(trained, algorithm=None, **more):
    topology = p2pfl.topology.ring(2).named(["a", "b"])
    algorithm = algorithm or p2pfl.FedAvg()
    return p2pfl.simulate(algorithm, trained, topology, **{"rounds": 1, "baselines": False, **more})


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_numbers_of_numpy_are_settings(kind):
    momentum = {"momentum": np.float32(0.5)}
    trained = learner("ab", batch=kind(8), epochs=kind(2), seed=kind(3), options=momentum, stragglers=np.float32(0.5))
    made = simulated(trained, p2pfl.algorithms.FedProx(mu=np.float64(0.25)), rounds=kind(1), seed=kind(5))
    learning = made.experiment.learning
    assert (made.experiment.rounds, made.experiment.seed, learning.batch, learning.epochs) == (1, 5, 8, 2)
    assert learning.algorithm_options == {"mu": 0.25}
    assert learning.options == {"momentum": 0.5}
    made = p2pfl.read({"rounds": kind(2), "model": {"name": "mlp", "options": {"hidden": np.array([8])}}})
    assert (made.rounds, made.model.options) == (2, {"hidden": [8]})


def test_a_float32_option_of_an_algorithm_is_compared_by_neighbours():
    mixed = simulated(learner("ab"), p2pfl.algorithms.FedProx(mu=np.float32(0.5)))
    assert mixed.experiment.learning.algorithm_options == {"mu": 0.5}


def test_an_option_of_an_algorithm_that_is_no_number_is_named():
    with pytest.raises(ExperimentError, match=r'learning\.algorithm_options\.mu is "0\.1"; set it to a number'):
        simulated(learner("ab"), p2pfl.algorithms.FedProx(mu="0.1"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"batch": "16"}, "learning.batch is '16'; set it to a whole number >= 1"),
        ({"batch": 2.0}, "learning.batch is 2.0; set it to a whole number >= 1"),
        ({"batch": True}, "learning.batch is True; set it to a whole number >= 1"),
        ({"epochs": "2"}, "learning.epochs is '2'; set it to a whole number >= 1"),
        ({"steps": 0}, "learning.steps is 0; set it to a whole number >= 1"),
        ({"seed": "1"}, "seed is '1'; set it to a whole number >= 0"),
        ({"optimizer": torch.optim.SGD([torch.ones(1)])}, "learning.optimizer is an object of SGD; give the class, or"),
        ({"options": ["momentum"]}, "learning.options is a list; give a dict of arguments of the optimiser"),
    ],
)
def test_a_setting_of_a_learner_that_is_of_another_type_is_named(given, sentence):
    with pytest.raises(ModelError, match=re.escape(sentence)):
        learner(**given)


def test_settings_of_a_learner_are_written_as_in_a_file():
    assert learner(batch="all").batch is None
    assert learner(device=torch.device("cpu")).device.type == "cpu"


@pytest.mark.parametrize("number", ["buffer", "parameter"])
def test_complex_and_missing_numbers_of_a_model_are_named(number):
    module = torch.nn.Linear(3, 2)
    wave = torch.ones(3, dtype=torch.complex64)
    module.register_parameter("wave", torch.nn.Parameter(wave)) if number == "parameter" else module.register_buffer(
        "wave", wave
    )
    with pytest.raises(ModelError, match="'wave' holds complex numbers, whose imaginary parts would be lost"):
        p2pfl.TorchLearner(module, {"a": (X, Y)})
    with pytest.raises(ModelError, match="'weight' lies on the device meta, which holds no numbers"):
        p2pfl.TorchLearner(torch.nn.Linear(3, 2, device="meta"), {"a": (X, Y)})


def test_samples_that_are_masked_or_do_not_fit_are_named():
    features, targets = X.numpy(), Y.numpy()
    masked = np.ma.masked_greater(features, features.mean())
    with pytest.raises(DataError, match=f"{masked.mask.sum()} of them are masked; fill or remove these"):
        gather({"a": (masked, targets)}, seed=0)
    with pytest.raises(DataError, match="are masked"):
        gather({"a": (features, np.ma.masked_equal(targets, 1))}, seed=0)
    assert len(gather({"a": (np.ma.array(features), targets)}, seed=0).train["a"])  # nothing is masked
    with pytest.raises(DataError, match=r"whole numbers above 2\^63 - 1"):
        gather({"a": (features, np.full(len(targets), 2**63, dtype=np.uint64))}, seed=0)
    with pytest.raises(DataError, match="the data of the peers are a list; give them by peer"):
        gather([(X, Y)], seed=0)


def test_names_of_peers_are_text():
    with pytest.raises(TopologyError, match="1 is not a valid peer name"):
        p2pfl.topology.ring(2).named([1, 2])


@pytest.mark.parametrize("model", [torch.nn.Linear, None, "mlp"])
def test_a_model_that_is_no_module_is_named(model):
    with pytest.raises(ModelError, match=r"the model is (the class Linear; pass an object, Linear\(|of type)"):
        p2pfl.TorchLearner(model, {"a": (X, Y)})


def test_losses_and_metrics_have_the_names_of_the_file():
    made = learner(loss="cross_entropy", metrics={"right": "accuracy", "f1": "macro_f1", "mine": losses.accuracy})
    assert made.loss is losses.cross_entropy
    assert made.metrics == {"right": losses.accuracy, "mine": losses.accuracy}
    assert made.whole == {"f1": macro_f1}
    file = {"data": {"name": "wine"}, "topology": {"peers": 2}, "learning": {"metrics": {"right": "accuracy"}}}
    assert p2pfl.plan(p2pfl.read(file)).learner.metrics == {"right": losses.accuracy}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"loss": "crossentropy"},
            '"crossentropy", neither a known name nor a "package.module:function"; did you mean "cross_entropy"',
        ),
        ({"loss": 3}, "learning.loss is of type int"),
        (
            {"metrics": {"a": "acuracy"}},
            '"acuracy", neither a known name nor a "package.module:function"; did you mean "accuracy"',
        ),
        ({"metrics": {"a": metrics.accuracy}}, 'arrays of probabilities and no tensors; pass the name "accuracy"'),
        ({"metrics": {"a": metrics.brier}}, "arrays of probabilities and no tensors; choose from accuracy"),
    ],
)
def test_what_is_no_loss_or_metric_is_named(given, sentence):
    with pytest.raises(ModelError, match=re.escape(sentence)):
        learner(**given)


def test_a_leading_tilde_is_the_home_folder_where_the_file_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "peer0.csv").write_text("a,b\n1,2\n")
    table = {"data": {"name": "table", "options": {"path": "~/peer0.csv", "columns": {}}}}
    assert p2pfl.read(table).data.options["path"] == str(tmp_path / "peer0.csv")
    table["data"]["options"]["path"] = "~/{peer}.csv"
    assert p2pfl.read(table).data.options["path"] == str(tmp_path / "{peer}.csv")
    table["data"]["options"]["path"] = "~/of_a_device.csv"
    assert p2pfl.read(table).data.options["path"] == "~/of_a_device.csv"
    made = p2pfl.read({}, changes=["privacy.mode=independent", "privacy.epsilon=8", "privacy.budget=~/new.json"])
    assert made.privacy.budget == str(tmp_path / "new.json")
