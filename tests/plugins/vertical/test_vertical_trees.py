"""Runs of boosting of columns at different peers, from an experiment to files, predictions and what is printed."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from p2pfl import live, simulate
from p2pfl.cli import main
from p2pfl.core.errors import DataError, ExperimentError, InputError, ModelError
from p2pfl.data.data_description import Description, Field
from p2pfl.data.parties import Parties, Party
from p2pfl.experiment import plan, read
from p2pfl.learning.additive import answer_questions
from p2pfl.learning.exact_model import Own, Part
from p2pfl.learning.small_cells import CellCheck
from p2pfl.plugins.exact import Boosting
from p2pfl.plugins.vertical.aligned_table import AlignedTable
from p2pfl.plugins.vertical.vertical_trees import VerticalBoosting
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.models.predictor import Predictor
from vertical_experiments import changed

TREES = {"max_depth": 2, "max_bins": 8, "min_samples_leaf": 5}


def boosted(**options):
    """Return an experiment of three parties and a helper, with boosting of two classes."""
    model = {"name": "boosting", "options": {"loss": "log_loss", **TREES, **options}}
    return changed(data={"name": "breast_cancer"}, model=model) | {"rounds": 3}


def clinic(folder):
    """Return the experiment of tables of ada and bob, of which ada lacks some people, and write them."""
    rng = np.random.default_rng(3)
    wards = np.array(["east", "north", "west"])
    people = [f"p{number}" for number in range(200)]
    ada = [
        [f"{crp:.6g}" if crp > -1 else "", ward]
        for crp, ward in zip(rng.normal(size=200), rng.choice(wards, 200), strict=True)
    ]
    bob = rng.normal(size=(200, 2)).round(6)
    ill = [
        float(crp or 0) + (ward == "west") + own[0] * own[1] + noise > 0.3
        for (crp, ward), own, noise in zip(ada, bob, rng.normal(size=200) / 2, strict=True)
    ]
    for where, chosen in (("", slice(160)), ("new", slice(160, 200))):
        (folder / where).mkdir(exist_ok=True)
        rows = {
            "ada": [
                ["id", "crp", "ward"],
                *([who, *own] for who, own in zip(people[chosen], ada[chosen], strict=True) if who != "p199"),
            ],
            "bob": [
                ["id", "age", "days", "ill"],
                *(
                    [who, *own, "yes" if is_ill else "no"]
                    for who, own, is_ill in zip(people[chosen], bob[chosen].tolist(), ill[chosen], strict=True)
                ),
            ],
        }
        for name, lines in rows.items():
            with (folder / where / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows(lines)
    (folder / "ada.columns.toml").write_text(
        'columns = { crp = { type = "number", missing = nan }, ward = ["east", "north", "west"] }'
    )
    (folder / "bob.columns.toml").write_text(
        'target = "ill"\ncolumns = { age = "number", days = "number", ill = ["no", "yes"] }'
    )
    options = {"path": str(folder / "{peer}.csv"), "label": "bob", "helper": "cleo", "keys": [["id:text"]]}
    experiment = {
        "name": "clinic",
        "rounds": 4,
        "topology": {"kind": "complete", "peers": ["ada", "bob", "cleo"]},
        "data": {"name": "vertical", "test": 0.0, "options": options},
        "model": {"name": "boosting", "options": {"loss": "log_loss", "categorical_features": ["ward"], **TREES}},
        "privacy": {"mode": "pairwise"},
    }
    crps = np.array([[float(crp) if crp else np.nan, wards.tolist().index(ward)] for crp, ward in ada])
    return experiment, np.concatenate([crps, bob], axis=1).astype(np.float32), np.array(ill, np.int64)


def whole(features, targets, *, classes=2, **options):
    """Return the horizontal model of the joined table, and its tensors."""
    model = Boosting(features=features.shape[1], classes=classes, **TREES, **options)
    own = Own(Part(features, targets), Part(features[:0], targets[:0]))
    tensors, over = model.start(), False
    while not over:
        asking = model.round(tensors, lambda _: own)
        outcome = answer_questions(asking, lambda question: question.answer("all"))
        tensors, over = outcome.tensors, outcome.over
    return model, tensors


def same(one, other):
    return all(
        torch.equal(tensor.nan_to_num(), other[peer][name].nan_to_num())
        for peer, model in one.items()
        for name, tensor in model.items()
    )


@pytest.mark.slow
def test_a_run_has_the_trees_and_scores_of_all_columns_in_one_place(tmp_path):
    run = simulate(boosted(), folder=tmp_path / "run")
    summary = run.summary
    assert summary["metric"] == "auc"
    assert summary["alone"] < summary["together"] == summary["pooled"]
    assert summary["difference"] == 0.0
    own = {
        peer: load_file(tmp_path / "run" / "peers" / f"{peer}.safetensors") for peer in ("ada", "bob", "cleo", "eve")
    }
    assert "split_threshold" in own["ada"]
    assert "joint_feature" in own["bob"]
    assert set(own["cleo"]) == {"figures"}
    used = sum(int((own[peer]["place"] >= 0).sum()) for peer in ("ada", "eve"))
    assert used == int(own["bob"]["splits"]) > 0
    text = (tmp_path / "run" / "peers" / "bob.safetensors").read_bytes()
    assert not any(name in text for name in (b"worst area", b"worst texture"))


@pytest.mark.slow
async def test_live_peers_have_the_parts_of_the_simulation_to_the_last_bit():
    ended, wanted = await live(boosted(), source=SeededSource(7)), simulate(boosted(), source=SeededSource(7))
    assert same(wanted.models, ended.models)
    assert ended.summary["together"] == wanted.summary["together"]


@pytest.mark.slow
def test_predictions_from_files_are_those_of_the_joined_table_to_the_last_bit(tmp_path, capsys):
    experiment, features, targets = clinic(tmp_path)
    simulate(experiment, folder=tmp_path / "run")
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new" / "{peer}.csv")]) == 0
    rows = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    assert [row["parties"] for row in rows] == ["ada bob"] * 39 + ["alone"]
    model, tensors = whole(features[:160], targets[:160], rounds=4, categorical_features=[1])
    logits = model.predicted(tensors, Part(features[160:199], targets[160:199]))
    wanted = torch.from_numpy(logits).softmax(1).numpy()[:, 1]
    assert [float(row["probability of yes"]) for row in rows[:39]] == wanted.tolist()


@pytest.mark.slow
def test_several_classes_have_a_tree_each_in_a_round_and_predictions_are_those_of_the_joined_table(tmp_path, capsys):
    experiment, features, targets = clinic(tmp_path)
    (tmp_path / "bob.columns.toml").write_text(
        'target = "ill"\ncolumns = { age = "number", days = "number", ill = ["no", "yes", "very"] }'
    )
    rows = [line.split(",") for line in (tmp_path / "bob.csv").read_text().splitlines()]
    worse = [row[-1] == "yes" and float(row[1]) > 0 for row in rows[1:]]
    rows[1:] = [[*row[:-1], "very" if each else row[-1]] for row, each in zip(rows[1:], worse, strict=True)]
    (tmp_path / "bob.csv").write_text("\n".join(map(",".join, rows)))
    targets = np.where(worse, 2, targets[:160])
    experiment["model"]["options"]["classes"] = 3
    run = simulate(experiment, folder=tmp_path / "run")
    assert run.summary["difference"] == 0.0
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new" / "{peer}.csv")]) == 0
    predicted = [*csv.DictReader(capsys.readouterr().out.splitlines())][:39]
    model, tensors = whole(features[:160], targets, classes=3, rounds=4, categorical_features=[1])
    logits = model.predicted(tensors, Part(features[160:199], np.zeros(39, np.int64)))
    wanted = torch.from_numpy(logits).softmax(1).numpy()
    assert [[float(row[f"probability of {name}"]) for name in ("no", "yes", "very")] for row in predicted] == (
        wanted.tolist()
    )


@pytest.mark.slow
def test_trees_end_as_early_as_those_of_the_joined_table(tmp_path):
    stopping = {"early_stopping": True, "n_iter_no_change": 2, "learning_rate": 0.9, "validation": 0.3}
    experiment = boosted(**stopping) | {"rounds": 40}
    run = simulate(experiment, folder=tmp_path / "run")
    assert run.summary["difference"] == 0.0
    assert run.summary["together"] == run.summary["pooled"]
    grown = int((run.models["bob"]["joint_feature"][:, 0] >= 0).sum())
    assert 2 <= grown < 40
    assert 2 <= int(run.models["bob"]["trees"]) < 40  # of the label holder's columns alone
    ended = simulate(boosted(**stopping) | {"rounds": grown}, folder=tmp_path / "short")
    assert np.array_equal(run.models["bob"]["joint_value"][:grown], ended.models["bob"]["joint_value"])


@pytest.mark.slow
def test_early_stopping_without_a_validation_row_is_refused():
    with pytest.raises(ModelError, match="leaves no validation row of"):
        simulate(boosted(early_stopping=True, validation=0.001))


@pytest.mark.slow
def test_people_whom_a_party_lacks_have_missing_values(tmp_path, capsys):
    experiment, features, targets = clinic(tmp_path)
    lines = (tmp_path / "ada.csv").read_text().splitlines()
    (tmp_path / "ada.csv").write_text("\n".join(lines[:121]))
    features[120:160, :2] = np.nan
    experiment["data"]["options"]["rows"] = "labelled"
    run = simulate(experiment, folder=tmp_path / "run")
    assert run.summary["difference"] == 0.0
    model, tensors = whole(features[:160], targets[:160], rounds=4, categorical_features=[1])
    for name in ("left", "value", "gain", "count"):
        assert np.array_equal(run.models["bob"][f"joint_{name}"].numpy(), tensors[name]), name
    features[199, :2] = np.nan
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new" / "{peer}.csv")]) == 0
    rows = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    assert rows[-1]["parties"] == "bob"
    wanted = torch.from_numpy(model.predicted(tensors, Part(features[160:], targets[160:]))).softmax(1).numpy()[:, 1]
    assert [float(row["probability of yes"]) for row in rows] == wanted.tolist()


@pytest.mark.slow
def test_the_label_holder_reads_importances_without_names_of_others(tmp_path):
    experiment, _, _ = clinic(tmp_path)
    simulate(experiment, folder=tmp_path / "run")
    peers = tmp_path / "run" / "peers"
    saved = Predictor.load(peers / "bob.safetensors").saved
    tensors = {name: value.numpy() for name, value in saved.module.state_dict().items()}
    importances = saved.exact.explained(tensors, fields=(), classes=()).importances
    assert {each.name for each in importances} <= {"age", "days", "column 1 of ada", "column 2 of ada"}
    assert sum(each.importance for each in importances) == pytest.approx(1)
    assert "column 1 of ada" in {each.name for each in importances}
    assert main(["export", str(peers / "bob.safetensors"), "--to", "torch", "--out", str(tmp_path / "bob.pt2")]) == 0


@pytest.mark.slow
def test_a_run_repeats_to_the_bit(tmp_path, capsys):
    simulate(boosted(), folder=tmp_path / "run")
    assert main(["repeat", str(tmp_path / "run"), "--runs", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "the run repeats to the bit" in captured.out + captured.err


@pytest.mark.slow
def test_the_account_of_a_feature_holder_lets_one_model_of_trees_see_its_rows(tmp_path):
    experiment, _, _ = clinic(tmp_path)
    simulate(experiment)
    experiment["model"]["options"]["max_depth"] = 3
    with pytest.raises(InputError, match="earlier runs have shown 14"):
        simulate(experiment)


WARDS = np.repeat([0, 1, 2, 3], [60, 57, 2, 1])
"""Wards of 120 people, of which two have few."""


def ward(**options):
    """Return the model of ada's ward and bob's age, and the aligned table of both, without test rows."""
    fields = {"ada": (Field("ward", ("east", "west", "attic", "yard")),), "bob": (Field("sex", ("f", "m")),)}
    sexes = np.zeros(120, np.int64)
    sexes[:30] = 1
    columns = {"ada": np.eye(4)[WARDS], "bob": np.eye(2)[sexes]}
    ill = np.where(sexes == 1, np.arange(120) > 2, np.arange(120) % 2)  # three men are well
    own = {
        peer: Party(
            columns[peer],
            (tuple(map(str, range(120))),),
            Description(columns=fields[peer], classes=("no", "yes") if peer == "bob" else None),
            ill.astype(np.int64) if peer == "bob" else None,
            name=peer,
        )
        for peer in fields
    }
    parties = Parties(("ada", "bob"), "bob", "cleo", ("row:exact",), own, 50)
    model = VerticalBoosting(loss="log_loss", rounds=1, parties=parties.names, **TREES, **options)
    return model, AlignedTable(parties, lambda _: np.arange(120), 120, 7, 0.0)


def bins_of(model, table, peer):
    """Return how many people are in each bin of a party that has some."""
    counts = model._columns(table, peer).one_hot().astype(np.int64).sum(axis=0)
    return sorted(counts[counts > 0].tolist())


@pytest.mark.parametrize(
    ("options", "checked", "unchecked"),
    [
        ({"categorical_features": ["ward"]}, [60, 60], [1, 2, 57, 60]),
        ({}, [60, 60, 120, 120, 120], [1, 2, 57, 60, 60, 63, 118, 119]),
    ],
    ids=["category", "levels"],
)
def test_no_level_that_few_people_have_is_a_bin_that_the_label_holder_counts(options, checked, unchecked):
    assert bins_of(*ward(**options, least=1), "ada") == unchecked
    assert bins_of(*ward(**options), "ada") == checked


def test_levels_of_the_label_holder_are_checked_by_class_as_in_boosting_in_one_place():
    model, table = ward()
    columns, party = model._columns(table, "bob"), table.parties.party("bob")
    assert bins_of(model, table, "bob") == [120, 120]  # few men are well, so sexes are one
    whole = Boosting(features=2, classes=2, rounds=1, fields=party.fields, **TREES)
    own = Own(Part(party.features.astype(np.float32), party.targets), Part(party.features[:0], party.targets[:0]))
    check = CellCheck(lambda _: own, ("all",), lambda _: 5, None)
    checked = answer_questions(whole.check_cells(whole.start(), check), lambda question: question.answer("all"))
    assert np.array_equal(whole.merged_own(checked, lambda _: own)("all").train.features, columns.train.features)


def test_an_owner_of_columns_learns_no_class_from_the_levels_that_it_merges():
    """A check by class would show a party with four known people of a class whether a fifth is one of them."""
    model, table = ward()
    bob = table.parties.party("bob")
    one_of_a_class = replace(bob, target=(np.arange(120) < 59).astype(np.int64))  # one of 60 in east is well
    again = replace(table, parties=replace(table.parties, own={**table.parties.own, "bob": one_of_a_class}))
    assert bins_of(model, again, "ada") == bins_of(model, table, "ada")


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"loss": "squared_error"}, DataError, 'bob has classes, which loss = "squared_error" does not take'),
        ({"classes": 3}, DataError, "bob has 2 classes, but model.options.classes is 3"),
        ({"classes": 1}, ModelError, "model.options.classes is 1; set it to at least 2"),
        ({"loss": "quantile"}, ExperimentError, "model.options.loss"),
        ({"validation": 1.0}, ModelError, "model.options.validation is 1.0"),
        ({"scale": True}, ExperimentError, "boosting of columns has no option scale"),
        ({"max_bins": 1}, InputError, "model.options.max_bins is 1"),
    ],
    ids=["classes", "other classes", "one class", "loss", "validation", "option", "range"],
)
def test_what_boosting_refuses_is_one_sentence_before_anything_leaves(options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        plan(read(boosted(**options)))


def test_a_loss_is_required():
    experiment = boosted()
    del experiment["model"]["options"]["loss"]
    with pytest.raises(ExperimentError, match=r"model\.options\.loss is missing, and peers without the target"):
        plan(read(experiment))


@pytest.mark.slow
def test_a_name_that_no_party_has_is_refused():
    with pytest.raises(InputError, match='0 parties have a column "weight", which an option of boosting names'):
        simulate(boosted(monotonic_cst={"weight": 1}))


COMMAND = [
    "columns",
    *("--set", "model.name=boosting"),
    *("--set", "rounds=2"),
    *("--set", 'model.options={loss = "log_loss", max_depth = 2, max_bins = 8}'),
]


@pytest.mark.slow
def test_commands_before_a_run_know_trees(capsys):
    for command in ("privacy", "explain", "audit"):
        assert main([command, *COMMAND]) == 0
        captured = capsys.readouterr()
        assert "guessed" in captured.out + captured.err
    assert main(["value", *COMMAND]) == 2
    assert "the value of columns is their share of R²" in capsys.readouterr().err


@pytest.mark.slow
def test_a_label_holder_without_columns_grows_the_trees_of_others(tmp_path):
    experiment, _, _ = clinic(tmp_path)
    (tmp_path / "bob.columns.toml").write_text('target = "ill"\ncolumns = { ill = ["no", "yes"] }')
    experiment["data"]["test"] = 0.3
    summary = simulate(experiment, folder=tmp_path / "run").summary
    assert summary["alone"] == 0.5
    assert summary["together"] == summary["pooled"] > 0.6
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new" / "{peer}.csv")]) == 0
