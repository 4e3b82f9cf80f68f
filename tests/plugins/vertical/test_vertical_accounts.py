"""The account of an owner of columns knows its target, and columns that are dealt out have one account of all rows."""

import datetime as dt
import json

import pytest

import untidy
from p2pfl.core.errors import InputError
from p2pfl.experiment import plain, plan, read
from p2pfl.experiment.accounts import beside_file
from p2pfl.plugins.vertical.party_roles import MAX_PREDICTORS
from p2pfl.results.spending.account_file import AccountFile
from p2pfl.results.spending.ledger import check_runs, record_runs

NOW = dt.datetime(2026, 11, 27, 8, tzinfo=dt.UTC)


@pytest.fixture
def ward(tmp_path):
    """The experiment of three owners, of whom bob has the target."""
    for name, cells in untidy.tables(("ada", "bob", "eve"), common=30, others=10).tables.items():
        people = zip(*map(cells.column, cells.names), strict=True)
        rows = [f"{','.join(row)},{number % 7},{number % 5}" for number, row in enumerate(people)]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"{','.join(cells.names)},x,z", *rows]), "utf-8")
        (tmp_path / f"{name}.csv.toml").write_text(f'dates = "{untidy.FORMS}"\n')
        declared = 'columns = { x = "number", z = "number" }\n'
        (tmp_path / f"{name}.columns.toml").write_text(('target = "z"\n' if name == "bob" else "") + declared)
    options = {"path": f"{tmp_path}/{{peer}}.csv", "label": "bob", "helper": "cleo", "keys": untidy.KEYS}
    return read(
        {
            "rounds": 1,
            "topology": {"kind": "complete", "peers": ["ada", "bob", "cleo", "eve"]},
            "model": {"name": "glm", "options": {"family": "gaussian"}},
            "privacy": {"mode": "pairwise"},
            "data": {"name": "vertical", "options": json.loads(json.dumps(options))},
        }
    )


def listed(experiment, folder):
    record_runs(plan(experiment, only=["bob"]), ["bob"], now=NOW)
    return AccountFile(beside_file(folder / "bob.csv")).read()


def test_the_account_of_the_label_holder_lists_the_target_and_knows_who_left(ward, tmp_path):
    (entry,) = listed(ward, tmp_path)
    assert (entry.columns, entry.samples) == (("x", "z"), 40)
    table = tmp_path / "bob.csv"
    table.write_text(table.read_text("utf-8").rpartition("\n")[0], "utf-8")
    with pytest.raises(InputError, match="differ in one person, so their difference shows that person"):
        check_runs(plan(ward, only=["bob"]), ["bob"], now=NOW)


def test_a_target_that_was_corrected_shows_whose_it_is(ward, tmp_path):
    listed(ward, tmp_path)
    table = tmp_path / "bob.csv"
    rows, _, last = table.read_text("utf-8").rpartition(",")
    table.write_text(f"{rows},{int(last) + 1}", "utf-8")
    with pytest.raises(InputError, match="differ in 2 people"):
        check_runs(plan(ward, only=["bob"]), ["bob"], now=NOW)


@pytest.mark.parametrize("label", ["ada", "eve"])
def test_a_shared_account_counts_the_predictors_of_whichever_owner_shows_most(label, tmp_path):
    """The label holder shows none, so its place among the owners makes no difference."""
    shared = {
        "rounds": 1,
        "topology": {"kind": "complete", "peers": ["ada", "bob", "cleo", "eve"]},
        "data": {"name": "breast_cancer", "split": "columns", "split_options": {"label": label, "helper": "cleo"}},
        "model": {"name": "glm", "options": {"family": "binomial", "ridge": 1.0}},
        "privacy": {"mode": "pairwise", "budget": str(tmp_path / "all.budget.jsonl")},
    }
    made = plan(read(shared))
    record_runs(made, made.topology.peers, now=NOW)
    (entry,) = AccountFile(tmp_path / "all.budget.jsonl").read()
    assert entry.predictors == MAX_PREDICTORS
    again = plan(read(shared | {"seed": 1}))
    with pytest.raises(InputError, match="earlier runs have shown 14 linear predictors of each row"):
        check_runs(again, again.topology.peers, now=NOW)


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ({"name": "split_network", "options": {"task": "regression", "labels": "shown"}}, MAX_PREDICTORS),
        ({"name": "kernel", "options": {"consent": "distances"}}, 0),
    ],
)
def test_what_shows_more_of_a_row_than_a_predictor_counts_as_all_of_them(ward, model, label):
    """Gradients of a network show something of the columns of the label holder as well."""
    learner = plan(read(plain(ward) | {"model": model})).learner.bare
    counted = {peer: learner.predictors(peer) for peer in ("ada", "bob", "cleo", "eve")}
    assert counted == {"ada": MAX_PREDICTORS, "bob": label, "cleo": 0, "eve": MAX_PREDICTORS}


def test_dealt_columns_have_one_account_of_the_rows_that_all_parties_have(tmp_path):
    dealt = {
        "rounds": 1,
        "topology": {"kind": "complete", "peers": ["ada", "bob", "cleo", "eve"]},
        "data": {"name": "diabetes", "split": "columns", "split_options": {"label": "bob", "helper": "cleo"}},
        "model": {"name": "glm", "options": {"family": "gaussian"}},
        "privacy": {"mode": "pairwise", "budget": str(tmp_path / "all.budget.jsonl")},
    }
    for seed in (1, 2):  # another order of rows of each party
        made = plan(read(dealt | {"seed": seed}))
        record_runs(made, made.topology.peers, now=NOW)
    first, second = AccountFile(tmp_path / "all.budget.jsonl").read()
    assert (first.samples, len(first.columns)) == (442, 11)
    assert second.rows == ""  # no row is new
