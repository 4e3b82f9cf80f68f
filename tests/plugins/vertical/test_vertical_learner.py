"""Runs of peers that hold different columns of the same people, from an experiment to files of models."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from p2pfl import simulate
from p2pfl.cli import main
from p2pfl.core.errors import DataError, ExperimentError, InputError, ModelError, PrivacyError
from p2pfl.experiment import plan, read
from p2pfl.learning.additive import add_up, answer_questions
from p2pfl.network.peer.round_totals import LostError
from p2pfl.plugins.vertical.vertical_glm import VerticalGLM
from p2pfl.plugins.vertical.vertical_models import VerticalFit
from p2pfl.privacy.keys import SeededSource
from vertical_experiments import LINEAR, PARTIES, changed


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return simulate(LINEAR, folder=tmp_path_factory.mktemp("runs") / "run")


def played():
    """The learner of the experiment, and what its round returns, played in one process."""
    made = plan(read(LINEAR)).drawing(SeededSource(7))
    asking = made.learner.asking(made.learner.start(["ada"])[0], round=0)
    return made.learner, answer_questions(asking, lambda question: add_up(question, made.topology.peers))


@pytest.mark.slow
def test_the_parts_of_a_linear_model_are_those_of_the_joined_table():
    learner, step = played()
    [table] = learner._table
    own = [table.parties.party(peer).features[table.positions(peer)][table.trained] for peer in PARTIES]
    design = np.column_stack([np.ones(len(table.trained)), *own])
    beta = np.linalg.lstsq(design, table.targets(), rcond=None)[0]
    learned = [learner.tensors(step.own(peer), peer=peer) for peer in PARTIES]
    assert np.concatenate([each["weight"] / each["deviation"] for each in learned]) == pytest.approx(beta[1:], rel=1e-6)
    assert sum(float(each["value"][0]) for each in learned) == pytest.approx(
        1 - learned[0]["deviance"][0] / learned[0]["null_deviance"][0], abs=1e-12
    )


@pytest.mark.slow
def test_a_round_that_peers_leave_again_and_again_is_fitted_twice_at_most(monkeypatch):
    """Each fit shows more of columns, so who leaves on purpose gains one more and no further one."""

    def lost(*_):
        raise LostError("bob did not answer")
        yield

    monkeypatch.setattr(VerticalGLM, "fit", lost)
    made = plan(read(LINEAR)).drawing(SeededSource(7))
    for error, sentence in [(LostError, "bob did")] * 2 + [
        (PrivacyError, "a peer was lost in 2 fits of this run, and")
    ]:
        asking = made.learner.asking(made.learner.start(["ada"])[0], round=0)
        with pytest.raises(error, match=sentence):
            answer_questions(asking, lambda question: add_up(question, made.topology.peers))


@pytest.mark.slow
@pytest.mark.slow
def test_a_linear_predictor_that_is_no_number_ends_the_run(monkeypatch):
    monkeypatch.setattr(VerticalFit, "weight", lambda self, peer: np.nan * self.fitted.own(peer)["coefficients"])
    with pytest.raises(ModelError, match="ada has a linear predictor of nan, beyond what a sum can hold"):
        played()


@pytest.mark.slow
def test_a_run_shows_alone_together_and_pooled(run):
    summary = run.summary
    assert summary["metric"] == "r2"
    assert summary["alone"] < summary["together"] == pytest.approx(summary["pooled"], abs=1e-7)
    assert summary["difference"] < 1e-6
    assert [peer for peer, each in summary["per_peer"].items() if each["together"] is not None] == ["bob"]


@pytest.mark.slow
def test_the_file_of_a_party_has_its_part_and_names_its_own_columns(run):
    own = {peer: load_file(run.folder / "peers" / f"{peer}.safetensors") for peer in ("ada", "bob", "cleo", "eve")}
    assert [len(own[peer]["weight"]) for peer in ("ada", "bob", "eve")] == [3, 4, 3]
    assert "bias" in own["bob"]
    assert "bias" not in own["ada"]
    assert set(own["cleo"]) == {"figures"}
    with safe_open(run.folder / "peers" / "ada.safetensors", "pt") as file:
        about = json.loads(file.metadata()["p2pfl"])
    assert [column["name"] for column in about["inputs"]["columns"]] == ["s1", "s2", "s3"]
    texts = {peer: (run.folder / "peers" / f"{peer}.safetensors").read_bytes() for peer in own}
    assert not any(b'"s1"' in text for peer, text in texts.items() if peer != "ada")
    assert b'"s1"' not in (run.folder / "model.json").read_bytes()
    assert (run.folder / "peers" / "ada.safetensors").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_the_same_source_repeats_a_run_to_the_last_bit(run):
    again = simulate(LINEAR)
    assert again.summary["together"] == run.summary["together"]
    for peer in ("ada", "bob", "cleo", "eve"):
        for name, tensor in again.models[peer].items():
            assert torch.equal(tensor, run.models[peer][name])


@pytest.mark.slow
def test_without_test_rows_there_is_no_score():
    summary = simulate(changed(data={"test": 0.0})).summary
    assert (summary["metric"], summary["alone"], summary["together"]) == (None, None, None)
    assert summary["difference"] < 1e-6
    assert "predictor" not in summary["privacy"]["statement"]


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        (
            {"model": {"name": "cox", "options": {}}},
            ExperimentError,
            'model.name = "cox" does not work with data.split',
        ),
        ({"model": {"name": "glm", "options": {}}}, ExperimentError, "family is missing, and peers without the target"),
        (
            {"model": {"name": "glm", "options": {"family": "binomial"}}},
            DataError,
            "bob has a class other than the first two among its targets",
        ),
        (
            {"model": {"name": "glm", "options": {"family": "gaussian", "ridge": -1.0}}},
            InputError,
            "model.options.ridge is -1.0",
        ),
        (
            {"data": {"split_options": {"label": "bob", "helper": "zoe"}}},
            DataError,
            '`helper` is "zoe", which is no peer of the run',
        ),
        ({"data": {"split_options": {"labels": "bob"}}}, ExperimentError, "columns has no option labels"),
        (
            {"privacy": {"mode": "none"}},
            ExperimentError,
            'would show the part of each of the others; set it to "pairwise"',
        ),
        (
            {"topology": {"peers": ["ada", "bob"]}, "data": {"split_options": {"label": "bob"}}},
            ExperimentError,
            'if there are two, because each of two knows the part of the other in a total; set it to "none"',
        ),
    ],
)
def test_what_vertical_runs_refuse_is_one_sentence_before_anything_leaves(changes, kind, sentence):
    with pytest.raises(kind, match=sentence):
        plan(read(changed(**changes)))


@pytest.mark.slow
def test_the_shipped_trial_shows_alone_together_and_pooled():
    summary = simulate("columns").summary
    assert summary["metric"] == "auc"
    assert summary["alone"] == pytest.approx(0.976, abs=2e-3)
    assert summary["together"] == pytest.approx(0.989, abs=2e-3)
    assert summary["together"] == pytest.approx(summary["pooled"], abs=1e-4)
    assert summary["difference"] < 1e-5


@pytest.mark.slow
def test_a_lasso_is_that_of_the_joined_table_and_has_no_errors(tmp_path):
    run = simulate(changed(model={"name": "lasso", "options": {"lambdas": 20}}), folder=tmp_path / "run")
    assert run.summary["difference"] < 1e-6
    assert run.summary["together"] == pytest.approx(run.summary["pooled"], abs=1e-6)
    assert "at each of 20 penalties" in run.summary["privacy"]["learned"]["ada, a feature holder"]
    assert all(run.models[peer]["error"].isnan().any() for peer in PARTIES)
    assert any((run.models[peer]["weight"] == 0).any() for peer in PARTIES)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["poisson", "gamma"])
def test_other_families_are_those_of_the_joined_table(family):
    summary = simulate(changed(model={"options": {"family": family}})).summary
    assert summary["difference"] < 1e-4
    assert summary["together"] == pytest.approx(summary["pooled"], abs=1e-5)
    assert summary["together"] > summary["alone"]


@pytest.mark.slow
@pytest.mark.parametrize("standardise", [True, False])
def test_components_are_those_of_the_joined_table_and_each_party_keeps_its_loadings(tmp_path, capsys, standardise):
    model = {"name": "pca", "options": {"components": 4, "standardise": standardise}}
    run = simulate(changed(model=model, data={"test": 0.0}), folder=tmp_path / "run")
    assert run.summary["difference"] < 1e-9
    loadings = np.concatenate([run.models[peer]["components"].numpy() for peer in PARTIES], axis=1)
    assert np.linalg.norm(loadings, axis=1) == pytest.approx(np.ones(4))
    assert main(["components", str(tmp_path / "run" / "peers" / "ada.safetensors"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["names"] == ["s1", "s2", "s3"]
    assert 0 < sum(printed["share"]) < 1
