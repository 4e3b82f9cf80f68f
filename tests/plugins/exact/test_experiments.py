"""Models that follow from totals, in an experiment file: what is read, refused, promised, saved and used."""

import csv
import json

import numpy as np
import pytest
import scipy.special
import tomli_w
import torch
from sklearn import datasets

from p2pfl.cli import main
from p2pfl.core.errors import ExperimentError, ModelError, PrivacyError
from p2pfl.experiment import plan, read
from p2pfl.experiment.catalogue import MODELS, model_traits
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.modes import mode_of
from p2pfl.experiment.parts.gossip_parts import mixing_weights
from p2pfl.experiment.parts.masks_and_noise import protect
from p2pfl.experiment.parts.peer_graph import built
from p2pfl.learning import Part
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.models import Predictor, evaluate, export
from p2pfl.results.spending.promises import promise
from p2pfl.results.summary import describe
from p2pfl.simulation import simulate
from swarms import live

TREES = {
    "name": "trees",
    "rounds": 4,
    "topology": {"kind": "small_world", "peers": 6, "degree": 4, "options": {"rewire": 0.5}},
    "data": {"name": "wine", "split": "dirichlet", "split_options": {"alpha": 1.0}, "validation": 0.2},
    "model": {"name": "boosting", "options": {"max_depth": 3, "min_samples_leaf": 4, "max_bins": 16}},
    "privacy": {"mode": "pairwise"},
}


def changed(section, **keys):
    return TREES | {section: TREES.get(section, {}) | keys}


def test_the_model_chooses_the_algorithm():
    experiment = read(TREES)
    assert experiment.learning.algorithm == "exact"
    assert read(experiment) == experiment


def test_what_hides_contributions_must_be_chosen():
    with pytest.raises(ExperimentError, match=r"shows exact totals .* privacy\.mode must be chosen; set it to"):
        read({key: value for key, value in TREES.items() if key != "privacy"})


REFUSED = {
    "a rate": (changed("learning", rate=0.5), r"learning\.rate = 0\.5 has no effect, because boosting follows"),
    "epochs": (changed("learning", epochs=3), r"learning\.epochs = 3 has no effect"),
    "gossip": (changed("gossip", steps=3), r"gossip\.steps = 3 has no effect"),
    "a clip": (changed("privacy", clip=1.0), r"privacy\.clip = 1\.0 has no effect"),
    "noise": (changed("privacy", noise=0.1), r"privacy\.noise = 0\.1 does not work with exact"),
    "an epsilon": (changed("privacy", epsilon=1.0), r"privacy\.epsilon = 1 does not work with exact"),
    "noise alone": (changed("privacy", mode="independent"), r'privacy\.mode = "independent" does not work with exact'),
    "sums": (changed("privacy", mode="secagg"), r"because the algorithm takes totals and releases no models"),
    "stop": (changed("learning", stop=0.1), r"learning\.stop = 0\.1 does not work with exact"),
    "absence": (changed("simulation", absence=0.1), r"simulation\.absence = 0\.1 does not work with exact"),
    "a codec": (changed("compression", name="qsgd"), r"compression\.name"),
    "an attack": (changed("attack", name="sign_flip"), r"attack\.name"),
    "a rule": (changed("robustness", rule="median"), r"robustness\.rule"),
    "an option": (changed("model", options={"depth": 3}), r"model\.options: boosting has no option depth; its options"),
    "a type": (changed("model", options={"max_depth": "deep"}), r'model\.options\.max_depth is "deep"; set it to'),
    "a torch model": (changed("learning", algorithm="exact") | {"model": {"name": "mlp"}}, r'model\.name is "mlp"'),
    "FedAvg": (changed("learning", algorithm="fedavg"), r'"fedavg" does not work with model\.name = "boosting"'),
}


@pytest.mark.parametrize(("table", "said"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_effect_or_no_meaning_is_refused(table, said):
    with pytest.raises(ExperimentError, match=said):
        plan(read(table))


@pytest.mark.parametrize("name", ["random_boosting", "private_glm", "private_description", "private_pca"])
def test_an_option_that_a_model_needs_is_named_where_it_is_missing(name):
    table = TREES | {"model": {"name": name}, "privacy": {"mode": "pairwise", "epsilon": 1.0, "delta": 1e-5}}
    with pytest.raises(ExperimentError, match=rf"model\.options\.bounds is missing, and {name} needs it"):
        plan(read(table))


def test_the_promise_says_what_totals_show():
    said = describe(plan(read(TREES)), spent=None)
    assert said["epsilon"] is None
    assert said["statement"].startswith("masks hide each peer's contribution to every total; one colluding peer learns")
    assert "the totals of the other 5" in said["statement"]
    assert "how many samples have each value of each feature" in said["statement"]
    assert "no differential privacy is claimed, because totals are exact" in said["statement"]
    bare = describe(plan(read(changed("privacy", mode="none"))), spent=None)["statement"]
    assert bare.startswith("contributions to totals are encrypted against the broker")


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_registered_under_its_own_name(name):
    assert MODELS.kind(name).name == name


@pytest.mark.parametrize("name", MODELS)
def test_the_statement_of_every_model_from_totals_says_what_two_results_show(name):
    table = {"topology": {"kind": "complete", "peers": 5}, "model": {"name": name}}
    said = "two such results of which one lacks a sample, or a peer, show by their difference exactly what"
    assert said in promised(read(table | {"privacy": {"mode": "pairwise"}}))
    if model_traits(name).noisy:
        assert said not in promised(read(table | {"privacy": {"mode": "pairwise", "noise": 1.0}}))


def promised(experiment):
    """Return the statement of an experiment before its data are read."""
    graph = built(experiment)
    asked, mode = Composition.of(experiment), mode_of(experiment.privacy)
    protection = protect(asked, mode, graph, mixing_weights(experiment, graph), size=1)
    return promise(experiment, protection, spent=None)["statement"]


def test_the_statement_says_it_of_other_exact_totals_of_a_run_as_well():
    table = {"topology": {"kind": "complete", "peers": 5}, "privacy": {"mode": "pairwise", "mask": 1.0}}
    assert "two such results" not in promised(read(table))
    both = read(table | {"data": {"scale": True}, "learning": {"consensus": True}})
    assert "the totals of data.scale and learning.consensus are exact, and two such results" in promised(both)


@pytest.mark.slow
def test_missing_cells_of_a_table_stay_missing_for_boosting(tmp_path):
    features, targets = datasets.load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    rows = [
        ["" if rng.random() < 0.3 else value for value in row[:4].tolist()] + ["abc"[target]]
        for row, target in zip(features, targets, strict=True)
    ]
    names = [f"x{number}" for number in range(4)]
    for number in range(6):
        with (tmp_path / f"peer{number}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([[*names, "y"], *rows[number::6]])
    columns = {name: {"type": "number", "missing": float("nan")} for name in names} | {"y": ["a", "b", "c"]}
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "y", "columns": columns}
    wanted = TREES | {"data": {"name": "table", "options": options}}
    run = simulate(wanted, folder=tmp_path / "run", baselines=False)
    assert (run.models["peer0"]["lacking"] == 1).all()
    predictor = Predictor.load(tmp_path / "run" / "peers" / "peer0.safetensors")
    found = predictor.predict(tmp_path / "peer3.csv")
    part = Part(np.array([[float(cell or "nan") for cell in row[:4]] for row in rows[3::6]], np.float32), targets[3::6])
    tensors = {name: value.numpy() for name, value in run.models["peer0"].items()}
    outputs = plan(run.experiment).learner.model.predicted(tensors, part)
    assert np.allclose(found.values, scipy.special.softmax(outputs, axis=1), rtol=1e-12)
    with pytest.raises(ModelError, match="missing values, which a torch model does not take"):
        plan(read(wanted | {"model": {"name": "linear"}, "learning": {"algorithm": "fedavg"}}))
    with pytest.raises(PrivacyError, match=r"data\.scale does not work with missing values"):
        simulate(wanted | {"data": wanted["data"] | {"scale": True}}, baselines=False)


def test_the_command_privacy_says_who_learns_what(tmp_path, capsys):
    path = tmp_path / "trees.toml"
    path.write_text(tomli_w.dumps(TREES))
    assert main(["privacy", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["claimed"] is False
    assert found["learned"]["the broker"] == "sizes and times of messages"
    assert "a peer on the way" not in found["learned"]
    few = ["--set", "topology.kind=path", "--set", "topology.peers=2"]
    assert main(["privacy", str(path), "--set", "privacy.mode=none", *few]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "the contributions that pass through it" in printed
    assert "the totals of the others are those of one peer alone; add peers" in printed
    assert main(["privacy", str(path), "--plot", str(tmp_path / "plot.png")]) == 2


def test_the_command_explain_promises_no_gossip(tmp_path, capsys):
    path = tmp_path / "trees.toml"
    path.write_text(tomli_w.dumps(TREES))
    assert main(["explain", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cost"]["gossip_steps_per_round"] == 0
    assert found["cost"]["bytes_sent"] is None
    assert found["mask"] is None
    assert main(["explain", str(path)]) == 0
    assert "two messages a peer for each total" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_run_says_that_its_rounds_take_totals_and_no_gossip_steps(tmp_path, capsys):
    path = tmp_path / "trees.toml"
    path.write_text(tomli_w.dumps(TREES))
    assert main(["simulate", str(path), "--runs", str(tmp_path / "runs")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"{TREES['rounds']} rounds of exact totals" in said
    assert "gossip step" not in said
    assert "Lossless: the peers have the one model on all data, to the last bit" in said
    [summary] = (tmp_path / "runs").glob("*/summary.json")
    assert json.loads(summary.read_text())["steps"] == 0
    assert json.loads(summary.read_text())["lossless"] is True


@pytest.mark.slow
def test_the_summary_compares_with_peers_alone_and_with_pooled_data():
    run = simulate(TREES | {"learning": {"consensus": True}})
    summary = run.summary
    assert summary["together"] == pytest.approx(summary["pooled"], rel=1e-12)  # a mean over peers
    assert summary["pooled"] == pytest.approx(summary["common"]["accuracy"], rel=1e-12)
    assert summary["alone"] < summary["together"]
    losses = [record.training_loss for record in run.metrics if record.peer == "peer0"]
    assert losses == sorted(losses, reverse=True)
    assert all(record.scores["validation_loss"] > 0 for record in run.metrics)


@pytest.mark.slow
async def test_live_peers_end_with_the_model_of_the_simulation():
    experiment = read(TREES, changes=["topology.kind=path", "privacy.mask_graph=complete", "learning.consensus=true"])
    source = SeededSource(3)
    models = simulate(experiment, baselines=False, source=source).models
    for name, end in (await live(experiment, MemoryTransport(), source=source)).items():
        learner = end.peer.plan.learner
        for key, tensor in learner.state_dict(end.state.rows[0]).items():
            assert np.array_equal(tensor.numpy(), models[name][key].numpy())
        assert end.peer.ended.common["accuracy"] > 0.8


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_a_saved_model_predicts_evaluates_and_is_exported(task, tmp_path):
    load = datasets.load_wine if task == "classes" else datasets.load_diabetes
    features, targets = load(return_X_y=True)
    names, levels = [f"x{number}" for number in range(4)], ["red", "white", "rose"]
    rows = [
        [*row[:4].tolist(), levels[int(target)] if task == "classes" else target]
        for row, target in zip(features, targets, strict=True)
    ]
    for number in range(6):
        with (tmp_path / f"peer{number}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([[*names, "y"], *rows[number::6]])
    columns = dict.fromkeys(names, "number") | {"y": levels if task == "classes" else "number"}
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "y", "columns": columns}
    data = {"name": "table", "options": options}
    run = simulate(TREES | {"data": data}, folder=tmp_path / "run", baselines=False)
    predictor = Predictor.load(tmp_path / "run" / "peers" / "peer0.safetensors")
    found = predictor.predict(tmp_path / "peer3.csv")
    tensors = {name: value.numpy() for name, value in run.models["peer0"].items()}
    part = Part(features[3::6, :4].astype(np.float32), targets[3::6])
    outputs = plan(run.experiment).learner.model.predicted(tensors, part)
    if task == "classes":
        assert np.allclose(found.values, scipy.special.softmax(outputs, axis=1), rtol=1e-12)
    else:
        assert np.allclose(found.values, outputs[:, 0], rtol=1e-12)
    assert evaluate(predictor, tmp_path / "peer3.csv", draws=10).whole.samples == len(part)
    described = json.loads((tmp_path / "run" / "model.json").read_text())
    assert described["model"] == {"name": "boosting", "options": TREES["model"]["options"] | {"rounds": 4}}
    program = torch.export.load(export(predictor, tmp_path / "model.pt2", to="torch")).module()
    assert np.allclose(program(torch.from_numpy(predictor.columns(tmp_path / "peer3.csv"))).numpy(), found.values)


@pytest.mark.slow
def test_categories_of_a_table_are_named_by_their_columns(tmp_path):
    rng = np.random.default_rng(5)
    wards = rng.integers(0, 5, 240)
    age = rng.normal(50, 10, 240).round()
    sick = (age / 10 + np.array([0, 3, -2, 4, 1])[wards] + rng.normal(size=240) > 6).astype(int)
    for number in range(6):
        with (tmp_path / f"peer{number}.csv").open("w", newline="") as file:
            rows = zip(age[number::6], wards[number::6], sick[number::6], strict=True)
            csv.writer(file).writerows([["age", "ward", "y"], *([a, "abcde"[w], "ny"[y]] for a, w, y in rows)])
    columns = {"age": "number", "ward": [*"abcde"], "y": ["n", "y"]}
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "y", "columns": columns}
    trees = TREES["model"]["options"] | {"categorical_features": ["ward"], "monotonic_cst": {"age": 1}}
    wanted = TREES | {"data": {"name": "table", "options": options}, "model": {"name": "boosting", "options": trees}}
    run = simulate(wanted, folder=tmp_path / "run", baselines=False)
    model = run.models["peer0"]
    assert model["categories"].any()
    predictor = Predictor.load(tmp_path / "run" / "peers" / "peer0.safetensors")
    found = predictor.predict(tmp_path / "peer3.csv").values
    hot = (wards[3::6, None] == np.arange(5)).astype(np.float32)
    part = Part(np.concatenate([age[3::6, None].astype(np.float32), hot], axis=1), sick[3::6])
    outputs = plan(run.experiment).learner.model.predicted({key: value.numpy() for key, value in model.items()}, part)
    assert np.allclose(found, scipy.special.softmax(outputs, axis=1), rtol=1e-12)
    program = torch.export.load(export(predictor, tmp_path / "model.pt2", to="torch")).module()
    assert np.allclose(program(torch.from_numpy(predictor.columns(tmp_path / "peer3.csv"))).numpy(), found)
    changes = ['model.options.categorical_features=["wards"]']
    with pytest.raises(ModelError, match="there is no column 'wards'"):
        plan(read(wanted, changes=changes))
