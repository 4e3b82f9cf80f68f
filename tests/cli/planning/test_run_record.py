"""``p2pfl privacy TABLE``, the record of all runs on a table, which an officer files."""

import json

import pytest
import tomli_w

from p2pfl.cli import main

pytestmark = pytest.mark.plugin("exact")

PEERS = ("peer0", "peer1", "peer2", "peer3")


@pytest.fixture
def ward(tmp_path, monkeypatch):
    """An experiment on four tables, which describes them."""
    monkeypatch.chdir(tmp_path)
    for place, peer in enumerate(PEERS):
        rows = (f"{(number + place) % 97},{number * 7 % 89},{'yes' if number % 3 else 'no'}" for number in range(40))
        (tmp_path / f"{peer}.csv").write_text("\n".join(["a,b,y", *rows]))
    table = {
        "name": "ward",
        "rounds": 1,
        "topology": {"kind": "complete", "peers": 4},
        "data": {
            "name": "table",
            "options": {
                "path": "{peer}.csv",
                "target": "y",
                "columns": {"a": "number", "b": "number", "y": ["no", "yes"]},
            },
        },
        "model": {"name": "description"},
        "learning": {"algorithm": "exact"},
        "privacy": {"mode": "pairwise", "mask_graph": "complete"},
    }
    (tmp_path / "ward.toml").write_text(tomli_w.dumps(table))
    assert main(["describe", "ward.toml", "--json"]) == 0
    return tmp_path


def test_the_record_has_who_when_which_columns_and_how_many_people(ward, capsys):
    (ward / "peer0.csv").write_text("\n".join((ward / "peer0.csv").read_text().splitlines()[:-1]))
    assert main(["describe", "ward.toml", "--unaccounted"]) == 0
    capsys.readouterr()
    assert main(["privacy", "peer0.csv", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["lines"], record["sealed"], record["epsilon"]) == (2, 2, {"people": None, "peers": None})
    assert [(run["run"], run["model"], run["samples"]) for run in record["runs"]] == [
        ("ward", "description", 40),
        ("ward", "description", 39),
    ]
    assert record["runs"][0]["columns"] == ["a", "b", "y"]
    assert not {"rows", "parts"} & {*record["runs"][0]}
    assert main(["privacy", "peer0.csv.budget.jsonl"]) == 0
    printed = capsys.readouterr().out
    assert "description of 39 people by exact totals; peers peer0, peer1, peer2, peer3; columns a, b, y" in printed
    assert "run 2 was accepted although this run and run 1" in printed
    assert f"lines with a seal that fits: 2; the last seal is {record['seal']}" in printed


@pytest.mark.slow
@pytest.mark.usefixtures("ward")
def test_costs_of_two_private_runs_add_up(capsys):
    private = ["--set", "model.name=private_description", "--set", "privacy.noise=2"]
    private += ["--set", "model.options={bounds={a=[0, 97], b=[0, 89]}, bins=4}"]
    assert main(["describe", "ward.toml", *private]) == 0
    assert main(["describe", "ward.toml", *private]) == 0
    capsys.readouterr()
    assert main(["privacy", "peer1.csv", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    once = record["runs"][1]["epsilon"]
    assert [run["epsilon"] for run in record["runs"][1:]] == [once, once]
    assert once < record["epsilon"]["people"] < 2 * once


def test_a_changed_line_ends_with_a_sentence(ward, capsys):
    path = ward / "peer0.csv.budget.jsonl"
    path.write_text(path.read_text().replace('"samples":40', '"samples":4'))
    assert main(["privacy", "peer0.csv"]) == 2
    assert "line 1: the line does not fit its seal" in capsys.readouterr().err


def test_what_the_account_has_against_a_run_is_said_before_it(ward, capsys):
    assert main(["privacy", "ward.toml"]) == 0
    assert "takes part in only one" not in capsys.readouterr().out
    assert main(["privacy", "ward.toml", "--set", "topology.peers=3"]) == 0
    assert "peer3 takes part in only one of this run and run 1" in capsys.readouterr().out
    assert len((ward / "peer0.csv.budget.jsonl").read_text().splitlines()) == 1
